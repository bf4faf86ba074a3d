"""Who a process is, and how the processes of a run are found wherever they have gone."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rl_orch.io import service_note
from rl_orch.io.processes import pids
from rl_orch.io.run.directory import RunDir
from rl_orch.io.service_note import ServiceEndpoint
from rl_orch.runners.local import LocalRunner
from tests.odd_files import KINDS, in_place
from tests.waiting import PATIENCE_S

FAMILY = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        if os.fork() > 0:
            os._exit(0)
        break
os.write(1, b'%d\\n' % os.getpid())
time.sleep(600)
"""
"""A process that ignores SIGTERM, and two that left its session and lost their parent."""


def a_family(directory: Path, attempt: int) -> list[str]:
    """The identities of the three processes of an attempt, as each release has started them."""
    return started_with(pids.cookie(directory, attempt))


def started_with(mark: dict[str, str]) -> list[str]:
    first = subprocess.Popen(
        [sys.executable, "-c", FAMILY],
        env=os.environ | mark,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert first.stdout is not None
    seen = [pids.identity(int(first.stdout.readline())) for _ in range(3)]
    return [identity for identity in seen if identity is not None]


def soon(condition: Callable[[], bool]) -> None:
    """Return once the condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_sweep_ends_a_whole_family_also_those_who_left(tmp_path: Path) -> None:
    family = a_family(tmp_path, attempt=2)
    assert len(family) == 3
    assert set(pids.marked(tmp_path, through=2)) == set(family)
    assert pids.sweep(tmp_path, through=2) >= 3
    soon(lambda: not any(map(pids.alive, family)))


def test_a_sweep_leaves_later_attempts_and_other_runs_alone(tmp_path: Path) -> None:
    later, other = a_family(tmp_path / "a", attempt=3), a_family(tmp_path / "b", attempt=1)
    assert pids.sweep(tmp_path / "a", through=2) == 0
    assert all(map(pids.alive, later + other))
    assert pids.sweep(tmp_path / "a", through=3) >= 3
    assert all(map(pids.alive, other))
    assert pids.sweep(tmp_path / "b", through=1) >= 3


def test_processes_that_were_a_standby_are_known_by_the_cookie_that_was_noted(
    tmp_path: Path,
) -> None:
    mark, run = pids.standby_cookie(), RunDir(tmp_path)
    family = started_with(mark)
    run.note_standby(1, pids.standby_cookie()[pids.COOKIE])
    assert pids.sweep(tmp_path, through=9) == 0
    run.note_standby(2, mark[pids.COOKIE])
    assert list(pids.marked(tmp_path, through=1)) == []
    assert set(pids.marked(tmp_path, through=3, since=2)) == set(family)
    run.note_attempt(2)
    assert LocalRunner().adopt(tmp_path) in family
    assert pids.sweep(tmp_path, through=2) == 3
    soon(lambda: not any(map(pids.alive, family)))


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_in_the_place_of_noted_cookies_is_not_waited_for(
    tmp_path: Path, kind: str
) -> None:
    in_place(tmp_path / pids.STANDBYS, kind)
    assert pids.noted_standbys(tmp_path) == ""


def test_a_reused_pid_is_nobody_that_was_known() -> None:
    known = pids.identity(os.getpid())
    assert known is not None
    assert pids.alive(known)
    pid, start = known.split(":")
    assert not pids.alive(f"{pid}:{int(start) - 1}")
    assert not pids.alive("nonsense")


def test_a_lease_says_who_holds_it_and_where() -> None:
    host, identity = pids.holder_of(pids.lease())
    assert (host, identity) == (pids.host(), pids.identity(os.getpid()))
    assert pids.lease() != pids.lease()


def test_a_lease_of_an_older_release_is_read_as_of_this_machine() -> None:
    assert pids.holder_of("12:345/abc") == (pids.host(), "12:345")


def test_the_place_of_a_service_is_found_while_it_lives_and_only_its_user_can_read_it(
    tmp_path: Path,
) -> None:
    identity = pids.identity(os.getpid())
    assert identity is not None
    there = ServiceEndpoint("http://127.0.0.1:1", identity, pids.host(), "secret")
    service_note.write(tmp_path, there)
    assert service_note.living(tmp_path) == there
    assert (tmp_path / service_note.FILE).stat().st_mode & 0o077 == 0
    assert "secret" not in repr(there)
    gone = ServiceEndpoint("http://127.0.0.1:1", "999999999:1", pids.host(), "secret")
    service_note.forget(tmp_path, gone)
    assert service_note.living(tmp_path) == there
    service_note.write(tmp_path, gone)
    assert service_note.living(tmp_path) is None
    service_note.forget(tmp_path, gone)
    assert service_note.read(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"url": 1', "[" * 100_000])
def test_a_note_that_cannot_be_read_is_no_place(tmp_path: Path, text: str) -> None:
    (tmp_path / service_note.FILE).write_text(text)
    assert service_note.living(tmp_path) is None


def test_a_process_that_is_just_being_loaded_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its variables cannot be read yet, so that it is seen a moment later."""
    looks = iter([[], ["it"], []])
    loading = iter([True, False])
    monkeypatch.setattr(pids, "_is_any_loading", lambda: next(loading))
    monkeypatch.setattr(pids, "marked", lambda *_, **__: next(looks))
    monkeypatch.setattr(pids, "pid_of", lambda _: 999_999_999)
    assert pids.sweep(tmp_path, through=1) == 1


def test_a_process_whose_environment_is_empty_is_loading_only_while_it_is_young(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with subprocess.Popen(["/bin/sleep", "600"], env={}) as child:
        try:
            monkeypatch.setattr(pids, "YOUNG_S", 3600.0)
            assert pids._is_loading(child.pid)
            monkeypatch.setattr(pids, "YOUNG_S", 0.0)
            assert not pids._is_loading(child.pid)
            assert not pids._is_loading(os.getpid())
        finally:
            child.kill()


HELPED = """
import subprocess, sys, time
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid, flush=True)
time.sleep(600)
"""


def test_a_kind_stop_reaches_a_run_process_and_none_of_its_helpers() -> None:
    words = [sys.executable, "-c", HELPED]
    first = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert first.stdout is not None
    handle, helper = pids.identity(first.pid), pids.identity(int(first.stdout.readline()))
    assert handle is not None
    assert helper is not None
    LocalRunner().stop(handle, force=False)
    assert first.wait(PATIENCE_S) == -signal.SIGTERM
    assert pids.alive(helper)
    os.killpg(first.pid, signal.SIGKILL)
    soon(lambda: not pids.alive(helper))
