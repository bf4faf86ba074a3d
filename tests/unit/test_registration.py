"""One model a run: what is registered when a run is retried, resumed and extended."""

from pathlib import Path

import pytest
import sqlalchemy as sa

from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.ports import Task
from rl_orch.core.store.tables import ALIASES, MODELS, VERDICTS
from rl_orch.io.processes import pids
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import EventWriter
from rl_orch.records import EventKind, ModelVersion, Run, State
from rl_orch.testing import FakeRunner, a_report, a_spec, seal_checkpoint


def name(attempt: int) -> str:
    return f"step_{attempt * 100:012d}"


def crashes_at_first(directory: RunDir, task: Task) -> int:
    """A training whose every attempt finds a better checkpoint, and whose first one crashes."""
    if task.checkpoint is not None:
        directory.write_report("final", a_report([5.0] * 12, checkpoint=task.checkpoint))
        return 0
    best, step = name(task.attempt), task.attempt * 100
    with EventWriter(directory.events, run=directory.path.name, attempt=task.attempt) as writer:
        after = None if task.attempt == 1 else name(task.attempt - 1)
        writer.emit(EventKind.STATE, "started", step=step - 100, tags={"after": after})
        seal_checkpoint(directory, best)
        directory.write_report(best, a_report([float(step)] * 2, step=step, checkpoint=best))
        tags = {"best": True, "evaluated": True, "removed": []}
        writer.emit(EventKind.CHECKPOINT, "saved", best, step=step, tags=tags)
        if task.attempt > 1:
            tags = {"reason": "trained"}
            writer.emit(EventKind.STATE, "ended", "trained", step=step, tags=tags)
    return 0 if task.attempt > 1 else 1


@pytest.fixture
def home(tmp_path: Path) -> Orchestrator:
    return Orchestrator(tmp_path / "home", FakeRunner(crashes_at_first))


def models(home: Orchestrator, run: Run) -> list[str]:
    """The checkpoints whose policies are models of a run, and have files."""
    made = {path.name for path in RunDir.of(run).models.glob("step_*")}
    rows = [Path(model.model_path).name for model in home.registry.of_run(run.id)]
    assert made == set(rows)
    return rows


def crashed(home: Orchestrator) -> tuple[Run, ModelVersion]:
    """A run whose only attempt has crashed, and its model."""
    run = home.launch(a_spec("schedule.retries=0")).run
    assert (run.state, models(home, run)) == (State.FAILED, [name(1)])
    return run, home.registry.of_run(run.id)[0]


def test_an_attempt_that_is_tried_again_registers_nothing(home: Orchestrator) -> None:
    lease = pids.lease()
    run = home.create(a_spec("schedule.retries=1", "schedule.backoff_s=0"), lease=lease)
    supervisor = home.supervisor(run, lease, retries=True)
    while supervisor.run.retries == 0:
        supervisor.tick()
    assert (supervisor.run.state, models(home, run)) == (State.QUEUED, [])
    supervisor.waiting = False
    while supervisor.run.active:
        supervisor.tick()
    assert (supervisor.run.state, models(home, run)) == (State.SUCCEEDED, [name(2)])


def test_a_run_that_is_resumed_puts_its_model_in_the_place_of_the_one_of_before(
    home: Orchestrator,
) -> None:
    run, _ = crashed(home)
    assert home.resume(run.id).run.state is State.SUCCEEDED
    assert models(home, run) == [name(2)]


@pytest.mark.parametrize("by", ["alias", "verdict", "validated", "promise"])
def test_a_model_of_before_that_somebody_may_rely_on_stays(home: Orchestrator, by: str) -> None:
    run, model = crashed(home)
    named = {"env_id": model.env_id, "alias": "production", "model_id": model.id, "since": 0.0}
    said = {"model_id": model.id, "at": 0.0, "passed": False, "verdict": "{}"}
    statements: dict[str, sa.UpdateBase] = {
        "alias": ALIASES.insert().values(**named),
        "verdict": VERDICTS.insert().values(**said),
        "validated": sa.update(MODELS).values(validated=True),
    }
    if by == "promise":
        home.submit(a_spec(f"start.from={model.id}"))
    else:
        home.store.write(statements[by])
    home.resume(run.id)
    assert models(home, run) == [name(1), name(2)]
