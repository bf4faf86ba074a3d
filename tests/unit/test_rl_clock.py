"""What a run counts, from its algorithm to the screens."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rl_orch import plugins
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.ports import Task
from rl_orch.io.checkpoints import catalog, checkpoint_files
from rl_orch.io.run.directory import RunDir
from rl_orch.records import Clock
from rl_orch.rl.algos.a2c import A2C
from rl_orch.rl.algos.dqn import DQN
from rl_orch.rl.data.batch import Batch
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.snapshot import Resumption
from rl_orch.rl.train import Training
from rl_orch.rl.training_recorder import NullRecorder
from rl_orch.runners.inline import InlineRunner
from rl_orch.spec import algorithms
from rl_orch.spec.algorithms import Traits
from rl_orch.spec.checks import pairing
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from rl_orch.testing import FakeRunner, a_report
from rl_orch.testing.algorithms import ENV_ID, Recorder
from rl_orch.worker.attempt.commands import PendingCommands
from rl_orch.worker.attempt.live_changes import LiveChanges
from rl_orch.worker.train import run_attempt
from tests.conftest import Ran
from tests.integration.conftest import until
from tests.learning.recorder import MemoryOutlet
from tests.waiting import PATIENCE_S


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


COUNTING = replace(algorithms.DQN, clock="updates")


class CountsReplayed(DQN):
    traits = COUNTING


def rates(algorithm: type, name: str, *options: str) -> list[float]:
    """The learning rates of a training for 8 updates, which falls to nothing by then."""
    with plugins.provided("algorithms", name, algorithm):
        document = {"env": {"id": ENV_ID, "num_envs": 2}, "agent": {"algorithm": name}}
        budget = ["train.total_timesteps=8", "train.lr=0.8", "train.lr_schedule=linear"]
        every = ["rollout.steps=8", "train.report_every=1", "eval.every=8", "eval.episodes=1"]
        spec = resolve(document, overrides=[*budget, *every, *options])
        with closing(Training(spec, NullRecorder())) as training:
            found = []
            while training.step < 8:
                found += (
                    [rate] if (rate := training.train_step().get("charts/learning_rate")) else []
                )
    return found


def test_schedules_follow_what_the_algorithm_counts() -> None:
    falling = [0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]
    assert rates(CountsUpdates, "counts") == pytest.approx(falling)
    late = ("train.learning_starts=40", "train.batch_size=8", "buffer.size=200")
    replayed = rates(CountsReplayed, "replayed", *late, "train.engine=torch")
    assert replayed == pytest.approx(falling[1:])


def test_a_budget_of_updates_may_be_smaller_than_the_steps_before_the_first(spec: Spec) -> None:
    late = spec.changed({"train.learning_starts": spec.train.total_timesteps})
    paths = [[each.path for each in pairing(late, traits)] for traits in (algorithms.DQN, COUNTING)]
    assert paths == [["train.learning_starts"], []]


@pytest.fixture
def warming_up() -> Iterator[Spec]:
    """A training that counts updates, of which there are none in its first 400 steps."""
    with plugins.provided("algorithms", "replayed", CountsReplayed):
        document = {"env": {"id": ENV_ID, "num_envs": 2}, "agent": {"algorithm": "replayed"}}
        late = ["train.learning_starts=400", "train.batch_size=8", "buffer.size=1000"]
        rest = ["train.total_timesteps=20", "rollout.steps=4", "train.engine=torch"]
        yield resolve(document, overrides=[*late, *rest])


def test_what_is_saved_before_the_first_update_is_all_that_there_is(warming_up: Spec) -> None:
    recorder = MemoryOutlet([None, "checkpoint", None, None, "checkpoint", "checkpoint", "stop"])
    with closing(Training(warming_up, recorder)) as training:
        assert training.run().reason == "stopped"
        assert (training.step, training.env_steps) == (0, 48)
        expected = training.snapshot()
    taken = [s.document["trainer_state"]["collector"]["env_steps"] for s, _ in recorder.saved]
    assert taken == [8, 32, 40, 48]
    last, report = recorder.saved[-1]
    with closing(Training(warming_up, MemoryOutlet(["stop"]))) as resumed:
        resumed.resume(Resumption(last, report, recorder.read))
        resumed.run()
        assert resumed.snapshot().document == expected.document


def test_a_run_that_is_stopped_before_its_first_update_goes_on_from_there(
    warming_up: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = RunDir(tmp_path / "run")
    directory.create(warming_up, {"run_id": "run"})
    taken = []
    for attempt in (1, 2):
        orders = iter([None, "checkpoint", None, "stop"])
        monkeypatch.setattr(PendingCommands, "next", lambda self, orders=orders: next(orders))
        assert run_attempt(directory, attempt) == 0
        (name,) = catalog.all_names(directory.checkpoints)
        catalog.verify(directory.checkpoints / name)
        document = checkpoint_files.load(directory.checkpoints / name).document
        taken.append(document["trainer_state"]["collector"]["env_steps"])
    assert (name, taken) == ("step_000000000000", [24, 48])


def test_no_snapshot_takes_the_place_of_one_with_a_report_where_the_clock_stands_still(
    warming_up: Spec,
) -> None:
    recorder = MemoryOutlet(["checkpoint"])
    with closing(Training(warming_up, recorder)) as training:
        training.eval_step()
        training.train_step()
        training._save(None)
    assert [(s.step, report is not None) for s, report in recorder.saved] == [(0, True)]


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


def test_a_gate_reads_environment_steps_whatever_the_run_counts(spec: Spec, tmp_path: Path) -> None:
    gate = {"gates.min_episodes": 1, "gates.stability": False, "eval.final_episodes": 10}
    home = Orchestrator(tmp_path / "home", InlineRunner())
    result = home.launch(spec.changed(gate | {"env.max_episode_steps": 20}))
    assert result.report is not None
    assert result.run.model_id is not None
    assert result.report.env_steps == 16 * result.report.step
    assert result.verdict is not None
    assert [(check.rule, check.passed) for check in result.verdict.checks] == [
        ("min_episodes", True)
    ]
    model = home.models.get(result.run.model_id)
    assert model.total_timesteps == result.report.env_steps
    assert home.models.validate(model.id).passed


def test_changes_count_from_an_environment_step_on_while_the_clock_stands_still(
    spec: Spec, tmp_path: Path
) -> None:
    directory = RunDir(tmp_path / "run")
    directory.create(spec, {"run_id": "run", "changes": []})
    first = LiveChanges(directory, 1, 0, 0)
    assert first.due(0, 0) is None
    asker = threading.Thread(target=first.ask, args=(["eval.every=2"],))
    asker.start()
    until(directory.changes)
    assert first.due(0, 32) is not None
    asker.join(PATIENCE_S)
    for begins, due in ((0, [None, True]), (32, [True]), (48, [None])):
        again = LiveChanges(directory, 2, 0, begins)
        assert again.spec.eval.every == (2 if begins > 32 else 3)
        told = [again.due(0, env_steps) and True for env_steps in (16, 32)[-len(due) :]]
        assert told == due
