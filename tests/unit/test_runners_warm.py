"""What a standby has loaded, and when it is not kept."""

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
from rl_orch.runners.local import LocalRunner
from rl_orch.worker.warm import standby
from rl_orch.worker.warm.loaded import LoadedModules
from tests.conftest import python_path
from tests.integration.conftest import until


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that this process has loaded, in a folder of its own after one that is empty."""
    for name in ("empty", "full"):
        (tmp_path / name).mkdir()
    file = tmp_path / "full" / "loaded_by_a_standby.py"
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


def test_an_order_comes_with_the_file_for_its_output(module: Path) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, module.open("rb") as log:
        order = {"words": ["train", "/a run", "7"], "cookie": "7:/a run", "strays": "/a run/strays"}
        socket.send_fds(ours, [json.dumps(order).encode()], [log.fileno()])
        taken = standby._ordered(theirs, LoadedModules.now())
    assert taken is not None
    assert (taken.words, taken.cookie) == (("train", "/a run", "7"), "7:/a run")
    assert taken.strays == Path("/a run/strays")
    with open(taken.log, "rb") as handed:
        assert handed.read() == module.read_bytes()


def test_a_standby_takes_no_order_once_its_files_have_changed(module: Path) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, module.open("rb") as log:
        loaded = LoadedModules.now()
        module.write_text("VALUE = 5\n")
        socket.send_fds(ours, [b"{}"], [log.fileno()])
        assert standby._ordered(theirs, loaded) is None


@pytest.mark.parametrize(("max_age_s", "why"), [(-1.0, "it is old"), (3600.0, "its files changed")])
def test_a_standby_that_waits_ends_by_itself(
    module: Path, monkeypatch: pytest.MonkeyPatch, max_age_s: float, why: str
) -> None:
    monkeypatch.setattr(standby, "MAX_AGE_S", max_age_s)
    monkeypatch.setattr(standby, "LOOK_EVERY_S", 0.0)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    loaded = LoadedModules.now()
    if why == "its files changed":
        module.write_text("VALUE = 6\n")
    with ours, theirs:
        assert standby._ordered(theirs, loaded) is None


def test_a_standby_ends_when_nobody_is_there_to_give_it_orders(module: Path) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.close()
    with theirs:
        assert standby._ordered(theirs, LoadedModules.now()) is None


def test_a_standby_does_not_go_on_loading_for_one_who_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("import time\ntime.sleep(3600)\n")  # It is never loaded.
    monkeypatch.setenv("PYTHONPATH", python_path(tmp_path))
    program = (
        "import sys\n"
        "from rl_orch.runners.local import Standby, variables\n"
        "print(Standby.start(variables(1)).child.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert starter.stdout is not None
    subreaper = psutil.Process(int(starter.stdout.readline()))
    (loading,) = until(subreaper.children)
    starter.kill()
    starter.communicate()
    until(lambda: not subreaper.is_running() and not loading.is_running())


def test_only_a_service_keeps_standbys(tmp_path: Path) -> None:
    runner = orchestrator.connect(tmp_path)._runner_of("local")
    assert isinstance(runner, LocalRunner)
    assert runner.standbys.count == 0
