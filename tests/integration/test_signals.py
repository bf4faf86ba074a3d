"""Tests that are started in the background have the same verdicts: what is ignored there is not
ignored by the programs that they test, and ends no test.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rl_orch.io.processes.signals import OF_PYTHON
from tests.signals import ignoring, signals_in, unheeded_signals
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
SIGNALS = "print(open('/proc/self/status').read())"


def test_processes_that_tests_start_ignore_nothing_but_what_python_does() -> None:
    told = subprocess.run(
        [sys.executable, "-c", SIGNALS], stdout=subprocess.PIPE, text=True, check=True
    )
    assert signals_in("SigIgn", told.stdout) == OF_PYTHON
    assert signals_in("SigBlk", told.stdout) == set()


def test_a_signal_that_tests_are_to_outlive_ends_none() -> None:
    shares_out = [os.getppid()] if "PYTEST_XDIST_WORKER" in os.environ else []
    for number in unheeded_signals():
        for pid in (os.getpid(), *shares_out):
            os.kill(pid, number)


@pytest.mark.parametrize("processes", ["0", "1"])
def test_the_same_holds_where_signals_are_ignored_and_there_is_no_terminal(
    processes: str, tmp_path: Path
) -> None:
    inner = "ignore_nothing or outlive"
    words = ["-p", "no:cacheprovider", "-n", processes, "-k", inner, __file__]
    words.append(f"--basetemp={tmp_path / 'inner'}")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    told = subprocess.run(
        ignoring(
            [sys.executable, "-m", "pytest", *words],
            "SIGINT SIGHUP SIGQUIT SIGTERM SIGCHLD SIGUSR1",
            blocked="SIGTERM SIGUSR1",
        ),
        cwd=ROOT,
        env=clean | {"TESTS_UNHEEDED_SIGNALS": ""},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert told.returncode == 0, told.stdout
    assert "2 passed" in told.stdout


def test_what_ends_tests_in_the_foreground_still_does() -> None:
    program = "import signal, tests.conftest; print(signal.getsignal(signal.SIGINT).__name__)"
    told = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ | {"TESTS_UNHEEDED_SIGNALS": ""},
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert told.stdout.strip() == signal.default_int_handler.__name__
