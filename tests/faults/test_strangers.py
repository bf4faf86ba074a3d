"""Pids are used again: a process that has a root's number, but not its start time, is a stranger,
and nobody may signal it.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_orch import orchestrator
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.queue.scheduler import Capacity
from rl_orch.core.service import RunService
from rl_orch.io.processes import pids
from rl_orch.io.run.directory import RunDir
from rl_orch.records import Attempt, Run, State
from tests.faults import programs
from tests.integration.conftest import until

DEAD = f"{pids.host()}/999999999:1/token"


@pytest.fixture
def stranger() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that has nothing to do with any run, and leads a group of its own."""
    echo = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", echo],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as child:
        yield child
        child.kill()


def a_run_at_work(verbs: Orchestrator, folder: Path, handle: str, *, lease: str) -> Run:
    """A run whose root, as far as anybody noted, is that process."""
    run = verbs.submit(programs.a_count(programs.counts(folder), lasts_s=0.2)).runs[0]
    assert verbs.store.take_lease(run.id, held_by=None, lease=lease)
    run = run.model_copy(update={"state": State.RUNNING, "attempt": 1})
    verbs.store.save(run, lease=lease)
    noted = Attempt(run_id=run.id, number=1, handle=handle, started_at=0.0)
    verbs.store.put_attempt(noted, lease=lease)
    RunDir.of(run).note_attempt(1)
    (Path(run.path) / "lock").write_text(handle)
    return run


def lives_on(stranger: "subprocess.Popen[bytes]") -> bool:
    """Whether the stranger still answers: a signal that was sent before would have ended it."""
    assert stranger.stdin is not None
    assert stranger.stdout is not None
    try:
        stranger.stdin.write(b"there?\n")
        stranger.stdin.flush()
    except BrokenPipeError:
        return False
    return stranger.stdout.readline() == b"there?\n"


def forged(stranger: "subprocess.Popen[bytes]") -> str:
    """A handle with the stranger's pid, and the start time of who had it before."""
    real = pids.identity(stranger.pid)
    assert real is not None
    pid, start = real.split(":")
    return f"{pid}:{int(start) - 100}"


@pytest.mark.parametrize("force", [False, True])
def test_a_stranger_with_the_pid_of_a_root_is_not_signalled_by_a_stop(
    tmp_path: Path, stranger: "subprocess.Popen[bytes]", force: bool
) -> None:
    verbs = orchestrator.connect(tmp_path / "home")
    run = a_run_at_work(verbs, tmp_path, forged(stranger), lease=pids.lease())
    assert verbs.ask_to_stop(run.id, force=force).active  # Who holds the lease would end it.
    verbs.kill(run.id)
    assert RunDir.of(run).stop_requested
    assert lives_on(stranger)


def test_a_stranger_with_the_pid_of_a_root_is_not_taken_for_it_by_a_service(
    tmp_path: Path, stranger: "subprocess.Popen[bytes]"
) -> None:
    verbs = orchestrator.connect(tmp_path / "home", resident=True)
    run = a_run_at_work(verbs, tmp_path, forged(stranger), lease=DEAD)
    service = RunService(verbs, Capacity(cpus=2, memory_mb=4096), "http://there")

    def has_ended() -> bool:
        service.tick()
        return not verbs.store.get(run.id).active

    until(has_ended)
    ended = verbs.store.get(run.id)
    assert (ended.state, ended.attempt) == (State.SUCCEEDED, 2), ended.reason
    assert lives_on(stranger)
