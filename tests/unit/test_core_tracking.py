"""Trackers of runs: each has its own position, and misses nothing of what happened without it."""

import fcntl
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.ports import Task
from rl_orch.core.queue.scheduler import Capacity
from rl_orch.core.runs import tracking
from rl_orch.core.service import RunService
from rl_orch.core.store.tables import RUNS
from rl_orch.errors import BadInput, SpecInvalid
from rl_orch.io.run.directory import RunDir
from rl_orch.io.trackers import position
from rl_orch.io.trackers.pump import Pump, Sink
from rl_orch.records import Run, State
from rl_orch.spec.resolve import resolve
from rl_orch.testing import FakeRunner, Script, a_spec, trains_to
from tests.integration.conftest import until
from tests.unit.test_io_sink_process import a_module
from tests.unit.test_io_tensorboard import shown
from tests.unit.test_service import DEAD

TRAINS = trains_to([500.0] * 10)
CURVES = {"eval/mean_return": [(100, 500.0)]}
CHOSEN = "store.trackers=[tensorboard,{name:jsonlines,file:numbers.jsonl}]"


@pytest.fixture
def jsonlines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second tracker, installed as a package would be."""
    metadata = tmp_path / "site" / "more_trackers-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Name: more-trackers\nVersion: 1.0\n")
    points = "[rl_orch.trackers]\njsonlines = tests.contract.test_sinks:JsonLines\n"
    (metadata / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


def in_the_way(script: Script) -> Script:
    """A file in place of TensorBoard's folder, before anything is told."""

    def blocked(directory: RunDir, task: Task) -> int:
        if task.checkpoint is None:
            directory.tensorboard.write_text("in the way")
        return script(directory, task)

    return blocked


def numbers(run: Run) -> dict[str, list[tuple[int, float]]]:
    return shown(RunDir.of(run).tensorboard)


def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "LAST_EFFORT_S", 0.0)


def served(home: Path, condition: Callable[[], bool]) -> None:
    """A service of a home, until the condition holds."""
    verbs = Orchestrator(home, FakeRunner(TRAINS), resident=True)
    service = RunService(verbs, Capacity(cpus=2, memory_mb=4096), "http://there")
    ends = threading.Event()
    thread = threading.Thread(target=service.run, args=(ends,))
    thread.start()
    try:
        until(condition)
    finally:
        ends.set()
        thread.join()


def test_a_tracker_that_could_not_be_opened_gets_all_from_the_next_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried(monkeypatch)
    local = Orchestrator(tmp_path, FakeRunner(in_the_way(TRAINS)))
    run = local.launch(a_spec()).run
    monkeypatch.undo()
    assert run.state is State.SUCCEEDED
    (lacking,) = local.show(run.id).trackers
    assert lacking.behind_bytes == RunDir.of(run).events.stat().st_size
    tracking.deliver(run)
    (lacking,) = local.show(run.id).trackers
    assert lacking.is_behind
    assert "FileExistsError" in str(lacking.error)
    RunDir.of(run).tensorboard.unlink()
    served(tmp_path, lambda: not local.show(run.id).trackers[0].is_behind)
    assert numbers(run) == CURVES
    assert local.show(run.id).trackers[0].error is None


def test_a_tracker_that_is_mended_while_a_service_is_up_gets_all_of_an_ended_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried(monkeypatch)
    local = Orchestrator(tmp_path, FakeRunner(in_the_way(TRAINS)))
    run = local.launch(a_spec()).run
    pumps = tracking.Pumps()
    pumps.follow(run)
    until(lambda: local.show(run.id).trackers[0].error is not None)
    RunDir.of(run).tensorboard.unlink()
    until(lambda: not local.show(run.id).trackers[0].is_behind)
    pumps.follow(run)
    assert numbers(run) == CURVES


def ended_unwatched(home: Path, *overrides: str) -> tuple[Orchestrator, Run]:
    """Somebody who has found that a run has ended, whose service died before."""
    runner = FakeRunner(TRAINS, at_once=False)
    verbs = Orchestrator(home, runner, resident=True)
    service = RunService(verbs, Capacity(cpus=2, memory_mb=4096), "http://there")
    (run,) = verbs.submit(a_spec(*overrides)).runs
    service.tick()
    service._pumps.close()  # As if it had died.
    runner.finish()
    with verbs.store.writing() as connection:
        connection.execute(sa.update(RUNS).values(lease=DEAD))
    local = Orchestrator(home, runner)
    assert not local.get(run.id).active
    return local, run


def test_whoever_finds_that_a_run_has_ended_unwatched_delivers_the_rest(tmp_path: Path) -> None:
    local, run = ended_unwatched(tmp_path)
    assert numbers(run) == CURVES
    assert not local.show(run.id).trackers[0].is_behind


def test_whoever_has_taken_a_run_over_tells_its_trackers_of_the_end(tmp_path: Path) -> None:
    runner = FakeRunner(TRAINS, at_once=False)
    verbs = Orchestrator(tmp_path, runner, resident=True)
    (run,) = verbs.submit(a_spec()).runs
    first, second = (RunService(verbs, Capacity(cpus=2, memory_mb=4096), "x") for _ in range(2))
    first.tick()
    first.beat()
    until(lambda: position.noted_trackers(Path(run.path)) == ["tensorboard"])
    assert verbs.store.take_lease(run.id, held_by=first.id, lease=second.id)

    def has_ended() -> bool:
        runner.finish()
        for service in (first, second):
            service.tick()
        return not verbs.store.get(run.id).active

    until(has_ended)
    until(lambda: not position.status(Path(run.path), "tensorboard").is_behind)
    second._pumps.close()
    assert numbers(run) == CURVES


def test_trackers_of_ended_runs_are_caught_up_one_at_a_time_and_tried_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried(monkeypatch)
    local = Orchestrator(tmp_path, FakeRunner(in_the_way(TRAINS)))
    runs = [local.launch(a_spec()).run for _ in range(3)]
    monkeypatch.undo()
    until(lambda: all(map(lock_is_free, runs)))  # Their own pumps have given up.
    pumps: list[Pump] = []
    at_once: list[int] = []

    class Counted(Pump):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            at_once.append(sum(not pump.done for pump in pumps))
            pumps.append(self)
            super().__init__(*arguments, **options)

    monkeypatch.setattr(tracking, "Pump", Counted)
    backlog = tracking.Backlog(threading.Event())
    backlog.deliver(runs)
    assert at_once == [0] * 3
    assert all(local.show(run.id).trackers[0].is_behind for run in runs)
    for run in runs:
        RunDir.of(run).tensorboard.unlink()
    backlog.deliver(runs)
    assert [numbers(run) for run in runs] == [CURVES] * 3
    backlog.deliver(runs)
    assert len(pumps) == 6


def test_a_tracker_that_hangs_is_passed_over_until_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried(monkeypatch)
    local = Orchestrator(tmp_path, FakeRunner(in_the_way(TRAINS)))
    runs = [local.launch(a_spec()).run for _ in range(3)]
    monkeypatch.undo()
    until(lambda: all(map(lock_is_free, runs)))
    asked: list[str] = []
    returns = threading.Event()

    def hangs(run: Run, *_: object) -> Sink:
        asked.append(run.id)
        returns.wait()
        raise OSError("it did not answer")

    monkeypatch.setattr(tracking, "_opened", hangs)
    monkeypatch.setattr(tracking, "HANGS_AFTER_S", 0.3)
    backlog = tracking.Backlog(threading.Event())
    for _ in range(2):
        backlog.deliver(runs)
    assert asked == [runs[0].id]
    returns.set()
    until(lambda: not any(pump.done is False for pump in backlog._hanging))
    backlog.deliver(runs)
    assert asked[1:] == [run.id for run in runs]


def lock_is_free(run: Run) -> bool:
    """Whether no pump delivers what a run tells."""
    with (Path(run.path) / "sinks" / "tensorboard.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@pytest.mark.usefixtures("jsonlines")
def test_who_looks_at_a_run_leaves_trackers_of_others_to_a_service(tmp_path: Path) -> None:
    local, run = ended_unwatched(tmp_path, CHOSEN)
    ours, theirs = local.show(run.id).trackers
    assert (ours.is_behind, theirs.is_behind) == (False, True)
    served(tmp_path, lambda: not local.show(run.id).trackers[1].is_behind)


@pytest.mark.usefixtures("jsonlines")
def test_each_tracker_has_a_position_and_an_error_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = Orchestrator(tmp_path, FakeRunner(in_the_way(TRAINS)))
    hurried(monkeypatch)
    run = local.launch(a_spec(CHOSEN)).run
    monkeypatch.setattr(tracking, "LAST_EFFORT_S", 60.0)
    tracking.deliver(run)
    blocked, written = local.show(run.id).trackers
    assert (blocked.name, blocked.is_behind) == ("tensorboard", True)
    assert (written.name, written.is_behind, written.error) == ("jsonlines", False, None)
    lines = (RunDir.of(run).path / "numbers.jsonl").read_text().splitlines()
    assert ["eval/mean_return", 500.0, 100] in [json.loads(line) for line in lines]


def test_a_run_without_trackers_has_none(tmp_path: Path) -> None:
    local = Orchestrator(tmp_path, FakeRunner(TRAINS))
    run = local.launch(a_spec("store.trackers=[]")).run
    assert local.show(run.id).trackers == ()
    assert not RunDir.of(run).tensorboard.exists()


def test_runs_of_an_earlier_release_lack_nothing(tmp_path: Path) -> None:
    (tmp_path / "sinks").mkdir()
    (tmp_path / "events.jsonl").write_text("{}\n")
    (tmp_path / "sinks" / "tensorboard.json").write_text('{"offset": 3, "attempt": 1}')
    assert not position.status(tmp_path, "tensorboard").is_behind


@pytest.mark.parametrize(
    "trackers", [["tensorboard", "tensorboard"], [{"x": 1}], [{"name": 3}], [3]]
)
def test_what_cannot_be_a_list_of_trackers_is_refused_by_the_spec(trackers: list[object]) -> None:
    with pytest.raises(SpecInvalid) as caught:
        resolve({"env.id": "CartPole-v1", "store.trackers": trackers})
    assert [problem.path for problem in caught.value.problems] == ["store.trackers"]


@pytest.mark.parametrize(
    ("trackers", "hint"),
    [
        ("[tensorbord]", "Did you mean 'tensorboard'?"),
        ("[{name:tensorbord,x:1}]", "Did you mean 'tensorboard'?"),
        ("[somewhere-else]", "named as module:Class"),
        ("[{name:tensorboard,colour:red}]", ""),
    ],
)
def test_trackers_that_there_are_not_are_refused_before_anything_is_spent(
    tmp_path: Path, trackers: str, hint: str
) -> None:
    local = Orchestrator(tmp_path, FakeRunner(TRAINS))
    for ask in (local.check, local.submit, local.launch):
        with pytest.raises(BadInput) as caught:
            ask(a_spec(f"store.trackers={trackers}"))
        assert caught.value.path == "store.trackers"
        assert hint in (caught.value.hint or "")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("path", ["train.observers", "eval.metrics"])
def test_other_plugins_that_there_are_not_are_refused_before_anything_is_spent(
    tmp_path: Path, path: str
) -> None:
    local = Orchestrator(tmp_path, FakeRunner(TRAINS))
    for ask in (local.check, local.submit, local.launch):
        with pytest.raises(BadInput) as caught:
            ask(a_spec(f"{path}=[nosuch]"))
        assert caught.value.path == path
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "written", ["tensorboard", ["tensorboard"], {"name": "tensorboard"}, [{"name": "tensorboard"}]]
)
def test_a_tracker_without_options_is_its_name(written: object) -> None:
    spec = resolve({"env.id": "CartPole-v1", "store.trackers": written})
    assert spec.store.trackers == ("tensorboard",)
    assert spec == a_spec()


def test_a_tracker_that_fails_brings_no_removed_run_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried(monkeypatch)
    local = Orchestrator(tmp_path, FakeRunner(in_the_way(TRAINS)))
    run = local.launch(a_spec()).run
    pump = Pump(Path(run.path), "tensorboard", refuses, retry_s=0.001, longest_retry_s=0.001)
    until(lambda: local.show(run.id).trackers[0].error == "OSError: never")
    local.remove(run.id)
    until(lambda: pump.done)
    assert not Path(run.path).exists()


def refuses() -> Sink:
    raise OSError("never")


class CannotBegin(Pump):
    """The pump of a machine that has no room for the thread of one tracker."""

    def __init__(self, run_dir: Path, name: str | None, *rest: Any, **options: Any) -> None:
        if name == "jsonlines":
            raise RuntimeError("can't start new thread")
        super().__init__(run_dir, name, *rest, **options)


@pytest.mark.usefixtures("jsonlines")
def test_a_pump_that_cannot_begin_harms_neither_the_run_nor_other_trackers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = Orchestrator(tmp_path, FakeRunner(TRAINS))
    chosen = "store.trackers=[{name:jsonlines,file:numbers.jsonl},tensorboard]"
    with monkeypatch.context() as patch:
        patch.setattr(tracking, "Pump", CannotBegin)
        run = local.launch(a_spec(chosen)).run
    assert run.state is State.SUCCEEDED
    assert numbers(run) == CURVES
    lacking, written = local.show(run.id).trackers
    assert (lacking.is_behind, written.is_behind) == (True, False)
    assert lacking.error == "RuntimeError: can't start new thread"
    backlog = tracking.Backlog(threading.Event())
    with monkeypatch.context() as patch:
        patch.setattr(tracking, "Pump", CannotBegin)
        backlog.deliver([run])
    assert local.show(run.id).trackers[0].is_behind
    backlog.deliver([run])
    assert not local.show(run.id).trackers[0].is_behind


def test_a_tracker_whose_name_is_no_file_name_is_told_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (a_module(tmp_path, "told") / "its_tracker.py").rename(tmp_path / "_more_ü.py")
    monkeypatch.chdir(tmp_path)
    local = Orchestrator(tmp_path / "home", FakeRunner(TRAINS))
    monkeypatch.setattr(tracking, "LAST_EFFORT_S", 60.0)
    run = local.launch(a_spec("store.trackers=['_more_ü:T']")).run
    (told,) = local.show(run.id).trackers
    assert (run.state, told.name, told.is_behind) == (State.SUCCEEDED, "_more_ü:T", False)
