"""The real command, started as a user starts it."""

import fcntl
import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from rl_orch.cli import rlctl
from rl_orch.errors import RlctlError
from rl_orch.io.processes import pids, run_process
from rl_orch.io.run.directory import RunDir
from tests.conftest import python_path
from tests.waiting import PATIENCE_S

RLCTL = [sys.executable, "-c", "from rl_orch.cli.rlctl import main; main()"]

SMALL = (
    "env.num_envs=4",
    "rollout.steps=64",
    "train.batch_size=64",
    "train.update_epochs=2",
    "eval.episodes=4",
    "eval.final_episodes=10",
)
"""Overrides that make a launch take seconds."""

RESUMED = (
    "launch",
    "--env",
    "CartPole-v1",
    "env.seed=3",
    *SMALL,
    "train.total_timesteps=12288",
    "train.update_epochs=4",
    "train.engine=torch",
    "env.backend=sync",
    "checkpoint.every=512",
    "checkpoint.keep_last=1000",
    "checkpoint.keep_training_state=always",
    "eval.every=4096",
)
"""A launch that lasts long enough to be interrupted; kernels would be through with it."""


HERE = frozenset(
    (
        *("compare", "eval", "export", "import-run", "infer", "logs", "ls", "play", "profile"),
        *("promote", "registry", "rm", "rollback", "show", "stop"),
    )
)
"""Commands that are carried out in this process. They look, note or wait for children of their own,
and to load a Python for each would take longer than what it does."""


INLINE = "runner.name=inline"
"""The override of a launch that has no processes of its own."""


@dataclass
class Shell:
    """A home, and `rlctl` in it."""

    home: Path
    folder: Path
    _children: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that `rlctl` is started with."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("RL_", "RLCTL_"))}
        return inherited | {"RLCTL_HOME": str(self.home), "PYTHONPATH": python_path(self.folder)}

    def run(
        self, *arguments: str, timeout_s: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        """Carry a command out."""
        if arguments[0] in HERE:
            return self._run_here(arguments)
        return subprocess.run(
            [*RLCTL, *arguments],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def json(self, *arguments: str, code: int = 0, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        """The document that a command prints; its exit code must be the given one."""
        done = self.run(*arguments, "--json", timeout_s=timeout_s)
        assert done.returncode == code, done.stderr + done.stdout
        document = json.loads(done.stdout)
        assert isinstance(document, dict)
        return document

    def train(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        """What became of a launch in this process, which has torch: for tests that are about what
        is done with a run. How processes carry one out is tested with `run` and `start`."""
        done = self._run_here(("launch", *arguments, INLINE, "--json"))
        assert done.returncode == code, done.stderr + done.stdout
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def _run_here(self, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            for name in os.environ.keys() - self.environment.keys():
                patch.delenv(name)
            for name, value in self.environment.items():
                patch.setenv(name, value)
            patch.chdir(self.folder)
            code = rlctl.run(arguments)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read(), err.read())

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command and return at once."""
        child = subprocess.Popen(
            [*RLCTL, *arguments],
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._children.append(child)
        return child

    def processes(self) -> list[psutil.Process]:
        """Every process that works in this home."""
        holders = [_lock_holder(path) for path in self.home.glob("runs/*")]
        working = {pids.pid_of(holder) for holder in holders if holder is not None}
        found = []
        for process in psutil.process_iter(["cmdline", "status"]):
            words = process.info["cmdline"] or []
            dead = process.info["status"] == psutil.STATUS_ZOMBIE
            works = process.pid in working or any(str(self.home) in word for word in words)
            if works and not dead:
                found.append(process)
        return found

    def run_processes(self) -> list[psutil.Process]:
        """Those that carry out attempts and evaluations, cold or warm."""
        return [process for process in self.processes() if process.name() == run_process.NAME]

    def close(self) -> None:
        """End whatever a test has left behind."""
        for child in self._children:
            child.kill()
            child.communicate()
        for process in self.processes():
            process.kill()


def _lock_holder(path: Path) -> str | None:
    """Who holds the lock of a run directory, which a test may have made something else."""
    try:
        return RunDir(path).lock_holder()
    except RlctlError:
        return None


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path / "home", tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunDir]:
    """What `RESUMED` leaves behind when nothing interrupts it. All processes of these tests share
    one, which nobody changes."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "whole"
    folder.mkdir(exist_ok=True)
    made, path = Shell(folder / "home", folder), folder / "path"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            path.write_text(made.json(*RESUMED)["path"], "utf-8")
    yield RunDir(Path(path.read_text("utf-8")))
    made.close()


def until(condition: Callable[[], Any], *, timeout_s: float = PATIENCE_S) -> Any:
    """What the condition says as soon as it says something true."""
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while not (answer := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        pause.wait(0.05)
    return answer
