"""What a spare has loaded, how it is seen by others, and when it is not kept."""

import importlib
import json
import os
import site
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rl_orch import orchestrator
from rl_orch.io.processes import pids as processes
from rl_orch.io.processes.pids import COOKIE
from rl_orch.runners.local import LocalRunner
from rl_orch.worker.warm import standby as spare
from rl_orch.worker.warm.loaded import LoadedModules
from rl_orch.worker.warm.standby import ROOM
from tests.conftest import python_path
from tests.integration.conftest import until

NAMED = """
import os, sys
from rl_orch.worker.warm.standby import name_process
name_process([sys.executable, "-m", "some.module", "/a run", "7"], "7:/a run")
os.fork()
os.write(1, f"{os.getpid()}\\n".encode())
sys.stdin.read()
"""
"""A program that takes another name, and then forks."""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that this process has loaded, in a folder of its own after one that is empty."""
    for name in ("empty", "full"):
        (tmp_path / name).mkdir()
    file = tmp_path / "full" / "loaded_by_a_spare.py"
    file.write_text("VALUE = 1\n")
    for name in ("full", "empty"):
        monkeypatch.syspath_prepend(tmp_path / name)
    importlib.import_module(file.stem)
    yield file
    del sys.modules[file.stem]


def test_what_has_not_changed_is_current(module: Path) -> None:
    assert LoadedModules.now().is_current


def test_a_loaded_file_that_changes_is_noticed_though_its_size_and_date_stay(module: Path) -> None:
    loaded, before = LoadedModules.now(), module.stat()
    module.write_text("VALUE = 2\n")
    os.utime(module, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not loaded.is_current


def test_a_loaded_file_that_is_gone_is_noticed(module: Path) -> None:
    loaded = LoadedModules.now()
    module.unlink()
    assert not loaded.is_current


def test_a_module_that_would_be_found_elsewhere_now_is_noticed(module: Path) -> None:
    loaded = LoadedModules.now()
    (module.parent.with_name("empty") / module.name).write_text("VALUE = 3\n")
    assert not loaded.is_current


def test_another_file_beside_what_was_loaded_is_no_reason(module: Path) -> None:
    loaded = LoadedModules.now()
    (module.parent / "not_loaded.py").write_text("VALUE = 4\n")
    assert loaded.is_current


def test_a_package_that_is_installed_later_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(tmp_path)])
    path = tmp_path / "editable.pth"
    path.write_text("/one\n")
    loaded = LoadedModules.now()
    assert loaded.is_current
    path.write_text("/another\n")
    assert not loaded.is_current
    loaded = LoadedModules.now()
    (tmp_path / "some-1.0.dist-info").mkdir()
    assert not loaded.is_current


def test_a_file_that_changed_while_it_was_loaded_is_noticed(module: Path) -> None:
    changed = module.stat().st_ctime_ns
    assert LoadedModules.now().changed_since(changed)
    assert not LoadedModules.now().changed_since(time.time_ns() + 1)


def test_a_process_and_those_that_it_forks_are_seen_by_their_new_name() -> None:
    with _started(NAMED) as process:
        assert process.stdout is not None
        pids = {int(process.stdout.readline()) for _ in range(2)}
        for pid in pids:
            seen = psutil.Process(pid)
            words = [sys.executable, "-m", "some.module", "/a run", "7"]
            assert [word for word in seen.cmdline() if word] == words
            assert seen.environ()[COOKIE] == "7:/a run"
            assert seen.environ()["BESIDES"] == "kept"
        assert len(pids) == 2
        process.communicate("")


def test_a_name_that_is_too_long_is_refused() -> None:
    with _started(NAMED.replace('"7:/a run"', '"7:" + "x" * 9999')) as process:
        _, said = process.communicate("")
    assert process.returncode == 1
    assert f"longer than {ROOM} bytes" in said


def test_an_order_comes_with_the_file_for_its_output(module: Path) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, module.open("rb") as log:
        order = {"words": ["some.module", "/a run", "7"], "cookie": "7:/a run"}
        socket.send_fds(ours, [json.dumps(order).encode()], [log.fileno()])
        taken = spare._ordered(theirs, LoadedModules.now())
    assert taken is not None
    assert (taken.words, taken.cookie) == (("some.module", "/a run", "7"), "7:/a run")
    with open(taken.log, "rb") as handed:
        assert handed.read() == module.read_bytes()


def test_a_spare_takes_no_order_once_its_files_have_changed(module: Path) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, module.open("rb") as log:
        loaded = LoadedModules.now()
        module.write_text("VALUE = 5\n")
        socket.send_fds(ours, [b"{}"], [log.fileno()])
        assert spare._ordered(theirs, loaded) is None


@pytest.mark.parametrize(("max_age_s", "why"), [(-1.0, "it is old"), (3600.0, "its files changed")])
def test_a_spare_that_waits_ends_by_itself(
    module: Path, monkeypatch: pytest.MonkeyPatch, max_age_s: float, why: str
) -> None:
    monkeypatch.setattr(spare, "MAX_AGE_S", max_age_s)
    monkeypatch.setattr(spare, "LOOK_EVERY_S", 0.0)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    loaded = LoadedModules.now()
    if why == "its files changed":
        module.write_text("VALUE = 6\n")
    with ours, theirs:
        assert spare._ordered(theirs, loaded) is None


def test_a_spare_ends_when_nobody_is_there_to_give_it_orders(module: Path) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.close()
    with theirs:
        assert spare._ordered(theirs, LoadedModules.now()) is None


def test_a_spare_does_not_go_on_loading_for_one_who_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("import time\ntime.sleep(3600)\n")  # It is never loaded.
    monkeypatch.setenv("PYTHONPATH", python_path(tmp_path))
    starter = _started(
        "import sys\n"
        "from rl_orch.runners.local import Standby, variables\n"
        "print(Standby.start(variables(1)).child.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    assert starter.stdout is not None
    spare = int(starter.stdout.readline())
    starter.kill()
    starter.communicate()
    until(lambda: processes.identity(spare) is None)


def test_only_a_service_keeps_spares(tmp_path: Path) -> None:
    runner = orchestrator.connect(tmp_path)._runner_of("local")
    assert isinstance(runner, LocalRunner)
    assert runner.spares.count == 0


def _started(program: str) -> "subprocess.Popen[str]":
    """A process with as much room for its name as a spare has."""
    return subprocess.Popen(
        [sys.executable, "-c", program, " " * ROOM],
        env={**os.environ, "BESIDES": "kept", COOKIE: " " * ROOM},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
