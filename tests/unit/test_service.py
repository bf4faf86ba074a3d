"""The service, a tick at a time, with roots that are functions and a timer that is told."""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa

from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.ports import Exit, Task
from rl_orch.core.queue.scheduler import Capacity
from rl_orch.core.runs.progress import SUSPECT
from rl_orch.core.runs.supervisor import APPEARS_WITHIN_S
from rl_orch.core.runs.tracking import Pumps
from rl_orch.core.service import FOREIGN_S, RunService, _sweep_leftovers
from rl_orch.core.store.tables import RUNS
from rl_orch.errors import BadInput, Conflict, NotFound, Unavailable
from rl_orch.io.processes import pids
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import EventWriter
from rl_orch.records import EventKind, Run, State
from rl_orch.testing import FakeClock, FakeRunner, Script, a_spec, trains_to
from tests.unit.test_io_trees import holder

GOOD = trains_to([500.0] * 10)
DEAD = f"{pids.host()}/999999999:1/token"
"""A lease of a process that is long gone."""

FOREIGN_TICKS = int(FOREIGN_S) + 8


class Machine:
    """A home, its orchestrator, and services that come and go."""

    def __init__(self, home: Path, script: Script = GOOD, *, cpus: int = 2) -> None:
        self.clock = FakeClock()
        self.runner = FakeRunner(script, at_once=False)
        self.verbs = Orchestrator(home, self.runner, resident=True)
        self.capacity = Capacity(cpus=cpus, memory_mb=4096)
        self.verbs.capacity = self.capacity
        self.service = self.another()

    def another(self) -> RunService:
        """A service of the same home, under a lease of its own."""
        made = RunService(self.verbs, self.capacity, "http://there", timer=self.clock)
        made.beat()
        return made

    def tick(self, times: int = 1) -> None:
        """Let a second pass, and tick, so many times."""
        for _ in range(times):
            self.clock.advance(1.0)
            self.service.tick()

    def go_on(self) -> None:
        """Let every root end, and tick."""
        self.runner.finish()
        self.tick()

    def submit(self, *overrides: str) -> Run:
        """A queued run."""
        return self.verbs.submit(a_spec(*overrides)).runs[0]

    def state(self, run: Run) -> State:
        """The run's state."""
        return self.verbs.store.get(run.id).state

    def states(self, runs: Sequence[Run]) -> list[State]:
        """The states of some runs."""
        return [self.state(run) for run in runs]


def crashes(times: int) -> Script:
    """A root that dies without a word so many times, and then trains."""
    left = [times]

    def script(directory: RunDir, task: Task) -> int:
        if task.checkpoint is None and left[0] > 0:
            left[0] -= 1
            with EventWriter(directory.events, run="r", attempt=task.attempt) as writer:
                writer.emit(EventKind.STATE, "started", step=0, tags={"after": None})
            return -9
        return GOOD(directory, task)

    return script


def fails(code: int, **tags: object) -> Script:
    """A root that says why it failed."""

    def script(directory: RunDir, task: Task) -> int:
        with EventWriter(directory.events, run="r", attempt=task.attempt) as writer:
            writer.emit(EventKind.STATE, "started", step=0, tags={"after": None})
            reason: dict[str, object] = {"reason": "it broke"}
            writer.emit(EventKind.STATE, "ended", "failed", step=0, tags=reason | tags)
        return code

    return script


def until(condition: Callable[[], bool], act: Callable[[], None], times: int = 60) -> None:
    """Act until the condition holds."""
    for _ in range(times):
        if condition():
            return
        act()
    raise AssertionError("it did not come to that")


def test_a_queued_run_is_started_carried_out_and_let_go_of(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    run = machine.submit("gates.min_return=400")
    assert machine.state(run) is State.QUEUED
    machine.tick()
    assert machine.state(run) is State.STARTING
    machine.runner.finish()
    machine.tick()
    assert machine.state(run) is State.EVALUATING
    machine.runner.finish()
    machine.tick()
    ended = machine.verbs.store.get(run.id)
    assert (ended.state, ended.verdict) == (State.SUCCEEDED, "passed")
    assert machine.verbs.store.lease_of(run.id) is None


def test_a_run_is_let_go_of_although_its_trackers_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path)
    run = machine.submit("gates.min_return=400")
    machine.tick()

    def fails(*_: object) -> None:
        raise RuntimeError("no pump")

    monkeypatch.setattr(Pumps, "follow", fails)
    until(lambda: machine.state(run) is State.SUCCEEDED, machine.go_on)
    assert machine.verbs.store.lease_of(run.id) is None
    assert machine.service.status()["cpus"]["used"] == 0


def test_no_more_runs_are_at_work_than_there_are_cores_for(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cpus=3)
    runs = [machine.submit("resources.cpus=2" if n == 0 else "resources.cpus=1") for n in range(4)]
    machine.tick(3)
    assert machine.states(runs) == [State.STARTING, State.STARTING, State.QUEUED, State.QUEUED]
    machine.runner.finish()
    machine.tick()
    machine.runner.finish()
    machine.tick(2)
    assert machine.states(runs[:2]) == [State.SUCCEEDED] * 2
    assert machine.states(runs[2:]) == [State.STARTING] * 2


def test_a_waiting_run_says_all_that_it_waits_for(tmp_path: Path) -> None:
    """Here, in a listing and when it is shown."""
    machine = Machine(tmp_path)
    first = machine.submit("name=first", "resources.cpus=2")
    second = machine.submit("name=second")
    group = machine.verbs.submit(a_spec("seeds=2")).group
    assert group is not None
    after = machine.submit("name=after", f"schedule.after=[{first.id},{group.id}]")
    machine.tick()
    reasons = {run.id: run.reason for run in machine.verbs.ls().runs}
    assert reasons[second.id] == (
        "second in the queue; 1 core short: it asks for 1, and the runs at work and before it "
        "leave 0 of 2; when it will start cannot be told yet"
    )
    assert reasons[after.id] == (
        f"waits for run {first.id}, which is starting; "
        f"waits for the 2 runs of group {group.id}: 2 queued"
    )
    for run in (second, after):
        assert machine.verbs.get(run.id).reason == reasons[run.id]
        assert machine.verbs.show(run.id).run.reason == reasons[run.id]
    machine.service._leave()
    machine.verbs.services.leave(machine.service.id)
    assert "no service is up" in machine.verbs.get(after.id).reason
    assert "no service is up" not in machine.verbs.get(first.id).reason


def test_what_others_carry_out_in_the_foreground_waits_for_them(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    run = machine.submit()
    lease = pids.lease()
    assert machine.verbs.store.take_lease(run.id, held_by=None, lease=lease)
    assert f"process {os.getpid()} carries it out" in machine.verbs.get(run.id).reason
    pids.let_go(lease)


def test_runs_that_others_carry_out_on_this_machine_take_their_room(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cpus=2)
    theirs, ours = machine.submit(), machine.submit("resources.cpus=2")
    lease = pids.lease()  # A foreground launch of this very process.
    assert machine.verbs.store.take_lease(theirs.id, held_by=None, lease=lease)
    machine.verbs.store.save(theirs.model_copy(update={"state": State.RUNNING}), lease=lease)
    machine.tick(2)
    assert machine.state(ours) is State.QUEUED
    machine.verbs.store.save(theirs.model_copy(update={"state": State.STOPPED}), lease=lease)
    machine.tick(2)
    assert machine.state(ours) is State.STARTING


def test_a_run_that_can_never_fit_is_refused_at_once_with_the_reason(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cpus=1)
    with pytest.raises(BadInput, match=r"2 .*1 core"):
        machine.submit("resources.cpus=2")
    with pytest.raises(BadInput, match="GPU"):
        machine.submit("resources.gpus=1")
    assert machine.verbs.ls().runs == ()
    assert not list((tmp_path / "runs").glob("*"))


def test_a_crashed_run_is_retried_with_longer_and_longer_waits(tmp_path: Path) -> None:
    machine = Machine(tmp_path, crashes(2))
    run = machine.submit("schedule.backoff_s=8", "schedule.retries=2")
    machine.tick()
    machine.runner.finish()
    machine.tick()
    queued = machine.verbs.store.get(run.id)
    assert queued.state is State.QUEUED
    assert "SIGKILL" in queued.reason
    assert "retry 1 of 2 in 8 s" in queued.reason
    machine.tick(7)
    assert machine.state(run) is State.QUEUED
    machine.tick(2)
    assert machine.state(run) is State.STARTING
    machine.runner.finish()
    machine.tick()
    assert "retry 2 of 2 in 16 s" in machine.verbs.store.get(run.id).reason
    until(lambda: machine.state(run) is State.STARTING, machine.tick)
    machine.runner.finish()
    machine.tick()
    machine.runner.finish()
    machine.tick()
    ended = machine.verbs.store.get(run.id)
    assert (ended.state, ended.attempt, ended.retries) == (State.SUCCEEDED, 3, 2)


def power_cut(machine: Machine) -> None:
    """End the service and every root at once; then a service is started that has seen neither."""
    for path in (machine.verbs.home / "runs").iterdir():
        machine.runner.sweep(path, through=1_000)
    machine.runner = FakeRunner(machine.runner.script, at_once=False)
    machine.verbs = Orchestrator(machine.verbs.home, machine.runner, resident=True)
    with machine.verbs.store.writing() as connection:
        connection.execute(sa.update(RUNS).where(RUNS.c.lease.is_not(None)).values(lease=DEAD))
    machine.service = machine.another()


def at_work(machine: Machine, run: Run, attempt: int) -> None:
    """Let that attempt begin."""

    def begun() -> bool:
        seen = machine.verbs.store.get(run.id)
        return (seen.state, seen.attempt) == (State.STARTING, attempt)

    until(begun, machine.tick, times=2_000)


def saved_at(run: Run, attempt: int, step: int) -> None:
    """Let an attempt tell of a checkpoint."""
    with EventWriter(RunDir.of(run).events, run=run.id, attempt=attempt) as writer:
        writer.emit(EventKind.STATE, "started", step=0, tags={"after": None})
        name = f"step_{step:012}"
        writer.emit(EventKind.CHECKPOINT, "saved", name, step=step, tags={"best": True})


def test_power_cuts_spend_no_retry_however_many_as_long_as_the_run_gets_further(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    run = machine.submit("schedule.retries=0")
    for attempt in range(1, 2 * SUSPECT):
        at_work(machine, run, attempt)
        saved_at(run, attempt, attempt)
        power_cut(machine)
        machine.tick()
        seen = machine.verbs.store.get(run.id)
        assert (seen.state, seen.retries) == (State.QUEUED, 0), seen.reason
        assert "no retry is spent" in seen.reason
    until(lambda: machine.state(run) is State.SUCCEEDED, machine.go_on)


def test_a_run_that_may_itself_bring_all_down_is_ended_in_the_end(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    run = machine.submit("schedule.retries=2", "schedule.backoff_s=1")
    for attempt in range(1, SUSPECT + 3):
        at_work(machine, run, attempt)
        power_cut(machine)
        machine.tick()
        seen = machine.verbs.store.get(run.id)
        assert seen.retries == min(2, max(0, attempt - SUSPECT + 1))
    assert (seen.state, seen.attempt, seen.retries) == (State.LOST, SUSPECT + 2, 2)
    assert "retried 2 times" in seen.reason


def test_a_root_that_crashes_under_a_service_that_has_adopted_it_spends_a_retry(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    run = machine.submit("schedule.backoff_s=0")
    at_work(machine, run, 1)
    handle = str(machine.verbs.store.attempts(run.id)[0].handle)
    with machine.verbs.store.writing() as connection:
        connection.execute(sa.update(RUNS).values(lease=DEAD))
    machine.service = machine.another()
    machine.tick()
    machine.runner._exits[handle] = Exit(None)
    machine.tick()
    seen = machine.verbs.store.get(run.id)
    assert seen.retries == 1
    assert "its process vanished" in seen.reason


def test_a_power_cut_during_the_final_evaluation_spends_no_retry(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    run = machine.submit("gates.min_return=400", "schedule.retries=0")
    at_work(machine, run, 1)
    machine.go_on()
    assert machine.state(run) is State.EVALUATING
    power_cut(machine)
    machine.tick()
    seen = machine.verbs.store.get(run.id)
    assert (seen.state, seen.retries) == (State.QUEUED, 0), seen.reason
    until(lambda: machine.state(run) is State.SUCCEEDED, machine.go_on)


def test_a_run_whose_retries_are_spent_fails_and_says_so(tmp_path: Path) -> None:
    machine = Machine(tmp_path, crashes(9))
    run = machine.submit("schedule.backoff_s=0", "schedule.retries=2")
    until(
        lambda: machine.state(run) not in (State.QUEUED, State.STARTING, State.RUNNING),
        machine.go_on,
    )
    ended = machine.verbs.store.get(run.id)
    assert ended.state is State.FAILED
    assert "retried 2 times" in ended.reason
    assert ended.attempt == 3


@pytest.mark.parametrize(
    ("script", "attempts"),
    [(fails(2), 1), (fails(1, final=True), 1), (fails(1), 2)],
    ids=["bad input", "diverged", "a surprise"],
)
def test_what_would_fail_again_is_not_retried(
    tmp_path: Path, script: Script, attempts: int
) -> None:
    machine = Machine(tmp_path, script)
    run = machine.submit("schedule.backoff_s=0", "schedule.retries=1")
    for _ in range(6):
        machine.runner.finish()
        machine.tick()
    ended = machine.verbs.store.get(run.id)
    assert (ended.state, ended.attempt) == (State.FAILED, attempts)


def test_a_run_that_failed_twice_alike_is_not_tried_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path, fails(1, repeats=True))
    run = machine.submit("schedule.backoff_s=0", "schedule.retries=3")
    until(lambda: not machine.verbs.store.get(run.id).active, machine.go_on)
    ended = machine.verbs.store.get(run.id)
    assert (ended.state, ended.attempt, ended.retries) == (State.FAILED, 2, 1)
    assert ended.reason == "it broke; failed twice alike at step 0, not tried again"


def test_a_run_at_work_whose_service_died_is_taken_over_with_its_living_process(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    run = machine.submit()
    machine.tick()
    _die(machine, run)
    machine.service = machine.another()
    machine.tick()
    assert machine.verbs.store.lease_of(run.id) == machine.service.id
    machine.runner.finish()
    machine.tick()
    machine.runner.finish()
    machine.tick()
    assert machine.state(run) is State.SUCCEEDED
    assert [task.attempt for task in machine.runner.started] == [1, 1]


def test_a_service_that_died_between_the_row_and_the_start_leaves_a_run_that_starts_once(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    run = machine.submit()
    starting = run.model_copy(update={"state": State.STARTING, "attempt": 1})
    assert machine.verbs.store.take_lease(run.id, held_by=None, lease=DEAD)
    machine.verbs.store.save(starting, lease=DEAD)
    machine.tick()
    assert machine.runner.started == []
    machine.clock.advance(APPEARS_WITHIN_S)
    machine.tick(2)
    assert [task.attempt for task in machine.runner.started] == [1]
    machine.runner.finish()
    machine.tick()
    machine.runner.finish()
    machine.tick()
    assert machine.state(run) is State.SUCCEEDED


def test_a_final_evaluation_that_never_began_is_begun(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    run = machine.submit()
    machine.tick()
    machine.runner.finish()
    machine.tick()
    assert machine.state(run) is State.EVALUATING
    _die(machine, run)
    attempt = machine.verbs.store.attempts(run.id)[0]
    held = machine.verbs.store.take_lease(run.id, held_by=DEAD, lease="me")
    machine.verbs.store.put_attempt(attempt.model_copy(update={"handle": None}), lease="me")
    assert held
    assert machine.verbs.store.take_lease(run.id, held_by="me", lease=DEAD)
    machine.runner.sweep(Path(run.path), through=1)
    machine.service = machine.another()
    until(lambda: len(machine.runner.started) == 3, machine.tick)
    machine.runner.finish()
    machine.tick()
    assert machine.state(run) is State.SUCCEEDED


def test_a_run_whose_service_is_down_says_so_and_ends_once_its_evaluation_has(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    run = machine.submit()
    machine.tick()
    dead = machine.verbs.services.list()[0].model_copy(update={"id": DEAD})
    machine.verbs.services._joined[DEAD] = dead
    machine.verbs.services.join(dead)
    looker = Orchestrator(tmp_path, machine.runner)
    assert looker.get(run.id).reason == machine.verbs.store.get(run.id).reason
    _die(machine, run)
    assert "nobody watches over it" in looker.get(run.id).reason
    assert looker.store.lease_of(run.id) == DEAD
    assert machine.verbs.store.take_lease(run.id, held_by=DEAD, lease=machine.service.id)
    machine.go_on()
    assert machine.state(run) is State.EVALUATING
    _die(machine, run)
    assert [seen.state for seen in looker.ls().runs] == [State.EVALUATING]
    machine.runner.finish()
    assert [seen.state for seen in looker.ls().runs] == [State.SUCCEEDED]
    assert looker.get(run.id).reason == "trained; no gate was set"


def test_a_queued_run_of_a_dead_service_is_queued_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    run = machine.submit()
    assert machine.verbs.store.take_lease(run.id, held_by=None, lease=DEAD)
    machine.tick(2)
    assert machine.state(run) is State.STARTING


def test_two_services_share_the_runs_and_none_has_two(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cpus=3)
    runs = [machine.submit() for _ in range(6)]
    other = machine.another()
    machine.clock.advance(1.0)
    machine.service.tick()
    other.tick()
    leases = [machine.verbs.store.lease_of(run.id) for run in runs]
    assert len(machine.runner.started) == 3  # One machine: its cores are counted once.
    assert {lease for lease in leases if lease} <= {machine.service.id, other.id}


def test_a_run_waits_for_those_it_comes_after(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    first = machine.submit("name=first")
    second = machine.submit(f"schedule.after=[{first.id}]")
    machine.tick(2)
    assert machine.states([first, second]) == [State.STARTING, State.QUEUED]
    until(
        lambda: machine.state(first) is State.SUCCEEDED,
        machine.go_on,
    )
    machine.tick(2)
    assert machine.state(second) is not State.QUEUED


def test_a_run_that_waits_for_one_that_failed_is_stopped_and_says_why(tmp_path: Path) -> None:
    machine = Machine(tmp_path, fails(2))
    first = machine.submit()
    second = machine.submit(f"schedule.after=[{first.id}]")
    third = machine.submit(f"schedule.after=[{second.id}]")
    for _ in range(6):
        machine.runner.finish()
        machine.tick()
    assert machine.states([first, second, third]) == [State.FAILED, State.STOPPED, State.STOPPED]
    reason = machine.verbs.store.get(second.id).reason
    assert reason == f"not started: run {first.id}, which it waits for, is failed"


def test_a_run_cannot_wait_for_one_that_does_not_exist(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    with pytest.raises(NotFound, match="nobody"):
        machine.submit("schedule.after=[nobody]")


def test_a_queue_has_no_more_runs_at_work_than_it_may(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cpus=8)
    limited = ("schedule.queue=lab", "schedule.max_running=1")
    runs = [machine.submit(*limited), machine.submit(*limited), machine.submit()]
    machine.tick(3)
    assert machine.states(runs) == [State.STARTING, State.QUEUED, State.STARTING]


def test_a_queued_run_is_stopped_at_once_and_never_starts(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cpus=1)
    working, waiting = machine.submit(), machine.submit()
    machine.tick()
    assert machine.verbs.stop(waiting.id).state is State.STOPPED
    machine.tick(2)
    assert machine.states([working, waiting]) == [State.STARTING, State.STOPPED]
    with pytest.raises(Conflict, match="nothing to stop"):
        machine.verbs.ask_to_stop(waiting.id)


def test_a_run_that_ignores_the_request_to_end_is_killed_after_its_grace(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    run = machine.submit("runner.stop_grace_s=10")
    machine.tick(2)
    assert machine.verbs.ask_to_stop(run.id).active
    machine.tick()
    assert machine.runner.stopped[-1] is False
    machine.tick(14)
    ended = machine.verbs.store.get(run.id)
    assert ended.state is State.STOPPED
    assert "ignored SIGTERM for 10 s and was killed" in ended.reason


def test_a_run_that_has_trained_for_its_time_limit_is_asked_to_end_and_can_go_on(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    run = machine.submit("schedule.time_limit_s=30", "runner.stop_grace_s=10")
    machine.tick(25)
    assert (machine.state(run), machine.runner.stopped) == (State.STARTING, [])
    machine.tick(8)
    assert machine.runner.stopped == [False]
    machine.tick(14)
    ended = machine.verbs.store.get(run.id)
    assert ended.state is State.STOPPED
    assert ended.reason.startswith("its time limit of 30 s was reached; ")
    again = machine.verbs.requeue(run.id, overrides=["schedule.time_limit_s=null"]).runs[0]
    assert again.state is State.QUEUED
    machine.tick(120)
    assert machine.state(run) is State.STARTING


def test_a_run_without_a_sign_of_life_is_killed_and_retried(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    run = machine.submit("runner.silence_s=30", "schedule.backoff_s=1000")
    machine.tick()
    for _ in range(60):  # As long as its root beats, all is well.
        RunDir.of(run).heartbeat.write_text("beat")
        _touch(RunDir.of(run).heartbeat, machine.clock.now)
        machine.tick()
    assert machine.state(run) is State.STARTING
    machine.tick(33)
    queued = machine.verbs.store.get(run.id)
    assert queued.state is State.QUEUED
    assert "no sign of life for 31 s" in queued.reason


def test_a_stopped_run_is_queued_again_at_the_end_of_the_queue(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cpus=1)
    first, second = machine.submit(), machine.submit()
    machine.verbs.stop(first.id)
    again = machine.verbs.requeue(first.id).runs[0]
    assert again.state is State.QUEUED
    assert again.arrival > second.arrival
    with pytest.raises(Conflict, match="queued already"):
        machine.verbs.requeue(first.id, overrides=["name=x"])
    machine.tick(2)
    assert machine.states([first, second]) == [State.QUEUED, State.STARTING]


def test_a_database_that_does_not_answer_stops_neither_service_nor_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path)
    run = machine.submit()
    machine.tick()

    def away(*_: object, **__: object) -> None:
        raise Unavailable("the database does not answer")

    with monkeypatch.context() as patched:
        for name in ("save", "active", "put_attempt", "writing"):
            patched.setattr(machine.verbs.store, name, away)
        machine.runner.finish()
        machine.tick(5)
        assert machine.service.trouble is not None
    until(
        lambda: machine.state(run) is State.SUCCEEDED,
        machine.go_on,
    )
    assert machine.service.trouble is None


def test_the_same_submission_with_the_same_key_makes_one_run(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    spec = a_spec("seeds=2")
    first = machine.verbs.submit(spec, key="k")
    again = machine.verbs.submit(spec, key="k")
    assert (first.repeated, again.repeated) == (False, True)
    assert [run.id for run in again.runs] == [run.id for run in first.runs]
    assert len(machine.verbs.ls().runs) == 2
    with pytest.raises(Conflict, match="k"):
        machine.verbs.submit(a_spec(), key="k")


def _die(machine: Machine, run: Run) -> None:
    """Leave the run as a service that was killed would: its lease is nobody's any more."""
    lease = machine.verbs.store.lease_of(run.id)
    assert machine.verbs.store.take_lease(run.id, held_by=lease, lease=DEAD)


def _touch(path: Path, seconds: float) -> None:
    os.utime(path, (seconds, seconds))


def test_a_write_that_is_lost_as_the_evaluation_begins_costs_the_run_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path)
    run = machine.submit("schedule.retries=0")
    machine.tick()
    machine.runner.finish()
    save = machine.verbs.store.save
    lost: list[Run] = []

    def loses_one(saved: Run, *, lease: str) -> None:
        if saved.state is State.EVALUATING and not lost:
            lost.append(saved)
            raise Unavailable("the database does not answer")
        save(saved, lease=lease)

    monkeypatch.setattr(machine.verbs.store, "save", loses_one)
    until(lambda: machine.state(run) is State.SUCCEEDED, machine.go_on)
    assert lost


def test_a_run_whose_runner_is_not_installed_fails_and_the_others_go_on(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    bad, good = machine.submit(), machine.submit()
    store, runner = machine.verbs.store, machine.runner

    def runner_of(name: str) -> FakeRunner:
        if name == "gone":
            raise BadInput("no plugin 'gone' of kind runners")
        return runner

    machine.verbs._runner_of = runner_of
    assert store.take_lease(bad.id, held_by=None, lease="me")
    store.save(bad.model_copy(update={"runner": "gone"}), lease="me")
    store.release(bad.id, lease="me")
    machine.tick(2)
    assert machine.states([bad, good]) == [State.FAILED, State.STARTING]
    assert "no plugin 'gone'" in store.get(bad.id).reason


def test_a_run_whose_directory_vanishes_fails_and_gives_its_cores_back(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cpus=1)
    run, next_one = machine.submit(), machine.submit()
    machine.tick()
    shutil.rmtree(run.path)
    machine.tick(3)
    assert machine.states([run, next_one]) == [State.FAILED, State.STARTING]
    assert "its directory is gone" in machine.verbs.store.get(run.id).reason
    assert machine.verbs.remove(run.id).id == run.id


def test_a_run_that_fails_as_it_is_stopped_is_not_retried(tmp_path: Path) -> None:
    machine = Machine(tmp_path, fails(1))
    run = machine.submit()
    machine.tick()
    machine.verbs.ask_to_stop(run.id)
    machine.tick()
    machine.runner.finish()
    machine.tick(3)
    assert (machine.state(run), len(machine.runner.started)) == (State.FAILED, 1)


def test_a_resumed_run_gets_what_it_asks_for_now(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cpus=2)
    run = machine.submit()
    machine.verbs.stop(run.id)
    changed = ["resources.memory_mb=700", "schedule.priority=5"]
    again = machine.verbs.requeue(run.id, overrides=changed).runs[0]
    assert (again.memory_mb, again.priority) == (700, 5)
    machine.verbs.stop(run.id)
    with pytest.raises(BadInput, match=r"memory_mb is 90000000"):
        machine.verbs.requeue(run.id, overrides=["resources.memory_mb=90000000"])


def test_a_root_on_another_host_must_have_been_silent_before_its_run_is_taken_over(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    run = machine.submit()
    machine.tick()
    lease = machine.verbs.store.lease_of(run.id)
    elsewhere = "feedfeed-feedfeed-feedfeed/1:2/token"
    assert machine.verbs.store.take_lease(run.id, held_by=lease, lease=elsewhere)
    old = machine.verbs.store.get(run.id).model_copy(update={"updated_at": 1.0})
    with machine.verbs.store.writing() as connection:
        connection.execute(sa.update(RUNS).values(updated_at=old.updated_at))
    machine.service = machine.another()
    for beat in range(40):
        _touch(_made(RunDir.of(run).heartbeat), 1000.0 + beat)
        machine.tick()
    assert machine.verbs.store.lease_of(run.id) == elsewhere
    machine.tick(FOREIGN_TICKS)
    assert machine.verbs.store.lease_of(run.id) == machine.service.id


def _made(path: Path) -> Path:
    path.touch()
    return path


def test_a_service_sweeps_what_dead_imports_left_and_no_living_one_however_old(
    tmp_path: Path,
) -> None:
    (dead, left), (living, held) = holder(tmp_path), holder(tmp_path)
    try:
        dead.kill()
        dead.communicate()
        os.utime(held, (0, 0))
        _sweep_leftovers(tmp_path)
        assert not left.exists()
        assert (held / "half").exists()
    finally:
        living.communicate("done\n")


def test_a_run_at_work_is_as_far_as_its_heartbeat_says_and_one_that_ended_as_its_events_say(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path, fails(2))
    run = machine.submit("schedule.retries=0")
    machine.tick()
    directory = RunDir.of(run)
    with EventWriter(directory.events, run=run.id, attempt=1) as writer:
        writer.emit(EventKind.STATE, "started", step=0, tags={"after": None})
    directory.heartbeat.write_text("1 591 12.5\n")
    machine.tick(2)
    seen = machine.verbs.store.get(run.id)
    assert (seen.state, seen.env_steps, seen.sps) == (State.RUNNING, 591, 12.5)
    machine.runner.finish()
    machine.tick()
    assert machine.verbs.store.get(run.id).env_steps == 0
