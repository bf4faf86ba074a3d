"""How runs end when somebody ends them: the truth is told, nothing is left behind."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rl_orch import orchestrator
from rl_orch.io.checkpoints import catalog
from rl_orch.io.processes import pids
from rl_orch.io.run import command_socket
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.heartbeat import last_beat
from tests.integration.conftest import RLCTL, SMALL, Shell, until
from tests.waiting import PATIENCE_S

LONG = ("train.total_timesteps=1e9", "eval.every=1e9", *SMALL)


def launched(shell: Shell) -> tuple[subprocess.Popen[str], dict[str, Any]]:
    """A long run that has been trained for a while."""
    child = shell.start("launch", "--env", "CartPole-v1", *LONG, "--json")

    watched = orchestrator.connect(shell.home)

    def running() -> dict[str, Any] | None:
        run = next((run for run in watched.ls().runs if run.env_steps > 0), None)
        return None if run is None else run.model_dump(mode="json")

    found: dict[str, Any] = until(running)
    return child, found


def worker_pid(run: dict[str, Any]) -> int:
    """The pid of the run's root, by the lock it holds."""
    return pids.pid_of((Path(run["path"]) / "lock").read_text())


HANGING = """
import pathlib, threading
import gymnasium, numpy
HERE = pathlib.Path(__file__).parent

class Hanging(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), numpy.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        if (HERE / "hang").exists():
            (HERE / "hangs").touch()
            threading.Event().wait()
        self.steps += 1
        return self.observation_space.sample(), 1.0, self.steps == 20, False, {}

gymnasium.register("Hanging-v0", Hanging)
"""


def hanging(shell: Shell, *words: str) -> tuple[subprocess.Popen[str], RunDir]:
    """A launch whose environment no longer returns from a step, after a while of training."""
    (shell.folder / "hanging.py").write_text(HANGING)
    sync = ("env.backend=sync", "train.engine=torch")
    child = shell.start("launch", "--env", "hanging:Hanging-v0", *LONG, *sync, *words, "--json")
    watched = orchestrator.connect(shell.home)
    run = until(lambda: next((run for run in watched.ls().runs if run.env_steps > 0), None))
    (shell.folder / "hang").touch()
    until((shell.folder / "hangs").exists)
    return child, RunDir.of(run)


def test_a_run_whose_environment_hangs_says_so_and_is_ended_by_a_stop(shell: Shell) -> None:
    child, directory = hanging(shell, "runner.stop_grace_s=1")
    beat = last_beat(directory.heartbeat)
    until(lambda: last_beat(directory.heartbeat) != beat)  # Its process lives all the same.
    long_ago = directory.events.stat().st_mtime - 240
    os.utime(directory.events, (long_ago, long_ago))
    shown = shell.json("show", directory.path.name)
    assert (shown["state"], shown["quiet_s"] >= 240) == ("running", True)
    stopped = shell.json("stop", directory.path.name)
    assert (stopped["state"], "it ignored SIGTERM for 1 s" in stopped["reason"]) == (
        "stopped",
        True,
    )
    child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 4
    assert shell.processes() == []


def test_a_run_whose_environment_hangs_is_killed_at_once_where_that_is_asked(shell: Shell) -> None:
    child, directory = hanging(shell, "runner.stop_grace_s=3600")
    stopped = shell.json("stop", directory.path.name, "--force")
    assert (stopped["state"], "killed as asked" in stopped["reason"]) == ("stopped", True)
    child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 4
    assert shell.processes() == []


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)]
)
def test_a_signal_stops_the_run_after_a_last_checkpoint(
    shell: Shell, number: signal.Signals
) -> None:
    child, run = launched(shell)
    child.send_signal(number)
    child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 4
    shown = shell.json("show", run["id"])
    assert shown["state"] == "stopped"
    saved = catalog.listing(Path(run["path"]) / "checkpoints")
    assert saved[-1].intact
    assert saved[-1].step == shown["env_steps"]
    assert shell.processes() == []


def test_stop_from_elsewhere_ends_the_run_and_the_launch(shell: Shell) -> None:
    child, run = launched(shell)
    stopped = shell.json("stop", run["id"])
    assert stopped["state"] == "stopped"
    child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 4
    assert shell.processes() == []


def test_a_forced_stop_ends_a_run_that_does_not_listen(shell: Shell) -> None:
    child, run = launched(shell)
    os.kill(worker_pid(run), signal.SIGSTOP)
    stopped = shell.json("stop", run["id"], "--force")
    assert stopped["state"] == "stopped"
    assert "killed" in stopped["reason"]
    child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 4
    assert shell.processes() == []


def test_a_killed_worker_is_a_failed_run_that_says_so(shell: Shell) -> None:
    child, run = launched(shell)
    os.kill(worker_pid(run), signal.SIGKILL)
    child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 1
    shown = shell.json("show", run["id"])
    assert shown["state"] == "failed"
    assert "SIGKILL" in shown["reason"]
    assert shown["attempts"][0]["exit_code"] == -signal.SIGKILL


def test_a_launch_whose_reader_leaves_goes_on_to_its_own_end(shell: Shell) -> None:
    child = shell.start(
        "launch", "--env", "CartPole-v1", *SMALL, "train.total_timesteps=512", "--min-reward", "490"
    )
    assert child.stderr is not None
    assert child.stdout is not None
    assert child.stderr.readline()
    child.stderr.close()
    child.stdout.close()
    assert child.wait(PATIENCE_S) == 3
    (run,) = shell.json("ls")["runs"]
    assert run["state"] == "rejected"
    until(lambda: not shell.processes())


def test_output_that_finds_no_room_is_left_out_and_ends_nothing(shell: Shell) -> None:
    with Path("/dev/full").open("w") as full:
        for stdout, stderr, said in (
            (full, subprocess.PIPE, "cannot be written"),
            (None, full, ""),
        ):
            done = subprocess.run(
                [*RLCTL, "ls"],
                env=shell.environment,
                stdout=stdout or subprocess.DEVNULL,
                stderr=stderr,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            assert done.returncode == 0
            assert said in (done.stderr or "")
            assert "Traceback" not in (done.stderr or "")


def test_logs_that_nobody_reads_any_more_are_no_longer_followed(shell: Shell) -> None:
    child, run = launched(shell)
    follower = shell.start("logs", "-f", "--events", run["id"])
    assert follower.stdout is not None
    assert follower.stdout.readline()
    follower.stdout.close()
    assert follower.wait(PATIENCE_S) == 0
    assert shell.json("show", run["id"])["state"] == "running"
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=PATIENCE_S)


def test_a_run_outlives_its_killed_supervisor_and_can_still_be_talked_to(shell: Shell) -> None:
    child, run = launched(shell)
    child.kill()
    child.communicate(timeout=PATIENCE_S)
    before = shell.json("show", run["id"])
    assert before["state"] == "running"
    folder = Path(run["path"])
    assert command_socket.send(folder, "checkpoint")["ok"]
    until(lambda: catalog.listing(folder / "checkpoints"))
    assert command_socket.send(folder, "pause")["ok"]
    refused = command_socket.send(folder, "render")
    assert not refused["ok"]
    assert "stop, checkpoint, pause, unpause" in refused["error"]
    stopped = shell.json("stop", run["id"])
    assert stopped["state"] == "stopped"
    assert stopped["env_steps"] >= before["env_steps"]
    assert shell.processes() == []


def test_a_run_that_misses_its_gate_is_rejected_with_exit_code_three(shell: Shell) -> None:
    budget = ("train.total_timesteps=512", "eval.every=256", "gates.patience=1")
    run = shell.train("--env", "CartPole-v1", "--min-reward", "490", *SMALL, *budget, code=3)
    assert (run["state"], run["verdict"]) == ("rejected", "failed")
    assert run["env_steps"] == 256
    assert not shell.json("show", "last")["models"][0]["validated"]


def test_an_environment_that_breaks_fails_the_run_with_its_reason(shell: Shell) -> None:
    (shell.folder / "breaking.py").write_text(
        "import gymnasium as gym\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Breaking(CartPoleEnv):\n"
        "    steps = 0\n"
        "    def step(self, action):\n"
        "        Breaking.steps += 1\n"
        "        if Breaking.steps > 100:\n"
        "            raise RuntimeError('the simulator tripped')\n"
        "        return super().step(action)\n"
        "gym.register('Breaking-v0', Breaking, max_episode_steps=50)\n"
    )
    budget = ("train.total_timesteps=2048", "eval.every=1024")
    run = shell.json("launch", "--env", "breaking:Breaking-v0", *SMALL, *budget, code=1)
    assert run["state"] == "failed"
    assert run["reason"] == "RuntimeError: the simulator tripped (breaking.py, line 8)"
    assert "Traceback" in shell.run("logs", "last").stdout
