"""Every runner keeps the same contract, and each has something of its own."""

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from rl_orch.core.ports import Exit, Runner, Task
from rl_orch.errors import BadInput
from rl_orch.runners import spec_check
from rl_orch.runners.inline import InlineRunner
from rl_orch.runners.local import LocalRunner
from rl_orch.testing import (
    BackgroundRunnerContract,
    FakeRunner,
    RunnerContract,
    a_spec,
    trains_to,
)
from tests.conftest import python_path
from tests.integration.conftest import until
from tests.waiting import PATIENCE_S

HANGING = """
import os, pathlib, time, gymnasium
def hang():
    made = pathlib.Path(__file__).with_name("made")
    made.with_suffix(".new").write_text(str(os.getpid()))
    made.with_suffix(".new").rename(made)
    time.sleep(3600)
gymnasium.register("Hanging-v0", hang)
"""
"""A module whose environment is never finished, and notes the pid that tries to make it."""


@contextmanager
def checking(folder: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that checks a spec whose environment hangs, and the pid that makes it."""
    (folder / "hanging.py").write_text(HANGING)
    code = (
        "from rl_orch.runners.local import LocalRunner; from rl_orch.testing import a_spec; "
        "LocalRunner().check(a_spec(env_id='hanging:Hanging-v0'))"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": python_path(folder)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until((folder / "made").exists)
        yield child, int((folder / "made").read_text())
    finally:
        child.kill()
        child.communicate()


def drawn(between: Callable[[], object] = lambda: None) -> list[float]:
    """What the process-wide generators give after a fixed seed and something in between."""
    random.seed(3)
    np.random.seed(3)
    torch.manual_seed(3)
    between()
    return [random.random(), float(np.random.random()), float(torch.rand(()))]


class TestLocalRunner(BackgroundRunnerContract):
    """Child processes of this machine."""

    def make_runner(self) -> Runner:
        return LocalRunner()

    def test_an_interrupt_ends_the_check_and_blames_nobody(self, tmp_path: Path) -> None:
        with checking(tmp_path) as (child, maker):
            child.send_signal(signal.SIGINT)
            said = child.communicate(timeout=PATIENCE_S)[1]
        assert "KeyboardInterrupt" in said
        assert "SpecInvalid" not in said
        assert not psutil.pid_exists(maker)

    def test_a_check_does_not_hear_the_signals_of_our_terminal(self, tmp_path: Path) -> None:
        with checking(tmp_path) as (child, maker):
            assert os.getsid(maker) != os.getsid(child.pid)
            child.send_signal(signal.SIGINT)
            child.communicate(timeout=PATIENCE_S)

    def test_a_check_that_takes_too_long_leaves_no_process_behind(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "hanging.py").write_text(HANGING)
        monkeypatch.setenv("PYTHONPATH", python_path(tmp_path))
        made = tmp_path / "made"
        for timeout_s in (5.0, 50.0, PATIENCE_S):  # A busy machine needs more to get there.
            monkeypatch.setattr(spec_check, "CHECK_TIMEOUT_S", timeout_s)
            with pytest.raises(BadInput, match=f"took longer than {timeout_s:.0f} s"):
                LocalRunner().check(a_spec(env_id="hanging:Hanging-v0"))
            if made.exists():
                break
        assert not psutil.pid_exists(int(made.read_text()))


class TestInlineRunner(RunnerContract):
    """The calling process itself."""

    def make_runner(self) -> Runner:
        return InlineRunner()

    def test_a_thread_that_is_not_the_main_one_can_run_it(self, tmp_path: Path) -> None:
        runner, directory = self.make_runner(), self.make_directory(tmp_path)
        handles: list[str] = []
        thread = threading.Thread(
            target=lambda: handles.append(runner.start(directory, Task(attempt=1)))
        )
        thread.start()
        thread.join()
        assert [runner.poll(handle) for handle in handles] == [Exit(0)]

    def test_the_caller_keeps_its_random_numbers_and_threads(self, tmp_path: Path) -> None:
        runner, directory = self.make_runner(), self.make_directory(tmp_path)
        threads = torch.get_num_threads()
        torch.set_num_threads(3)
        try:
            assert drawn(lambda: runner.start(directory, Task(attempt=1))) == drawn()
            assert torch.get_num_threads() == 3
        finally:
            torch.set_num_threads(threads)


class TestFakeRunner(RunnerContract):
    """The fake that other tests rely on. At once, its roots are gone when `start` returns."""

    def make_runner(self) -> Runner:
        return FakeRunner(trains_to([1.0]))

    def test_a_root_that_waits_is_adopted_until_it_ends(self, tmp_path: Path) -> None:
        runner = FakeRunner(trains_to([1.0]), at_once=False)
        directory = self.make_directory(tmp_path)
        handle = runner.start(directory, Task(attempt=1))
        assert runner.adopt(directory) == handle
        assert runner.adopt(tmp_path / "elsewhere") is None
        runner.stop(handle, force=True)
        assert runner.adopt(directory) is None
