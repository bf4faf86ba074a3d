"""What tests of every kind share: the command `rlctl`, carried out in this process, which does not
wait longer than it must, folders in memory, signals, and who begins with which tests.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

from rl_orch.cli.rlctl import run
from rl_orch.runners.local import LocalRunner
from tests.signals import hear_signals

hear_signals()
settings.register_profile(
    "as long as it takes", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("as long as it takes")

pytest_plugins = ["tests.postgres", "tests.stores"]

MEMORY = Path("/dev/shm")
FOLDER = "rlctl-tests-"
ROOM_BYTES = 4 << 30
"""A run of all tests leaves about a tenth of it behind."""

LONG = ("integration", "learning", "faults")
"""Folders with tests that take long."""

LONGEST = (
    *("test_readme.py", "test_warm.py", "test_known_answers.py", "test_configs.py"),
    *("test_leaks.py", "test_resume.py", "test_verify_resume.py", "test_modules.py"),
    *("test_eval.py", "test_up.py", "test_endings.py", "test_external.py", "test_roots.py"),
)
"""Files that take longest, and are begun with; the others follow as they come."""

PAUSE_S = 0.01
PAUSES = (
    "rl_orch.cli.live.follow.LOOK_EVERY_S",
    "rl_orch.cli.commands.logs.LOOK_EVERY_S",
    "rl_orch.core.runs.foreground.TICK_S",
    "rl_orch.core.service.TICK_S",
    "rl_orch.core.verbs.TICK_S",
)
"""How long this process rests before it looks again at what it waits for. The processes that it
starts rest as long as users' do."""


def pytest_configure(config: pytest.Config) -> None:
    """Temporary folders are in memory: programs die here, machines do not, and half of what many
    tests would take is a disk that says that it has written. With `--basetemp` they are there."""
    is_worker = hasattr(config, "workerinput")
    if is_worker or config.option.basetemp or not MEMORY.is_dir():
        return
    _sweep()
    if shutil.disk_usage(MEMORY).free > ROOM_BYTES:
        folder = tempfile.mkdtemp(prefix=f"{FOLDER}{os.getpid()}-", dir=MEMORY)
        config.option.basetemp = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def _sweep() -> None:
    """Remove what sessions have left that were killed."""
    for left in MEMORY.glob(f"{FOLDER}*"):
        pid = left.name.removeprefix(FOLDER).partition("-")[0]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(left, ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of several processes, each begins with its share of the files that take long. Others could
    not help with one that began when they have nothing left to do."""
    processes = getattr(config, "workerinput", {}).get("workercount", 1)
    if processes > 1:
        items[:] = _dealt(items, processes)


def _dealt(items: list[pytest.Item], processes: int) -> list[pytest.Item]:
    """The same tests, so that equal parts of them begin with equally many of the long files."""
    short = [item for item in items if item.path.parent.name not in LONG]
    long = (item for folder in LONG for item in items if item.path.parent.name == folder)
    files = [list(of_file) for _, of_file in groupby(long, lambda item: item.path)]
    files.sort(key=lambda of_file: _turn(of_file[0].path.name))
    dealt: list[pytest.Item] = []
    for number in range(processes):
        size = (len(items) - len(dealt)) // (processes - number)
        hand = [*chain(*files[number::processes])]
        fill = max(0, size - len(hand))
        dealt += [*hand, *short[:fill]]
        del short[:fill]
    return dealt + short


def _turn(name: str) -> int:
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


@pytest.fixture(scope="session", autouse=True)
def brief_pauses() -> Iterator[None]:
    """Whoever waits in this process looks again soon."""
    with pytest.MonkeyPatch.context() as patch:
        for pause in PAUSES:
            patch.setattr(pause, PAUSE_S)
        yield


def python_path(*folders: Path) -> str:
    """A path of modules that begins with folders. What is on it already stays, such as the very
    package that is tested."""
    return os.pathsep.join(filter(None, [*map(str, folders), os.environ.get("PYTHONPATH")]))


@dataclass(frozen=True)
class Ran:
    """What a command did: its exit code, and what it printed where."""

    code: int
    out: str
    err: str


@pytest.fixture
def rlctl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ran]:
    """The command, in an empty folder, with none of the variables that options read; it loads
    nothing for runs, none of which is really to be."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(LocalRunner, "prestart", lambda _runner, _spec: None)
    for name in [name for name in os.environ if name.startswith(("RL_", "RLCTL_", "OTEL_"))]:
        monkeypatch.delenv(name)

    def carry_out(*arguments: str) -> Ran:
        capsys.readouterr()
        code = run(arguments)
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return carry_out
