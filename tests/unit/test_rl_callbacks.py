"""Callbacks: observers in the field's words, which report metrics, end a training, and go on
exactly in a resumed one."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from rl_orch import Callback, plugins
from rl_orch.errors import RlctlError
from rl_orch.plugins import OBSERVER_HOOKS
from rl_orch.records import EvalReport
from rl_orch.rl import named_observers
from rl_orch.rl.data.batch import Batch
from rl_orch.rl.named_observers import Observers, observers_of
from rl_orch.rl.observe import Observer, Phase
from rl_orch.rl.seeding import seed_all
from rl_orch.rl.snapshot import Resumption, TrainingSnapshot
from rl_orch.rl.train import Outcome, Training
from rl_orch.rl.training_recorder import LiveChange
from rl_orch.spec.model import Spec
from rl_orch.testing.observers import ObservedTraining, ObserverContract, _spec
from tests.learning.recorder import MemoryOutlet


class Counting(Callback):
    """Counts rows and updates, reports both, and ends the training after some evaluations."""

    def __init__(self, spec: Spec, most: int = 99) -> None:
        super().__init__(spec)
        self.rows, self.updates, self.evaluations, self.most = 0, 0, 0, most

    def on_step(self, batch: Batch, step: int) -> None:
        self.rows += len(batch)
        self.log("own/rows", self.rows)

    def on_update(self, metrics: Mapping[str, float], step: int) -> None:
        self.updates += 1
        self.log("own/updates", self.updates)

    def on_evaluation(self, report: EvalReport, step: int) -> None:
        self.evaluations += 1
        if self.evaluations == self.most:
            self.stop("it has seen enough")

    def state(self) -> dict[str, int]:
        return {"rows": self.rows, "updates": self.updates, "evaluations": self.evaluations}

    def load_state(self, state: Mapping[str, int]) -> None:
        self.rows, self.updates, self.evaluations = (
            state[name] for name in ("rows", "updates", "evaluations")
        )


class Forgetful(Callback):
    """Counts, and cannot say so."""

    updates = 0

    def on_update(self, metrics: Mapping[str, float], step: int) -> None:
        self.updates += 1


class Impatient(Callback):
    """Ends the training in the middle of nothing."""

    def on_update(self, metrics: Mapping[str, float], step: int) -> None:
        self.stop("at once")


class TestCounting(ObserverContract):
    make = staticmethod(Counting)


class Attentive(Callback):
    """Counts every hook, and holds what it hears of a snapshot and what it draws."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self.heard: dict[str, int] = {}

    def _count(self, what: str) -> None:
        self.heard[what] = self.heard.get(what, 0) + 1

    def before(self, phase: Phase, step: int) -> None:
        self._count(f"before {phase}")

    def on_step(self, batch: Batch, step: int) -> None:
        self._count("on_step")

    def on_update(self, metrics: Mapping[str, float], step: int) -> None:
        self._count("on_update")

    def on_evaluation(self, report: EvalReport, step: int) -> None:
        self._count("on_evaluation")

    def saved(self, snapshot: TrainingSnapshot, step: int) -> None:
        self._count("saved")
        self._count(f"saved {snapshot.step} at {step}")

    def reconfigure(self, spec: Spec) -> None:
        super().reconfigure(spec)
        self._count("reconfigure")

    def state(self) -> dict[str, int]:
        return self.heard

    def load_state(self, state: Mapping[str, int]) -> None:
        self.heard = dict(state)


class TestAttentive(ObserverContract):
    make = staticmethod(Attentive)


@contextmanager
def named(make: Any) -> Iterator[Spec]:
    """A spec with a callback, of 128 steps that are evaluated every 64."""
    with plugins.provided("observers", "mine", make):
        yield _spec("ppo").changed({"train.observers": ("mine",)})


def trained(spec: Spec, resumption: Resumption | None = None) -> tuple[Outcome, ObservedTraining]:
    recorder = ObservedTraining()
    seed_all(spec.env.seed)
    with closing(Training(spec, recorder)) as training:
        if resumption is not None:
            training.resume(resumption)
        return training.run(), recorder


def test_a_callback_hears_and_reports_metrics() -> None:
    with named(Counting) as spec:
        outcome, recorder = trained(spec)
    assert outcome.reason == "budget"
    assert (recorder.metrics["own/rows"], recorder.metrics["own/updates"]) == (128.0, 4.0)
    assert recorder.inexact == []


def test_a_callback_is_called_where_it_has_a_hook_of_its_own_alone() -> None:
    def on_evaluation(self: Any, report: EvalReport, step: int) -> None:
        self.log("own/step", step)

    def collected(self: Any, batch: Batch, step: int) -> None:
        self.log("own/rows", len(batch))

    for methods, heard in (
        ({"on_evaluation": on_evaluation}, {"evaluated"}),
        ({"collected": collected}, {"collected"}),
        ({}, set[str]()),
    ):
        with named(acting(**methods)) as spec:
            observers = Observers(observers_of(spec)[1:])
        assert {hook for hook in OBSERVER_HOOKS if getattr(observers, hook)} == heard


def test_a_callback_ends_a_training_as_its_budget_would() -> None:
    with named(lambda spec: Counting(spec, most=1)) as spec:
        outcome, recorder = trained(spec)
    assert (outcome.reason, outcome.clock.value) == ("callback", 64)
    assert "mine" in outcome.detail
    assert "it has seen enough" in outcome.detail
    with named(Impatient) as spec:
        outcome, recorder = trained(spec)
    assert (outcome.reason, outcome.clock.value) == ("callback", 32)
    assert [report is not None for _, report in recorder.saved] == [True]


def test_a_resumed_training_has_the_callback_where_it_was() -> None:
    with named(lambda spec: Counting(spec, most=2)) as spec:
        _, whole = trained(spec)
        outcome, resumed = trained(spec, Resumption(*whole.saved[0], whole.read))
    assert outcome.reason == "callback"
    assert resumed.metrics["own/updates"] == whole.metrics["own/updates"] == 4.0
    theirs, ours = (each.saved[-1][0].tensors for each in (whole, resumed))
    assert all(np.array_equal(theirs[name], ours[name]) for name in theirs)


class Archivist(Callback):
    """Ends the training before something is saved."""

    def before(self, phase: str, step: int) -> None:
        if phase == "save":
            self.log("own/saves", step)
            self.stop("there is enough")


def test_what_is_asked_for_before_a_save_is_in_the_snapshot() -> None:
    with named(Archivist) as spec:
        spec = spec.changed({"checkpoint.every": 32})
        outcome, whole = trained(spec)
        (first, report), *_ = whole.saved
        assert (first.step, report) == (32, None)
        assert "there is enough" in first.document["trainer_state"]["called_off"]
        again, resumed = trained(spec, Resumption(first, report, whole.read))
    assert outcome == again
    assert (outcome.reason, outcome.clock.value) == ("callback", 64)
    assert [s.step for s, _ in whole.saved] == [32, 64]
    assert [s.step for s, _ in resumed.saved] == [64]
    assert resumed.metrics["own/saves"] == whole.metrics["own/saves"] == 64


@pytest.mark.parametrize("ask", [lambda self: self.log("x", 1), lambda self: self.stop("x")])
def test_what_no_snapshot_could_know_of_is_refused(ask: Any) -> None:
    late = acting(saved=lambda self, snapshot, step: ask(self))
    with (
        named(late) as spec,
        pytest.raises(RlctlError, match="'mine' would log or stop") as refused,
    ):
        trained(spec)
    assert refused.value.path == "train.observers"


def test_a_training_that_was_ended_stays_so_when_it_is_resumed() -> None:
    with named(Impatient) as spec:
        outcome, whole = trained(spec)
        again, resumed = trained(spec, Resumption(*whole.saved[-1], whole.read))
    assert again == outcome
    assert resumed.saved == []


def test_a_callback_that_remembers_and_cannot_say_so_makes_the_run_approximate() -> None:
    with named(Forgetful) as spec:
        _, recorder = trained(spec)
    assert "mine" in recorder.inexact[0]
    assert "load_state" in recorder.inexact[0]
    with named(lambda spec: Observer.__new__(_Deaf)) as spec:
        assert trained(spec)[1].inexact == []


def test_a_save_that_was_asked_for_is_not_told() -> None:
    with named(Attentive) as spec:
        asked = MemoryOutlet([None, "checkpoint", None, "stop"])
        seed_all(spec.env.seed)
        with closing(Training(spec, asked)) as training:
            training.run()
        whole = trained(spec)[1]
    assert [snapshot.step for snapshot, _ in asked.saved] == [32, 64, 96]
    *_, last = [
        snapshot.document["trainer_state"]["observers"]["mine"] for snapshot, _ in asked.saved
    ]
    assert (last["before save"], last["saved"]) == (1, 1)
    assert len(whole.saved) == 2


def test_a_change_at_the_step_of_a_stop_is_heard_once() -> None:
    with named(Attentive) as spec:
        changed = LiveChange(spec.changed({"train.lr": 0.5}), {"train.lr": [spec.train.lr, 0.5]})
        recorder = MemoryOutlet([None, "stop"])
        for each in (None, Resumption):
            recorder.changes[32] = changed
            seed_all(spec.env.seed)
            with closing(Training(spec, recorder)) as training:
                if each is not None:
                    training.resume(each(*recorder.saved[-1], recorder.read))
                training.run()
    last = recorder.saved[-1][0].document["trainer_state"]["observers"]["mine"]
    assert [snapshot.step for snapshot, _ in recorder.saved] == [32, 64, 128]
    assert last["reconfigure"] == 1


class _Deaf(Observer):
    """Hears nothing."""


class Rate(Callback):
    """Reports an option that may change, as it is, and as it was made of it."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self.twice = 2 * spec.train.lr

    def reconfigure(self, spec: Spec) -> None:
        super().reconfigure(spec)
        self.twice = 2 * spec.train.lr

    def on_update(self, metrics: Mapping[str, float], step: int) -> None:
        self.log("own/lr", self.spec.train.lr)
        self.log("own/twice", self.twice)


class Simple:
    """Is no subclass of anything, and keeps its spec."""

    def __init__(self, spec: Spec) -> None:
        self.spec, self.noted = spec, REPORTED

    def updated(self, metrics: Mapping[str, float], step: int) -> None:
        REPORTED.append(self.spec.train.lr)


REPORTED: list[float] = []


@pytest.mark.parametrize("kind", [Rate, Simple])
def test_an_observer_reads_the_options_that_are_in_force(kind: Any) -> None:
    REPORTED.clear()
    with named(kind) as spec:
        changed = spec.changed({"train.lr": 0.5})
        recorder = MemoryOutlet()
        recorder.changes[64] = LiveChange(changed, {"train.lr": [spec.train.lr, 0.5]})
        with closing(Training(spec, recorder)) as training:
            training.run()
    rates = [spec.train.lr] * 2 + [0.5] * 2
    if kind is Simple:
        assert rates == REPORTED
        return
    assert [e.value for e in recorder.events if e.key == "own/lr"] == rates
    assert [e.value for e in recorder.events if e.key == "own/twice"] == [2 * r for r in rates]
    assert recorder.doubts == []


@dataclass(slots=True)
class _Counted:
    updates: int = 0
    __doubled: int = 0


class Slotted(_Counted):
    """Counts in attributes that are in no dictionary, one of them private."""

    __slots__ = ()

    def __init__(self, spec: Spec) -> None:
        super().__init__()

    def updated(self, metrics: Mapping[str, float], step: int) -> None:
        counted: Any = self
        counted._Counted__doubled += 2


class Idle(Slotted):
    """Has such attributes, and changes none."""

    __slots__ = ()

    def updated(self, metrics: Mapping[str, float], step: int) -> None:
        assert self.updates == 0


class Shared(Callback):
    """Remembers in a list of its class."""

    steps: ClassVar[list[int]] = []

    def on_update(self, metrics: Mapping[str, float], step: int) -> None:
        self.steps.append(step)


class Tallied(Callback):
    """Counts in a number of its class."""

    updates = 0

    def on_update(self, metrics: Mapping[str, float], step: int) -> None:
        type(self).updates += 1


class TestTallied(ObserverContract):
    make = staticmethod(Tallied)


@pytest.mark.parametrize(
    ("kind", "forgets"), [(Slotted, True), (Shared, True), (Tallied, True), (Idle, False)]
)
def test_what_is_remembered_in_slots_and_by_the_class_counts(kind: Any, forgets: bool) -> None:
    with named(kind) as spec:
        assert bool(trained(spec)[1].inexact) is forgets


def test_a_state_that_cannot_be_kept_is_an_error_that_names_the_callback() -> None:
    class Odd(Counting):
        def state(self) -> Any:
            return {"rows": {1, 2}}

    with named(Odd) as spec, pytest.raises(RlctlError, match="'mine' has a state") as refused:
        trained(spec)
    assert refused.value.path == "train.observers"


def acting(**methods: Any) -> Any:
    """A class of callbacks with these methods."""
    return type("Mine", (Callback,), methods)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("own/\ud800", 1.0, "by the name 'own/\\\\ud800'"),
        ("own\n", 1.0, "printable text of at most 200"),
        ("", 1.0, "printable text"),
        ("x" * 201, 1.0, "at most 200"),
        (7, 1.0, "by the name 7"),
        ("x", "a", "logs 'x' as 'a'; must be a number"),
        ("x", "5", "must be a number"),
        ("x", None, "must be a number"),
        ("x", [1.0, 2.0], "must be a number"),
    ],
)
def test_a_metric_that_cannot_be_reported_is_refused_in_the_name_of_the_callback(
    name: Any, value: Any, said: str
) -> None:
    mine = acting(on_step=lambda self, batch, step: self.log(name, value))
    with named(mine) as spec, pytest.raises(RlctlError, match=said) as refused:
        trained(spec)
    assert "Mine" in refused.value.message
    assert refused.value.path == "train.observers"


def test_a_metric_has_any_printable_name_and_any_number() -> None:
    mine = acting(on_step=lambda self, batch, step: self.log("größe/x y", np.float32(2)))
    with named(mine) as spec:
        assert trained(spec)[1].metrics["größe/x y"] == 2.0


def test_a_reason_that_is_no_text_is_refused() -> None:
    mine = acting(on_step=lambda self, batch, step: self.stop("\udfff"))
    with named(mine) as spec, pytest.raises(RlctlError, match="must be text"):
        trained(spec)


@pytest.mark.parametrize(
    ("why", "kept"),
    [
        ("it is größer\n\tthan \x1b[31mred\x1b[0m\x07", "it is größer than red"),
        ("\x1b]0;title\x07\u202eover\u2028", "over"),
        ("x" * 10_000, "x" * 299 + "…"),
        ("x" * 300, "x" * 300),
        ("\x1b[2J\n", "it gave no reason"),
    ],
)
def test_a_reason_is_one_line_of_printable_text(why: str, kept: str) -> None:
    mine = acting(on_step=lambda self, batch, step: self.stop(why))
    with named(mine) as spec:
        outcome, _ = trained(spec)
    assert outcome.detail.endswith(f"ended it at step 32: {kept}")


def nested(levels: int) -> Any:
    return [nested(levels - 1)] if levels else 0


def endless() -> Any:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    return deep


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (lambda: "x" * (named_observers.MOST_STATE_BYTES + 1), "together"),
        (lambda: nested(101), "deeper than 100 levels"),
        (endless, "deeper than 100 levels"),
        (lambda: "\ud800", "JSON cannot hold"),
    ],
)
def test_a_state_that_is_too_much_is_refused_with_the_limit(state: Any, said: str) -> None:
    mine = acting(state=lambda self: state(), load_state=lambda self, state: None)
    with named(mine) as spec, pytest.raises(RlctlError, match=said) as refused:
        trained(spec)
    assert "'mine'" in refused.value.message


def test_states_share_the_room_and_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_observers, "MOST_STATE_BYTES", 100)
    taken: list[Any] = []
    mine = acting(
        __init__=lambda self, spec: taken.append(self),
        state=lambda self: f"{taken.index(self)}" * 40,
        load_state=lambda self, state: taken.append(state),
    )
    with named(mine) as spec:
        observers = Observers(observers_of(spec.changed({"train.observers": ("mine",) * 2})))
        assert observers.state() == {"mine": "0" * 40, "mine#2": "1" * 40}
        observers.load_state(observers.state())
        assert taken[2:] == ["0" * 40, "1" * 40]
        three = Observers(observers_of(spec.changed({"train.observers": ("mine",) * 3})))
        with pytest.raises(RlctlError, match="100 together"):
            three.state()


def test_a_callback_that_fails_is_named_by_the_hook_that_was_written_and_its_place() -> None:
    def on_update(_self: Any, _metrics: Any, _step: int) -> None:
        raise KeyError("nokey")

    with named(acting(on_update=on_update)) as spec, pytest.raises(RlctlError) as refused:
        Observers(observers_of(spec)).updated[-1]({}, 1)
    message = refused.value.message
    assert "failed in 'on_update': KeyError" in message
    assert f"{Path(__file__).name}, line " in message


@pytest.mark.parametrize("hook", ["__init__", "load_state"])
def test_a_callback_that_cannot_be_made_or_go_on_is_named(hook: str) -> None:
    def fail(*given: Any) -> None:
        raise OSError("no room")

    mine = acting(**{"state": lambda self: 1, "load_state": lambda self, state: 1, hook: fail})
    with named(mine) as spec, pytest.raises(RlctlError, match="OSError: no room") as refused:
        Observers(observers_of(spec)).load_state({"mine": 1})
    assert f"'mine' failed in '{hook}'" in refused.value.message
    assert refused.value.path == "train.observers"


@pytest.mark.parametrize("part", ["rewards", "observations", "next_observations", "extras"])
def test_a_callback_cannot_write_to_what_it_hears_of(part: str) -> None:
    def write(self: Any, batch: Batch, step: int) -> None:
        column = getattr(batch, part)
        array: Any = column["valid"] if part == "extras" else column
        array[:] = 1

    with named(acting(on_step=write)) as spec, pytest.raises(RlctlError, match="read-only"):
        trained(spec)


def test_a_callback_that_changes_metrics_or_a_snapshot_changes_nothing() -> None:
    def forget(self: Any, metrics: Any, step: int) -> None:
        metrics.clear()

    def write(self: Any, snapshot: Any, step: int) -> None:
        next(iter(snapshot.tensors.values()))[:] = 0

    with named(acting(on_update=forget)) as spec:
        assert any(name.startswith("losses/") for name in trained(spec)[1].metrics)
    with named(acting(saved=write)) as spec, pytest.raises(RlctlError, match="read-only"):
        trained(spec)
