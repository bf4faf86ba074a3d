"""Observers hear what a training does, in order; and who is not there costs nothing."""

import math
import sys
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import pytest

from rl_orch import plugins
from rl_orch.errors import Diverged, RlctlError
from rl_orch.records import EvalReport
from rl_orch.rl.data.batch import Batch
from rl_orch.rl.finite_numbers import FiniteNumbers
from rl_orch.rl.named_observers import Observers
from rl_orch.rl.observe import Observer, Phase
from rl_orch.rl.snapshot import TrainingSnapshot
from rl_orch.rl.train import Training
from rl_orch.rl.training_recorder import NullRecorder
from rl_orch.spec.model import Spec
from rl_orch.testing import holds
from rl_orch.testing.observers import ObserverContract, _spec


class Diary(Observer):
    """Notes everything."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, int]] = []

    def before(self, phase: Phase, step: int) -> None:
        self.notes.append((phase, step))

    def collected(self, batch: Batch, step: int) -> None:
        self.notes.append((f"{len(batch)} rows", step))

    def updated(self, metrics: Mapping[str, float], step: int) -> None:
        self.notes.append(("learned" if metrics else "waited", step))

    def evaluated(self, report: EvalReport, step: int) -> None:
        self.notes.append((f"{len(report.returns)} episodes", step))

    def saved(self, snapshot: TrainingSnapshot, step: int) -> None:
        self.notes.append((f"snapshot {snapshot.step}", step))


class Plain:
    """Hears of updates alone, and is no subclass of anything."""

    def __init__(self) -> None:
        self.heard = 0

    def updated(self, metrics: Mapping[str, float], step: int) -> None:
        self.heard += 1


class TestDiary(ObserverContract):
    def make(self, spec: Spec) -> Observer:
        return Diary()


class Remembering(Plain):
    """Says what it remembers."""

    def state(self) -> int:
        return self.heard

    def load_state(self, state: int) -> None:
        self.heard = state


class Liar(Remembering):
    """Remembers, says nothing of it, and takes nothing back."""

    def state(self) -> int:
        return 0

    def load_state(self, state: int) -> None:
        assert state == 0


class Vain(Remembering):
    """Says what it remembers, and takes nothing back."""

    def load_state(self, state: int) -> None:
        assert state > 0


class TestRemembering(ObserverContract):
    def make(self, spec: Spec) -> Any:
        return Remembering()


@pytest.mark.parametrize("kind", [Liar, Vain])
def test_the_contract_finds_out_who_does_not_go_on_from_its_state(kind: Any) -> None:
    contract = type("Contract", (ObserverContract,), {"make": lambda self, spec: kind()})
    with pytest.raises(AssertionError):
        holds(contract)
    passing = type("Passing", (contract,), {"passing": ("heard",)})
    if kind is Liar:
        holds(passing)


class TestPlain(ObserverContract):
    def make(self, spec: Spec) -> Any:
        return Plain()


def trained(options: Mapping[str, Any], observers: list[Any] | None = None) -> None:
    with closing(Training(_spec("ppo").changed(options), NullRecorder(), observers=observers)) as t:
        t.run()


def test_an_observer_hears_every_phase_in_its_order() -> None:
    diary = Diary()
    trained({"eval.every": 64, "train.total_timesteps": 64}, [diary])
    once = ["collect", "32 rows", "update", "learned"]
    assert diary.notes == [
        *zip(once, (0, 32, 32, 32), strict=True),
        *zip(once, (32, 64, 64, 64), strict=True),
        ("evaluate", 64),
        ("2 episodes", 64),
        ("save", 64),
        ("snapshot 64", 64),
    ]


def test_observers_are_called_in_the_order_of_the_spec() -> None:
    calls: list[str] = []

    def noting(name: str) -> Any:
        class Noting(Observer):
            def collected(self, batch: Batch, step: int) -> None:
                calls.append(name)

        return lambda spec: Noting()

    provided = plugins.provided
    with provided("observers", "b", noting("b")), provided("observers", "a", noting("a")):
        trained({"train.observers": ("b", "a"), "train.total_timesteps": 64})
    assert calls == ["b", "a"] * 2


def test_a_failing_observer_ends_the_run_by_its_name() -> None:
    class Broken(Observer):
        def updated(self, metrics: Mapping[str, float], step: int) -> None:
            raise KeyError("nothing there")

    provided = plugins.provided("observers", "mine", lambda spec: Broken())
    failing = pytest.raises(RlctlError, match=r"observer 'mine' failed in 'updated'")
    with provided, failing as raised:
        trained({"train.observers": ("mine",)})
    assert raised.value.path == "train.observers"


@pytest.mark.parametrize("name", ["losses/value_loss", "mine/td_error", "entropy"])
def test_a_metric_of_an_update_that_is_not_finite_ends_a_run_whatever_its_name(name: str) -> None:
    checks = FiniteNumbers(16)
    checks.updated({name: 1.0, "charts/clip_range": math.inf}, 32)
    with pytest.raises(Diverged, match=f"{name} became nan in the update at step 32"):
        checks.updated({"losses/policy_loss": 0.0, name: math.nan}, 32)


def test_who_is_not_there_is_not_called() -> None:
    idle = Observers([Observer.__new__(type("Idle", (Observer,), {}))])
    assert not any((idle.before, idle.collected, idle.updated, idle.evaluated, idle.saved))
    calls: list[str] = []

    def count(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.endswith(("observe.py", "observers.py")):
            calls.append(frame.f_code.co_name)

    with closing(Training(_spec("ppo"), NullRecorder(), observers=())) as training:
        sys.setprofile(count)
        try:
            training.run()
        finally:
            sys.setprofile(None)
    assert calls == []
