"""`rlctl profile`, as a user starts it."""

import signal
from contextlib import suppress

import psutil
import pytest

from tests.integration.conftest import SMALL, Shell, until
from tests.waiting import PATIENCE_S

SHORT = (*SMALL, "--steps", "2048")

CRASHING = '''
"""CartPole that breaks after a while."""

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv


class Breaking(CartPoleEnv):
    steps = 0

    def step(self, action):
        Breaking.steps += 1
        print("a step")
        if Breaking.steps > 500:
            raise ZeroDivisionError("the pole is gone")
        return super().step(action)


gymnasium.register("Breaking-v0", Breaking, max_episode_steps=100)
'''


@pytest.fixture
def breaking(shell: Shell) -> str:
    """An environment that breaks after a while."""
    (shell.folder / "breaking.py").write_text(CRASHING)
    return "breaking:Breaking-v0"


def test_where_the_time_goes_is_told_and_no_run_is_made(shell: Shell) -> None:
    told = shell.json("profile", "--env", "CartPole-v1", *SHORT)
    assert told["settled"]["train.engine"]["value"] == "kernels"
    assert told["settled"]["env.backend"]["value"] == "native"
    assert [*told["parts"]] == ["env", "policy", "learner", "other"]
    assert sum(part["percent"] for part in told["parts"].values()) == pytest.approx(100.0)
    assert all(part["seconds"] > 0.0 for part in told["parts"].values())
    assert told["env_measured_alone"]
    assert told["steps"] == 2048
    assert told["steps_per_second"] == pytest.approx(2048 / told["seconds"])
    in_ms = sum(part["ms_per_1000_steps"] for part in told["parts"].values())
    assert in_ms == pytest.approx(1e6 / told["steps_per_second"])
    assert told["warm_up"]["steps"] == 256
    assert not shell.home.exists()


def test_people_are_told_why_and_what_would_help(shell: Shell) -> None:
    words = ("--env", "CartPole-v1", *SHORT, "train.engine=torch", "agent.network.activation=elu")
    done = shell.run("profile", *words, "env.kwargs={sutton_barto_reward: true}")
    assert done.returncode == 0, done.stderr
    assert "train.engine  torch: the spec says so" in done.stdout
    assert "env.backend   sync: native is not possible, because env.kwargs is" in done.stdout
    assert "steps/s: 2,048 steps in" in done.stdout
    assert "profile again with agent.network.activation=relu train.engine=kernels" in done.stdout


def test_of_a_group_one_run_is_profiled(shell: Shell) -> None:
    torch = ("train.engine=torch", "env.backend=sync")
    told = shell.json("profile", "--env", "CartPole-v1", *SHORT, *torch, "--seeds", "3")
    assert told["steps"] == 2048


def test_an_environment_that_breaks_is_an_error_in_a_sentence(shell: Shell, breaking: str) -> None:
    done = shell.run("profile", "--env", breaking, *SHORT, "train.engine=torch")
    assert done.returncode == 1
    assert "exit code 1: ZeroDivisionError: the pole is gone" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_program_of_ones_own_and_a_bad_spec_are_bad_input(shell: Shell) -> None:
    words = ("--env", "X-v0", "runner.name=external", "runner.command=[python,x.py]")
    assert "must be 'local'" in shell.json("profile", *words, code=2)["error"]["message"]
    told = shell.json("profile", "--env", "CartPole-v1", "train.lr=-1", code=2)
    assert told["error"]["path"] == "train.lr"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -15)])
def test_whoever_ends_the_command_ends_the_training_too(
    shell: Shell, number: signal.Signals, code: int
) -> None:
    child = shell.start(
        *("profile", "--env", "CartPole-v1", *SMALL, "--seconds", "600"),
        *("train.engine=torch", "env.backend=sync"),
    )

    def training() -> list[psutil.Process]:
        """The program, and the subreaper above it."""
        started = psutil.Process(child.pid).children(recursive=True)
        with suppress(psutil.NoSuchProcess):  # As a child that compiles may be by now.
            both = [one for one in started if "rl_orch.worker.tasks.profile" in one.cmdline()]
            return both if len(both) == 2 else []
        return []

    both: list[psutil.Process] = until(training)
    child.send_signal(number)
    _, said = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == code
    assert "Traceback" not in said
    assert until(lambda: not any(map(psutil.Process.is_running, both)))
