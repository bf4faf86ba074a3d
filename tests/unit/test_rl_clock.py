"""What a run counts, from its algorithm to the screens."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rl_orch import plugins
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.ports import Task
from rl_orch.io.run.directory import RunDir
from rl_orch.records import Clock
from rl_orch.rl.algos.a2c import A2C
from rl_orch.rl.data.batch import Batch
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.snapshot import Resumption
from rl_orch.rl.train import Training
from rl_orch.spec.algorithms import Traits
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from rl_orch.testing import FakeRunner, a_report
from rl_orch.testing.algorithms import ENV_ID, Recorder
from rl_orch.worker.train import run_attempt
from tests.conftest import Ran


class CountsUpdates(A2C):
    """A2C whose budget is one of updates."""

    traits: Any = Traits(off_policy=False, actions=("Discrete",), clock="updates")
    updates = 0

    def update(self, batch: Batch) -> dict[str, float]:
        metrics = super().update(batch)
        self.updates += bool(metrics)
        return metrics

    def state(self) -> StateTree:
        return super().state() | StateTree({}, {"updates": self.updates})

    def load_state(self, state: StateTree) -> None:
        super().load_state(state)
        self.updates = state.document["updates"]


@pytest.fixture
def spec() -> Iterator[Spec]:
    with plugins.provided("algorithms", "counts", CountsUpdates):
        document = {"env": {"id": ENV_ID, "num_envs": 2}, "agent": {"algorithm": "counts"}}
        options = ["train.total_timesteps=6", "eval.every=3", "eval.episodes=2", "rollout.steps=8"]
        yield resolve(document, overrides=options)


def test_a_reading_says_its_unit() -> None:
    readings = Clock("env_steps", 1), Clock("env_steps", 1000), Clock("updates", 6)
    assert [str(reading) for reading in readings] == ["1 step", "1,000 steps", "6 updates"]


def test_budget_intervals_and_snapshots_count_what_the_algorithm_does(spec: Spec) -> None:
    recorder = Recorder()
    with closing(Training(spec, recorder)) as training:
        outcome = training.run()
        assert training.env_steps == 6 * 16
    assert outcome.clock == training.clock == Clock("updates", 6)
    assert [(s.step, s.unit) for s, _ in recorder.saved] == [(3, "updates"), (6, "updates")]
    with closing(Training(spec, Recorder())) as resumed:
        resumed.resume(Resumption(*recorder.saved[0]))
        assert resumed.clock == Clock("updates", 3)


def test_manifest_row_and_screens_name_the_unit(
    spec: Spec, tmp_path: Path, rlctl: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    def script(directory: RunDir, task: Task) -> int:
        if task.checkpoint is None:
            return run_attempt(directory, task.attempt)
        directory.write_report("final", a_report([1.0] * 12, checkpoint=task.checkpoint))
        return 0

    home = tmp_path / "home"
    run = Orchestrator(home, FakeRunner(script)).launch(spec).run
    assert (run.clock, run.env_steps, run.trained) == ("updates", 6, Clock("updates", 6))
    assert RunDir(Path(run.path)).manifest()["clock"] == "updates"
    monkeypatch.setenv("RLCTL_HOME", str(home))
    assert "6 updates (budget 6)" in rlctl("show", run.id).out
    assert "6 updates" in rlctl("ls").out
    assert '"clock": "updates"' in rlctl("show", run.id, "--json").out
