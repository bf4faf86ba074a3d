"""Roots and programs that are killed, halted or stubborn, under a service that lives."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from rl_orch import orchestrator
from rl_orch.core.queue.scheduler import Capacity
from rl_orch.core.service import TICK_S, RunService
from rl_orch.io.processes import pids
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import EventWriter, fold, read
from rl_orch.records import EventKind, Run, State
from rl_orch.spec.model import Spec
from tests.faults import programs
from tests.faults.checker import check
from tests.faults.lab import Lab
from tests.faults.watcher import Marked
from tests.integration.conftest import until
from tests.waiting import PATIENCE_S

NOTICED_WITHIN_S = 1.0
SILENCE_S = 10
"""Longer than a machine that has other work to do keeps a living root from a sign of life."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab whose service is up, and whose history must hold in the end."""
    lab = Lab(tmp_path_factory.mktemp("roots"))
    try:
        lab.service.start()
        lab.watcher.start()
        yield lab
        lab.await_end()
        check(lab, {})
    finally:
        lab.close()


def begun(lab: Lab, spec: Spec, *, step: int = 5) -> tuple[Run, RunDir, Marked]:
    """A run that is at a step, and its root."""
    run = lab.ask(lambda client: client.submit(spec, consent=True)).runs[0]
    until(lambda: reached(RunDir.of(run), step))
    return run, RunDir.of(run), root_of(lab, RunDir.of(run))


def reached(directory: RunDir, step: int) -> bool:
    return any(event.step >= step for event in read(directory.events))


def root_of(lab: Lab, directory: RunDir) -> Marked:
    roots = [root for root in lab.watcher.roots() if root.directory == directory.path]
    assert len(roots) == 1
    return roots[0]


def send(process: Marked, number: signal.Signals) -> None:
    os.kill(pids.pid_of(process.identity), number)


def test_a_root_that_is_killed_is_noticed_at_once_and_goes_on_from_its_newest_checkpoint(
    home: Lab, tmp_path: Path
) -> None:
    gate = programs.Gate(tmp_path / "gate", step=6)
    run, directory, root = begun(home, programs.a_count(home.program, gate=gate))
    send(root, signal.SIGKILL)
    until(lambda: home.store.get(run.id).retries == 1)
    gate.open()
    until(lambda: not home.store.get(run.id).active)
    ended = home.store.get(run.id)
    assert (ended.state, ended.attempt) == (State.SUCCEEDED, 2)
    assert "SIGKILL" in home.store.attempts(run.id)[0].reason
    starts = [event for event in read(directory.events) if event.key == "started"]
    assert [start.step for start in starts] == [0, 4]
    log = directory.log.read_text()
    assert "step 1 of attempt 1" in log
    assert f"step {programs.STEPS} of attempt 2" in log
    assert "step 1 of attempt 2" not in log


def test_the_next_look_at_a_root_that_was_killed_notices_it_and_is_never_a_second_away(
    tmp_path: Path,
) -> None:
    verbs = orchestrator.connect(tmp_path / "home", resident=True)
    gate = programs.Gate(tmp_path / "gate")
    run = verbs.submit(programs.a_count(programs.counts(tmp_path), gate=gate)).runs[0]
    service = RunService(verbs, Capacity(cpus=2, memory_mb=4096), "http://there")

    def looked(condition: Callable[[], bool]) -> bool:
        service.tick()
        return condition()

    until(lambda: looked(lambda: reached(RunDir.of(run), 1)))
    root = RunDir.of(run).lock_holder()
    assert root is not None
    reaper = psutil.Process(pids.pid_of(root)).parent()
    assert reaper is not None
    os.kill(pids.pid_of(root), signal.SIGKILL)
    # Its parent, which has swept what it left, ends with it.
    until(lambda: not reaper.is_running() or reaper.status() == psutil.STATUS_ZOMBIE)
    service.tick()
    assert verbs.store.get(run.id).retries == 1
    assert TICK_S < NOTICED_WITHIN_S
    gate.open()
    until(lambda: looked(lambda: not verbs.store.get(run.id).active))
    assert verbs.store.get(run.id).state is State.SUCCEEDED


def test_a_run_that_crashes_again_and_again_is_ended_when_its_retries_are_spent(
    home: Lab, tmp_path: Path
) -> None:
    gate = programs.Gate(tmp_path / "never opened")
    spec = programs.a_count(home.program, "schedule.retries=1", gate=gate)
    run, directory, root = begun(home, spec, step=1)
    program = next(
        p for p in home.watcher.marked() if p.role is None and p.directory == root.directory
    )
    send(program, signal.SIGKILL)
    until(lambda: home.store.get(run.id).retries == 1)
    until(lambda: home.store.get(run.id).state is State.RUNNING)
    send(root_of(home, directory), signal.SIGKILL)
    until(lambda: not home.store.get(run.id).active)
    ended = home.store.get(run.id)
    assert (ended.state, ended.attempt) == (State.FAILED, 2)
    assert "it was retried once" in ended.reason
    told = [attempt.reason for attempt in home.store.attempts(run.id)]
    assert "its program was killed by SIGKILL" in told[0]
    assert "its process was killed by SIGKILL" in told[1]
    assert not [p for p in home.watcher.marked() if p.directory == directory.path]


def test_a_root_that_was_halted_is_superseded_and_what_it_says_later_is_dropped(
    home: Lab, tmp_path: Path
) -> None:
    gate = programs.Gate(tmp_path / "gate")
    spec = programs.a_count(home.program, f"runner.silence_s={SILENCE_S}", gate=gate)
    run, directory, root = begun(home, spec)
    send(root, signal.SIGSTOP)
    until(lambda: home.store.get(run.id).attempt == 2)
    assert "no sign of life" in home.store.attempts(run.id)[0].reason
    with suppress(ProcessLookupError):
        send(root, signal.SIGCONT)
    until(lambda: reached_by(directory, attempt=2))
    with EventWriter(directory.events, run=run.id, attempt=1) as late:
        late.emit(EventKind.METRIC, "losses/count", -1.0, step=1_000)
    gate.open()
    until(lambda: not home.store.get(run.id).active)
    ended = home.store.get(run.id)
    assert (ended.state, ended.env_steps) == (State.SUCCEEDED, programs.STEPS)
    assert 1_000 not in [event.step for event in fold(read(directory.events))]
    again = [sys.executable, "-m", "rl_orch.worker.external.train", str(directory.path), "1"]
    done = subprocess.run(again, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode != 0
    assert "it is no longer its turn" in done.stdout + done.stderr


def reached_by(directory: RunDir, *, attempt: int) -> bool:
    return any(event.attempt == attempt for event in read(directory.events))


def test_a_program_that_ignores_sigterm_is_ended_with_all_that_it_started(
    home: Lab, tmp_path: Path
) -> None:
    command = [sys.executable, "-S", str(programs.stubborn(tmp_path))]
    spec = programs.external(command, "runner.stop_grace_s=1", name="stubborn")
    run = home.ask(lambda client: client.submit(spec, consent=True)).runs[0]
    until((Path(run.path) / "work" / "begun").exists)

    def family() -> list[Marked]:
        return [p for p in home.watcher.marked() if p.directory == Path(run.path)]

    until(lambda: len(family()) == 5)  # A root, a program, its child and two daemons.
    before = family()
    done = home.service.run("stop", run.id)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "ignored SIGTERM for 1 s and was killed" in said
    assert re.search(r"killed with it: 3 processes that it had started", said), said
    assert not [p for p in before if p.alive]
    assert home.store.get(run.id).state is State.STOPPED
