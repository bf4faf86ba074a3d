"""Environments that fail under way: the copy, the cause and the user's own line are told."""

import os
import signal
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest

from rl_orch.core.ports import Exit
from rl_orch.core.runs.progress import Progress, worth_a_retry
from rl_orch.errors import RlctlError
from rl_orch.rl.collect.rollout import local
from rl_orch.rl.evaluate import evaluate
from rl_orch.spec.resolve import resolve
from rl_orch.worker.attempt.lifecycle import failure
from tests.unit.test_rl_evaluate import a_policy

GOOD = 3
"""Steps before the one that fails."""


class Odd(Exception):
    """An error that no other process can read."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} {two}")
        self.never_pickled = lambda: 0


class Failing(gymnasium.Env[Any, Any]):
    """Fails in one step, in a way of its own."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, how: str, ends: bool = False) -> None:
        self.how, self.ends, self.steps = how, ends, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        assert self.how != "reset", "no way to begin"
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        shape, reward = (2,), 1.0
        if self.steps > GOOD:
            shape, reward = self.fail()
        return np.zeros(shape, np.float32), reward, self.ends and self.steps > GOOD, False, {}

    def fail(self) -> Any:
        match self.how:
            case "shape":
                return (3,), 1.0
            case "reward":
                return (2,), np.zeros(2)
            case "assert":
                raise AssertionError("joint out of range")
            case "odd":
                raise Odd("joint", "out of range")
            case "gone":
                raise ConnectionError("no simulator")
            case "exit":
                raise SystemExit("joint out of range")
            case "crash":
                os.kill(os.getpid(), signal.SIGSEGV)


gymnasium.register("Failing-v0", f"{__name__}:Failing")


def a_spec(how: str, backend: str, copies: int = 1, *, ends: bool = False) -> Any:
    env = {"id": "Failing-v0", "kwargs": {"how": how, "ends": ends}, "max_episode_steps": 99}
    return resolve({"env": env | {"backend": backend, "num_envs": copies}})


def collecting(how: str, backend: str, copies: int = 1, *, ends: bool = False) -> BaseException:
    """The error that ends the collecting of a rollout."""
    spec = a_spec(how, backend, copies, ends=ends)
    with pytest.raises((Exception, SystemExit)) as failed, closing(local(spec, "captured")) as it:
        it.collect(a_policy(spec), 2 * GOOD)
    return failed.value


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("assert", "AssertionError: joint out of range"),
        ("odd", "Odd: joint out of range"),
        ("exit", "SystemExit: joint out of range"),
    ],
)
@pytest.mark.parametrize("backend", ["sync", "async"])
def test_an_error_of_an_environment_is_told_with_its_text_and_the_users_line(
    backend: str, how: str, said: str
) -> None:
    why = failure(collecting(how, backend), 0).why
    assert said in why
    assert "test_rl_failures.py, line" in why
    if backend == "async":
        assert why.startswith("copy 0 of Failing-v0 failed after 3 steps of training")


def test_a_process_of_a_copy_that_was_killed_is_told_with_its_signal_and_may_be_tried_again() -> (
    None
):
    error = collecting("crash", "async", copies=2)
    assert "was killed by SIGSEGV after 6 steps of training; it was of Failing-v0" in str(error)
    assert str(error).startswith("the process of copy ")
    assert not failure(error, 0).repeats


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_an_error_that_comes_from_an_environments_code_repeats_and_one_of_the_system_may_pass(
    backend: str,
) -> None:
    ends = [failure(collecting(how, backend), 0) for how in ("assert", "gone")]
    assert [(end.repeats, end.final) for end in ends] == [(True, False), (False, False)]
    assert worth_a_retry(Progress(), Exit(ends[0].code))


@pytest.mark.parametrize("ends", [False, True], ids=["under way", "as an episode ends"])
def test_an_observation_of_another_shape_is_told_with_both_shapes(ends: bool) -> None:
    said = str(collecting("shape", "sync", copies=2, ends=ends))
    assert said.startswith("copy 0 ")
    assert "observation of shape (3,); its space has the shape (2,)" in said


def test_a_shape_that_a_process_of_a_copy_cannot_take_in_is_told_with_the_copy() -> None:
    said = str(collecting("shape", "async"))
    assert said.startswith("copy 0 of Failing-v0 failed after 3 steps of training")
    assert "(3,)" in said
    assert "(2,)" in said


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_a_reward_that_is_no_number_is_told_with_the_copy_and_the_step(backend: str) -> None:
    said = str(collecting("reward", backend))
    assert said.startswith("copy 0 of Failing-v0 ")
    assert "after 3 steps of training" in said


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_a_reset_that_fails_is_told_with_its_text_and_place(backend: str) -> None:
    why = failure(collecting("reset", backend), 0).why
    assert "AssertionError: no way to begin" in why
    assert "test_rl_failures.py" in why


def test_an_evaluation_tells_of_a_failing_copy_as_well() -> None:
    spec = a_spec("assert", "async", copies=2)
    with pytest.raises(RlctlError, match=r"failed in an evaluation: AssertionError: joint out of"):
        evaluate(a_policy(spec), spec, episodes=2, seed=1, deterministic=True, step=0)
