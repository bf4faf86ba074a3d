"""Runs that came to a final end and are given a larger budget: as if they had had it all along, or
with what stands in the way."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from rl_orch.api.routes.experiments import spec_of
from rl_orch.api.schemas import Experiment
from rl_orch.cli.spec_flags import SpecArguments
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.registry import integrity
from rl_orch.core.runs.state import asks_for_more
from rl_orch.errors import BadInput, Conflict, NotFound
from rl_orch.io.checkpoints import catalog, checkpoint_files
from rl_orch.io.run.directory import RunDir
from rl_orch.orchestrator import to_spec
from rl_orch.records import Run, State
from rl_orch.rl.train import train
from rl_orch.runners.inline import InlineRunner
from rl_orch.spec.inheritance import inherited
from rl_orch.worker import train as worker
from tests.unit.test_live_changes import a_spec

KEPT = "checkpoint.keep_training_state=always"
SHORT, LONG = "train.total_timesteps=192", "train.total_timesteps=384"
LOOSE = ("gates.min_return=-1e9", "gates.stability=false")


@pytest.fixture
def here(tmp_path: Path) -> Orchestrator:
    return Orchestrator(tmp_path / "home", InlineRunner())


def trained(here: Orchestrator, *overrides: str, algorithm: str = "ppo") -> Run:
    return here.launch(a_spec(algorithm, *overrides)).run


def tensors(run: Run) -> dict[str, Any]:
    root = RunDir.of(run).checkpoints
    return dict(checkpoint_files.load(root / catalog.all_names(root)[-1]).tensors)


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_an_extended_run_is_what_it_would_have_been_with_that_budget(
    here: Orchestrator, algorithm: str
) -> None:
    whole = trained(here, LONG, KEPT, algorithm=algorithm)
    short = trained(here, SHORT, KEPT, *LOOSE, algorithm=algorithm)
    more = here.resume(short.id, overrides=[LONG]).run
    assert (more.state, more.attempt, more.env_steps, more.resume) == (
        State.SUCCEEDED,
        2,
        whole.env_steps,
        "bitwise",
    )
    ours, theirs = tensors(more), tensors(whole)
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    assert more.verdict == "passed"
    assert integrity.verify(here.store).faults == ()


@pytest.mark.parametrize(
    ("algorithm", "options", "word"),
    [
        ("ppo", ["train.lr_schedule=linear"], "train.lr_schedule"),
        ("ppo", ["train.clip_schedule=linear"], "train.clip_schedule"),
        ("sac", [], "replay"),
        ("dqn", [KEPT], "train.exploration_schedule"),
    ],
)
def test_what_stands_in_the_way_of_going_on_exactly_is_said_and_may_be_accepted(
    here: Orchestrator, algorithm: str, options: list[str], word: str
) -> None:
    run = trained(here, SHORT, *options, algorithm=algorithm)
    with pytest.raises(Conflict, match=word) as refused:
        here.requeue(run.id, overrides=[LONG])
    assert "--approximate" in str(refused.value.hint)
    assert here.get(run.id) == run
    more = here.resume(run.id, overrides=[LONG], approximate=True).run
    assert (more.state, more.env_steps, more.resume) == (State.SUCCEEDED, 384, "approximate")
    exactness = here.show(run.id).exactness
    assert exactness is not None
    assert word in str(exactness.reason)


def test_a_run_that_went_on_without_its_replay_buffer_can_be_gone_on_with(
    here: Orchestrator,
) -> None:
    run = trained(here, SHORT, algorithm="sac")
    here.resume(run.id, overrides=[LONG, KEPT], approximate=True)
    more = here.resume(run.id, overrides=["train.total_timesteps=576"]).run
    assert (more.env_steps, more.attempt, more.resume) == (576, 3, "approximate")


def test_a_budget_that_was_set_counts_no_more_once_a_larger_one_is_asked_for(
    here: Orchestrator,
) -> None:
    """Also where it is not gone on with exactly."""
    run = trained(here, SHORT, algorithm="sac")
    options = {"train.total_timesteps": [192, 256]}
    note = {"attempt": 1, "at": 0.0, "step": 64, "env_steps": 64, "set": options}
    RunDir.of(run).note_changes([note])
    more = here.resume(run.id, overrides=[LONG], approximate=True).run
    assert (more.total_timesteps, more.env_steps) == (384, 384)
    assert here.show(run.id).changes[-1]["set"] == {"train.total_timesteps": [256, 384]}


def test_a_final_end_stays_final_without_a_larger_budget(here: Orchestrator) -> None:
    run = trained(here, SHORT, *LOOSE)
    for overrides in ([], ["name=other"]):
        with pytest.raises(Conflict):
            here.requeue(run.id, overrides=overrides)
    with pytest.raises(BadInput) as refused:
        here.requeue(run.id, overrides=["train.total_timesteps=100"])
    assert refused.value.path == "train.total_timesteps"
    assert here.get(run.id) == run


def test_a_run_that_ended_because_it_was_solved_is_not_sent_to_end_again(
    here: Orchestrator,
) -> None:
    run = trained(here, LONG, *LOOSE, "gates.stop_when_solved=true", "eval.every=64")
    assert (run.verdict, run.env_steps) == ("passed", 64)
    with pytest.raises(BadInput) as refused:
        here.requeue(run.id, overrides=["train.total_timesteps=500"])
    assert refused.value.path == "gates.stop_when_solved"
    more = here.resume(
        run.id, overrides=["train.total_timesteps=192", "gates.stop_when_solved=false"]
    )
    assert more.run.env_steps == 192


def test_verdicts_on_an_end_keep_what_they_have_read(here: Orchestrator) -> None:
    run = trained(here, SHORT, *LOOSE)
    first = here.registry.verdicts_on(run.model_id or 0)[0]
    here.resume(run.id, overrides=[LONG])
    after = here.registry.verdicts_on(run.model_id or 0)[-1]
    assert after.report_sha256 == first.report_sha256
    assert after.report_path != first.report_path
    assert integrity.verify(here.store).faults == ()


def test_a_run_that_let_its_replay_go_is_evaluated_where_it_is_imported(
    here: Orchestrator, tmp_path: Path
) -> None:
    run = trained(here, SHORT, *LOOSE, algorithm="sac")
    there = Orchestrator(tmp_path / "other", InlineRunner())
    assert there.import_run(Path(run.path)).state is State.LOST
    judged = there.resume(run.id).run
    assert (judged.state, judged.verdict, judged.env_steps) == (State.SUCCEEDED, "passed", 192)
    with pytest.raises(Conflict):
        there.requeue(run.id, overrides=[LONG])


@pytest.mark.parametrize(
    ("override", "more"),
    [
        ("train.total_timesteps=5", True),
        ("train.epochs=5", True),
        ("train.totalTimesteps=5", True),
        ("train.lr=5", False),
    ],
)
def test_a_larger_budget_is_asked_for_in_any_spelling(override: str, more: bool) -> None:
    assert asks_for_more([override]) is more


def test_a_run_that_names_only_a_source_of_weights_takes_over_its_spec(
    here: Orchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained(here, SHORT, "name=parent", "tags={team: blue}", "train.lr=0.125")
    asked = {"start": {"from": run.id}, "train": {"total_timesteps": 64}}
    spec = to_spec(asked, home=here.home)
    assert spec.env == here.show(run.id).spec.env
    assert (spec.train.lr, spec.train.total_timesteps) == (0.125, 64)
    assert (spec.name, spec.tags, spec.start.source) == (None, {}, run.id)
    assert spec == spec_of(Experiment(spec=asked), here)
    by_model = to_spec(asked | {"start": {"from": str(run.model_id)}}, home=here.home)
    assert by_model.changed({"start.from": run.id}) == spec
    monkeypatch.setenv("RLCTL_HOME", str(here.home))
    typed = SpecArguments([f"start.from={run.id}", "train.total_timesteps=64"])
    assert typed.spec(partial(inherited, here)) == spec
    child = here.launch(spec).run
    assert (child.state, child.env_steps) == (State.SUCCEEDED, 64)
    with pytest.raises(NotFound):
        to_spec({"start": {"from": "nobody"}}, home=here.home)
    other = to_spec(asked | {"env": {"id": "Pendulum-v1"}}, home=here.home)
    assert (other.env.id, other.name, other.tuned) == ("Pendulum-v1", None, "ppo-Pendulum-v1")


CALLS_OFF = """
from rl_orch.rl.observe import Callback


class Enough(Callback):
    def on_update(self, metrics, step):
        if step == 64:
            self.stop("it is enough")
"""


@pytest.fixture
def called_off(
    here: Orchestrator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Run]:
    """A run that a callback ended at step 64."""
    (tmp_path / "its_enough.py").write_text(CALLS_OFF)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield trained(here, SHORT, KEPT, "train.observers=[its_enough:Enough]")
    sys.modules.pop("its_enough", None)


def test_a_run_that_a_callback_ended_is_not_sent_to_end_again(
    here: Orchestrator, called_off: Run
) -> None:
    assert (called_off.state, called_off.env_steps) == (State.SUCCEEDED, 64)
    for budget in (LONG, SHORT):
        with pytest.raises(Conflict, match="it is enough") as refused:
            here.requeue(called_off.id, overrides=[budget])
        assert "--approximate" in str(refused.value.hint)
        assert "rlctl launch --from" in str(refused.value.hint)
    assert here.get(called_off.id) == called_off


@pytest.mark.parametrize("budget", [LONG, SHORT])
def test_a_run_that_a_callback_ended_trains_on_where_that_is_accepted(
    here: Orchestrator, called_off: Run, budget: str
) -> None:
    more = here.resume(called_off.id, overrides=[budget], approximate=True).run
    steps = int(budget.partition("=")[2])
    assert (more.state, more.env_steps, more.resume) == (State.SUCCEEDED, steps, "approximate")
    exactness = here.show(more.id).exactness
    assert exactness is not None
    assert "it is enough" in str(exactness.reason)
    again = here.resume(more.id, overrides=["train.total_timesteps=448"]).run
    assert again.env_steps == 448


COUNTS = """
from rl_orch.rl.observe import Callback, Observer


class Third(Callback):
    evaluations = 0

    def on_evaluation(self, report, step):
        self.evaluations += 1
        if self.evaluations == 3:
            self.stop("the third evaluation")

    def state(self):
        return self.evaluations

    def load_state(self, state):
        self.evaluations = state


class Saves(Observer):
    def __init__(self, spec):
        pass

    def saved(self, snapshot, step):
        pass


class Updates(Saves):
    def updated(self, metrics, step):
        pass

    saved = Observer.saved
"""


@pytest.fixture
def counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module of observers, which can be named."""
    (tmp_path / "its_counts.py").write_text(COUNTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("its_counts", None)


@pytest.mark.usefixtures("counting")
@pytest.mark.parametrize(
    ("observer", "budget", "options", "exact"),
    [
        ("Third", 192, [], False),
        ("Third", 256, [], True),
        ("Third", 192, ["eval.every=80"], True),
        ("Saves", 192, [], True),
        ("Saves", 192, ["checkpoint.every=128"], False),
        ("Updates", 192, ["checkpoint.every=128"], True),
    ],
)
def test_an_end_that_observers_hear_of_and_that_was_not_due_stands_in_the_way(
    here: Orchestrator, observer: str, budget: int, options: list[str], exact: bool
) -> None:
    named = (f"train.observers=[its_counts:{observer}]", KEPT, *options)
    run = trained(here, f"train.total_timesteps={budget}", *named)
    assert run.env_steps == budget
    longer = "train.total_timesteps=640"
    if not exact:
        with pytest.raises(Conflict, match=f"its_counts:{observer}") as refused:
            here.requeue(run.id, overrides=[longer])
        assert "--approximate" in str(refused.value.hint)
        more = here.resume(run.id, overrides=[longer], approximate=True).run
        assert more.resume == "approximate"
        return
    whole = trained(here, longer, *named)
    more = here.resume(run.id, overrides=[longer]).run
    assert (more.env_steps, more.resume) == (whole.env_steps, "bitwise")
    ours, theirs = tensors(more), tensors(whole)
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize(("every", "exact"), [(128, False), (80, True), (64, True)])
def test_patience_counts_an_evaluation_that_was_due_whatever_the_number_of_steps(
    here: Orchestrator, every: int, exact: bool
) -> None:
    patient = ("gates.min_return=1e9", "gates.stability=false", "gates.patience=9")
    run = trained(here, SHORT, KEPT, *patient, f"eval.every={every}")
    if exact:
        assert here.requeue(run.id, overrides=[LONG]).runs[0].state is State.QUEUED
        return
    with pytest.raises(Conflict, match=r"gates\.patience"):
        here.requeue(run.id, overrides=[LONG])


@pytest.mark.usefixtures("counting")
def test_an_end_that_was_not_due_counts_where_the_run_was_killed_before_it_could_say_so(
    here: Orchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(worker, "train", _dying)
        run = trained(here, SHORT, KEPT, "train.observers=[its_counts:Third]")
    assert (run.state, run.env_steps) == (State.FAILED, 192)
    with pytest.raises(Conflict, match="its_counts:Third"):
        here.requeue(run.id, overrides=[LONG])
    assert here.resume(run.id).run.resume == "bitwise"


def _dying(*given: Any, **named: Any) -> NoReturn:
    train(*given, **named)
    raise MemoryError("killed")


HOPELESS = ("gates.min_return=1e9", "gates.stability=false", "gates.patience=2", "eval.every=64")


def test_a_run_that_its_gate_ended_is_not_sent_to_end_again(here: Orchestrator) -> None:
    run = trained(here, LONG, KEPT, *HOPELESS)
    assert (run.state, run.env_steps) == (State.REJECTED, 128)
    for options in ([LONG], [LONG, "gates.patience=1"]):
        with pytest.raises(BadInput) as refused:
            here.requeue(run.id, overrides=options)
        assert refused.value.path == "gates.patience"
        assert "gates.patience=null" in str(refused.value.hint)
    assert here.get(run.id) == run


@pytest.mark.parametrize(
    ("options", "approximate", "steps", "level"),
    [
        (["gates.patience=null"], False, 384, "bitwise"),
        (["gates.patience=3"], False, 192, "bitwise"),
        (["gates.min_return=-1e9"], False, 384, "bitwise"),
        ([], True, 256, "approximate"),
    ],
)
def test_a_run_that_its_gate_ended_trains_on_by_another_gate_or_where_that_is_accepted(
    here: Orchestrator, options: list[str], approximate: bool, steps: int, level: str
) -> None:
    run = trained(here, SHORT, KEPT, *HOPELESS)
    more = here.resume(run.id, overrides=[LONG, *options], approximate=approximate).run
    assert (more.env_steps, more.resume) == (steps, level)
