"""Commands that are started in the background, where signals are ignored: what they start hears
them all the same.
"""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rl_orch import orchestrator
from rl_orch.io.processes import pids
from rl_orch.io.processes.signals import OF_PYTHON
from rl_orch.records import Run
from tests.integration.conftest import RLCTL, SMALL, Shell, until
from tests.signals import ignored_by, ignoring
from tests.waiting import PATIENCE_S

LONG = ("launch", "--env", "CartPole-v1", *SMALL, "train.total_timesteps=1e9", "eval.every=1e9")
WAITING = """
import sys, time
print(open("/proc/self/status").read(), flush=True)
time.sleep(3600)
"""
"""A program that ends by any signal, and says which ones it ignores."""

ALL = "SIGINT SIGHUP SIGQUIT SIGTERM SIGCHLD"


def run_of(shell: Shell) -> Run:
    """The run of a home, once it has been trained for a while."""
    watched = orchestrator.connect(shell.home)
    found: Run = until(lambda: next((run for run in watched.ls().runs if run.env_steps > 0), None))
    return found


def root_of(path: str | Path) -> int:
    return pids.pid_of((Path(path) / "lock").read_text())


def external(shell: Shell, text: str) -> tuple[str, ...]:
    """The words that launch a program."""
    (shell.folder / "program.py").write_text(text)
    command = f"runner.command=[{sys.executable},{shell.folder}/program.py]"
    return ("launch", "--env", "X-v0", "--yes", "runner.name=external", command)


def test_a_launch_under_nohup_outlives_its_terminal(shell: Shell) -> None:
    terminal, theirs = pty.openpty()
    with (shell.folder / "nohup.out").open("wb") as said:
        # `setsid --ctty` would do, but not every machine has it.
        takes_terminal = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY); "
        takes_terminal += "os.execv(sys.argv[1], sys.argv[1:])"
        child = subprocess.Popen(
            [sys.executable, "-c", takes_terminal, *ignoring([*RLCTL, *LONG], "SIGHUP")],
            env=shell.environment,
            cwd=shell.folder,
            stdin=theirs,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    os.close(theirs)
    try:
        run = run_of(shell)
        os.close(terminal)
        watched = orchestrator.connect(shell.home)
        until(lambda: watched.get(run.id).env_steps > run.env_steps)
        assert child.poll() is None
        assert ignored_by(child.pid) == OF_PYTHON | {signal.SIGHUP}
        assert ignored_by(root_of(run.path)) == OF_PYTHON
        child.terminate()
        assert child.wait(timeout=PATIENCE_S) == 4
    finally:
        child.kill()
        child.wait()
    assert watched.get(run.id).state == "stopped"
    assert shell.processes() == []


def test_a_service_and_its_runs_hear_what_their_starter_ignores(shell: Shell) -> None:
    up = [*RLCTL, "up", "--detach", "--spares", "0", "--port", "0"]
    subprocess.run(
        ignoring(up, ALL, blocked="SIGTERM SIGINT"),
        env=shell.environment,
        cwd=shell.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE_S,
        check=True,
    )
    try:
        shell.json(*external(shell, WAITING), "--detach", "runner.stop_grace_s=3600", "name=waits")
        path: Path = until(lambda: next((shell.home / "runs").glob("waits-*"), None))
        until(lambda: "SigCgt" in (path / "log.txt").read_text())
        log = (path / "log.txt").read_text()
        (process,) = shell.run_processes()
        assert ignored_by(process.pid) == OF_PYTHON
        (program,) = process.children()
        assert ignored_by(program.pid) == OF_PYTHON
        assert "SigBlk:\t0000000000000000" in log
        stopped = shell.json("stop", path.name)
        assert stopped["state"] == "stopped"
        assert "ignored SIGTERM" not in stopped["reason"]
    finally:
        down = shell.run("down")
    assert down.returncode == 0
    assert shell.processes() == []


@pytest.mark.parametrize("ignored", [ALL, "SIGCHLD"])
def test_a_program_that_fails_has_failed_whatever_its_starter_ignores(
    shell: Shell, ignored: str
) -> None:
    words = external(shell, "raise SystemExit(3)")
    done: Any = subprocess.run(
        ignoring([*RLCTL, *words], ignored),
        env=shell.environment,
        cwd=shell.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1, done.stderr + done.stdout
    assert "its program ended with exit code 3" in done.stdout


def test_an_environment_that_ends_its_process_is_told_of_with_its_exit_code(shell: Shell) -> None:
    (shell.folder / "ending.py").write_text(
        "import os, gymnasium as gym\n"
        "gym.register('Ending-v0', entry_point=lambda **_: os._exit(7))\n"
    )
    words = ["check", "--env", "ending:Ending-v0"]
    done = subprocess.run(
        ignoring([*RLCTL, *words], ALL),
        env=shell.environment,
        cwd=shell.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 2
    assert "ended the process with exit code 7" in done.stderr
