"""Who may go on with a run, from where, and how many runs go on at once."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.ports import Task
from rl_orch.core.runs.foreground import carry_out, room
from rl_orch.core.runs.supervisor import Supervisor
from rl_orch.errors import BadInput, Conflict, NotFound, RunLocked
from rl_orch.io.processes import pids
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import EventWriter
from rl_orch.records import Event, EventKind, Run, State
from rl_orch.testing import FakeRunner, Script, a_report, a_spec, trains_to


def orchestrator_with(home: Path, script: Script, *, at_once: bool = True) -> Orchestrator:
    """An orchestrator whose roots are that script."""
    return Orchestrator(home, FakeRunner(script, at_once=at_once))


def dies_first(succeeds: Script) -> Script:
    """A root that is killed at its first attempt after it has told of 50 steps."""

    def script(directory: RunDir, task: Task) -> int:
        if task.attempt > 1:
            return succeeds(directory, task)
        with EventWriter(directory.events, run=directory.path.name, attempt=1) as writer:
            writer.emit(EventKind.STATE, "started", step=0, tags={"after": None})
            writer.emit(EventKind.LOG, "charts/SPS", 100.0, step=50)
        return -9

    return script


def test_a_failed_run_is_resumed_by_a_further_attempt(tmp_path: Path) -> None:
    made = orchestrator_with(tmp_path, dies_first(trains_to([1.0] * 10)))
    first = made.launch(a_spec())
    assert (first.run.state, first.run.env_steps) == (State.FAILED, 50)
    result = made.resume(first.run.id)
    assert result.succeeded
    assert (result.run.attempt, result.run.env_steps) == (2, 100)
    assert [attempt.number for attempt in made.store.attempts(first.run.id)] == [1, 2]
    assert made.store.lease_of(first.run.id) is None


@pytest.mark.parametrize(
    ("returns", "state"), [([500.0] * 10, State.SUCCEEDED), ([1.0] * 10, State.REJECTED)]
)
def test_a_final_run_is_not_resumed(tmp_path: Path, returns: Sequence[float], state: State) -> None:
    made = orchestrator_with(tmp_path, trains_to(returns))
    run = made.launch(a_spec("gates.min_return=400")).run
    assert run.state is state
    with pytest.raises(Conflict, match=f"is {state}, which is final"):
        made.resume(run.id)
    assert made.store.lease_of(run.id) is None


def test_of_a_final_run_whose_directory_is_gone_that_is_said(tmp_path: Path) -> None:
    made = orchestrator_with(tmp_path, trains_to([1.0] * 10))
    run = made.launch(a_spec()).run
    shutil.rmtree(run.path)
    with pytest.raises(NotFound, match=r"directory of run .* is gone") as refused:
        made.resume(run.id)
    assert "--extend" not in str(refused.value.hint)


def test_a_run_that_a_living_process_has_is_refused_with_its_pid(tmp_path: Path) -> None:
    made = orchestrator_with(tmp_path, dies_first(trains_to([1.0])))
    run = made.launch(a_spec()).run
    lease = f"{pids.identity(os.getpid())}/other"
    assert made.store.take_lease(run.id, held_by=None, lease=lease)
    with pytest.raises(RunLocked, match=f"carried out by process {os.getpid()} now"):
        made.resume(run.id)
    assert made.store.get(run.id).state is State.FAILED


def test_a_run_whose_supervisor_is_dead_is_there_to_be_taken(tmp_path: Path) -> None:
    made = orchestrator_with(tmp_path, dies_first(trains_to([1.0] * 10)))
    run = made.launch(a_spec()).run
    assert made.store.take_lease(run.id, held_by=None, lease="999999999:0/dead")
    assert made.resume(run.id).succeeded


def test_an_old_final_report_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    trained = trains_to([500.0] * 10)

    def script(directory: RunDir, task: Task) -> int:
        if task.checkpoint is not None:
            return 1
        directory.write_report("final", a_report([500.0] * 10, checkpoint="step_000000000100"))
        return trained(directory, task)

    run = orchestrator_with(tmp_path, script).launch(a_spec()).run
    assert run.state is State.FAILED


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("train.gamma=0.5", "train.gamma is 0.99 and cannot become 0.5; a resumed run may only"),
        ("env.seed=7", "env.seed is 42 and cannot become 7"),
        ("train.observers=[m:C]", r"train.observers is \(\) and cannot become"),
        ("train.total_timesteps=49", "run .* is at step 50 already"),
        ("train.lr=0", "train.lr"),
        ("nonsense=1", "nonsense"),
    ],
)
def test_options_that_would_make_it_another_run_cannot_change(
    tmp_path: Path, override: str, sentence: str
) -> None:
    made = orchestrator_with(tmp_path, dies_first(trains_to([1.0] * 10)))
    run = made.launch(a_spec()).run
    before = RunDir(Path(run.path)).spec()
    with pytest.raises(BadInput, match=sentence):
        made.resume(run.id, overrides=[override])
    assert RunDir(Path(run.path)).spec() == before
    assert made.get(run.id).state is State.FAILED
    assert made.store.lease_of(run.id) is None


def test_what_may_change_is_noted_in_the_manifest_and_the_spec(tmp_path: Path) -> None:
    made = orchestrator_with(tmp_path, dies_first(trains_to([1.0] * 10)))
    run = made.launch(a_spec()).run
    result = made.resume(run.id, overrides=["train.total_timesteps=5e5", "eval.episodes=7"])
    directory = RunDir(Path(run.path))
    assert result.run.total_timesteps == directory.spec().train.total_timesteps == 500_000
    (note,) = directory.manifest()["changes"]
    assert note["attempt"] == 2
    assert note["set"]["eval.episodes"] == [10, 7]
    assert result.run.config_hash == directory.spec().config_hash != run.config_hash


BEGUN = (State.STARTING, State.RUNNING, State.EVALUATING)


class Crowd:
    """Watches how many runs are under way at once, and now and then lets roots finish."""

    def __init__(self, runner: FakeRunner) -> None:
        self.runner = runner
        self.most = 0
        self.looks = 0
        self.states: dict[str, State] = {}

    def watch(self, run: Run, _events: Sequence[Event]) -> None:
        self.states[run.id] = run.state
        self.looks += 1
        begun = [s for s in self.states.values() if s in BEGUN]
        self.most = max(self.most, len(begun))
        if self.looks % 7 == 0:
            self.runner.finish()


def supervisors(made: Orchestrator, runner: FakeRunner, count: int) -> list[Supervisor]:
    """Supervisors of queued runs."""
    found = []
    for seed in range(count):
        run = made.create(a_spec(f"env.seed={seed}"), lease="mine")
        found.append(Supervisor(made.store, made.registry, runner, run, "mine"))
    return found


def test_no_more_runs_go_on_at_once_than_there_is_room_for(tmp_path: Path) -> None:
    runner = FakeRunner(trains_to([1.0] * 10), at_once=False)
    made = Orchestrator(tmp_path, runner)
    crowd, many = Crowd(runner), supervisors(made, runner, 4)
    carry_out(many, slots=2, watch=crowd.watch)
    assert crowd.most == 2
    assert {supervisor.run.state for supervisor in many} == {State.SUCCEEDED}


def test_a_request_to_stop_also_ends_runs_that_wait(tmp_path: Path) -> None:
    runner = FakeRunner(trains_to([1.0] * 10), at_once=False)
    made = Orchestrator(tmp_path, runner)
    many = supervisors(made, runner, 3)
    asked = iter([0, 0, 1, 2])
    carry_out(many, slots=1, stop_requests=lambda: next(asked, 2))
    assert [supervisor.run.state for supervisor in many] == [State.STOPPED] * 3
    assert [supervisor.run.attempt for supervisor in many] == [1, 0, 0]


def test_a_waiting_run_can_be_stopped_from_elsewhere(tmp_path: Path) -> None:
    runner = FakeRunner(trains_to([1.0] * 10), at_once=False)
    made = Orchestrator(tmp_path, runner)
    many = supervisors(made, runner, 2)
    many[1].directory.request_stop()

    def watch(_run: Run, _events: Sequence[Event]) -> None:
        if not many[1].run.active:
            runner.finish()

    carry_out(many, slots=1, watch=watch)
    assert [supervisor.run.state for supervisor in many] == [State.SUCCEEDED, State.STOPPED]


def test_one_run_of_a_group_that_somebody_takes_does_not_end_the_others(tmp_path: Path) -> None:
    runner = FakeRunner(trains_to([1.0] * 10), at_once=False)
    made = Orchestrator(tmp_path, runner)
    many = supervisors(made, runner, 2)
    made.store.take_lease(many[0].run.id, held_by="mine", lease="theirs")

    def watch(_run: Run, _events: Sequence[Event]) -> None:
        runner.finish()

    carry_out(many, slots=2, watch=watch)
    assert many[1].run.state is State.SUCCEEDED


def test_there_is_always_room_for_one(tmp_path: Path) -> None:
    assert room(threads=10_000) == 1
    assert room(threads=1) == len(os.sched_getaffinity(0))
