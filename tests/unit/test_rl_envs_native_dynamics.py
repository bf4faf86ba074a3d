"""Kernels of classic control: one step of theirs is one step of Gymnasium's."""

from dataclasses import dataclass
from functools import cache
from math import pi
from typing import Any

import gymnasium
import numba
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rl_orch.rl.envs.native import dynamics
from rl_orch.spec.native import NATIVE

pytestmark = pytest.mark.filterwarnings("ignore:.*out of date")

CLOSE = 1e-12


@dataclass(frozen=True)
class After:
    """What a step made of a state."""

    state: NDArray[Any]
    observation: NDArray[np.float32]
    reward: float
    terminated: bool


@cache
def reference(env_id: str) -> Any:
    env = gymnasium.make(env_id).unwrapped
    env.reset(seed=0)
    return env


def by_gymnasium(env_id: str, state: NDArray[Any], action: Any) -> After:
    env = reference(env_id)
    env.state, env.steps_beyond_terminated = state.copy(), None
    observation, reward, terminated, _, _ = env.step(action)
    return After(np.array(env.state, np.float64), observation, float(reward), terminated)


def by_kernel(env_id: str, state: NDArray[Any], action: Any, *, stepped: bool = False) -> After:
    kind = dynamics.KINDS[NATIVE[env_id].dynamics]
    row = np.zeros(dynamics.ROW)
    row[: len(state)] = state
    if stepped:
        row[2] = 1.0
    reward, terminated = dynamics.step_one(kind, row, action)
    shown = np.zeros(reference(env_id).observation_space.shape, np.float32)
    dynamics.observe_one(kind, row, shown)
    return After(row[: len(state)], shown, reward, terminated)


def assert_alike(ours: After, theirs: After) -> None:
    np.testing.assert_allclose(ours.state, theirs.state, rtol=CLOSE, atol=CLOSE)
    np.testing.assert_allclose(ours.observation, theirs.observation, rtol=1e-6, atol=1e-7)
    assert ours.reward == pytest.approx(theirs.reward, rel=CLOSE, abs=CLOSE)
    assert ours.terminated == theirs.terminated


def numbers(*bounds: float) -> st.SearchStrategy[NDArray[np.float64]]:
    """Arrays whose i-th number is at most the i-th bound from zero."""
    return st.tuples(*(st.floats(-bound, bound) for bound in bounds)).map(np.array)


def forces(bound: float) -> st.SearchStrategy[NDArray[np.float32]]:
    return st.floats(-bound, bound, width=32).map(lambda force: np.array([force], np.float32))


cars = st.tuples(st.floats(-1.2, 0.6), st.floats(-0.07, 0.07)).map(np.array)
at_the_wall = np.array([-1.19, -0.07])
at_the_goal = np.array([0.49, 0.05])
full = np.array([1.5], np.float32)


@settings(max_examples=300, deadline=None)
@given(numbers(2.6, 5.0, 0.25, 5.0), st.integers(0, 1))
@example(np.array([2.39, 1.0, 0.0, 0.0]), 1)
@example(np.array([0.0, 0.0, 0.209, 0.1]), 0)
def test_a_step_of_cartpole(state: NDArray[np.float64], action: int) -> None:
    given = np.int64(action)
    ours = by_kernel("CartPole-v1", state, given)
    assert_alike(ours, by_gymnasium("CartPole-v1", state, given))
    assert ours.reward == 1.0


@settings(max_examples=300, deadline=None)
@given(cars, st.integers(0, 2))
@example(at_the_wall, 0)
@example(at_the_goal, 2)
def test_a_step_of_mountain_car(state: NDArray[np.float64], action: int) -> None:
    given = np.int64(action)
    ours = by_kernel("MountainCar-v0", state, given)
    assert_alike(ours, by_gymnasium("MountainCar-v0", state, given))


@settings(max_examples=300, deadline=None)
@given(cars, forces(1.5))
@example(at_the_wall, -full)
@example(at_the_goal, full)
def test_the_first_step_of_mountain_car_continuous_is_from_double_precision(
    state: NDArray[np.float64], force: NDArray[np.float32]
) -> None:
    ours = by_kernel("MountainCarContinuous-v0", state, force[0])
    assert_alike(ours, by_gymnasium("MountainCarContinuous-v0", state, force))


@settings(max_examples=300, deadline=None)
@given(cars, forces(1.5))
@example(at_the_wall, -full)
@example(at_the_goal, full)
@example(np.array([0.44, 0.069]), full)
def test_later_steps_of_mountain_car_continuous_are_from_single_precision(
    state: NDArray[np.float64], force: NDArray[np.float32]
) -> None:
    single = state.astype(np.float32)
    ours = by_kernel("MountainCarContinuous-v0", single, force[0], stepped=True)
    assert_alike(ours, by_gymnasium("MountainCarContinuous-v0", single, force))


@settings(max_examples=300, deadline=None)
@given(numbers(pi, pi, 4 * pi, 9 * pi), st.integers(0, 2))
@example(np.array([pi, pi, 4 * pi, 9 * pi]), 2)
@example(np.array([3.0, 0.1, 1.0, 1.0]), 1)
def test_a_step_of_acrobot(state: NDArray[np.float64], action: int) -> None:
    given = np.int64(action)
    ours = by_kernel("Acrobot-v1", state, given)
    assert_alike(ours, by_gymnasium("Acrobot-v1", state, given))


@settings(max_examples=300, deadline=None)
@given(numbers(20.0, 8.0), forces(3.0))
@example(np.array([pi, 8.0]), full * 2)
@example(np.array([-7.0, -8.0]), -full * 2)
def test_a_step_of_pendulum(state: NDArray[np.float64], torque: NDArray[np.float32]) -> None:
    ours = by_kernel("Pendulum-v1", state, torque[0])
    assert_alike(ours, by_gymnasium("Pendulum-v1", state, torque))


def test_the_reward_of_pendulum_has_the_roundings_of_single_precision() -> None:
    torques = np.random.default_rng(0).uniform(-2, 2, 3000).astype(np.float32)
    state = np.array([0.3, -0.2])
    for torque in torques:
        ours = by_kernel("Pendulum-v1", state, torque)
        theirs = by_gymnasium("Pendulum-v1", state, torque[None])
        assert ours.reward == pytest.approx(theirs.reward, rel=0, abs=CLOSE)


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "MountainCarContinuous-v0"])
def test_an_action_that_is_no_number_is_not_hidden(env_id: str) -> None:
    after = by_kernel(env_id, np.array([-0.5, 0.0]), np.float32(np.nan))
    assert np.isnan(after.state).all()
    assert np.isnan(after.reward)


def _pushed_left(kind: int, state: NDArray[np.float64], steps: int) -> int:
    """Steps until the first copy has ended."""
    for step in range(steps):
        for i in range(len(state)):
            _, terminated = dynamics.step_one(kind, state[i], 0)
            if terminated:
                return step + 1
    return -1


def test_other_kernels_can_step_a_copy() -> None:
    env = gymnasium.make("CartPole-v1")
    env.reset(seed=3)
    state = np.array([reference_state(env)])
    steps, terminated = 0, False
    while not terminated:
        _, _, terminated, _, _ = env.step(0)
        steps += 1
    # Not kept on disk, where it would outlive a change of the dynamics.
    compiled: Any = numba.njit(_pushed_left)
    assert compiled(dynamics.CARTPOLE, state, 100) == steps


def reference_state(env: gymnasium.Env[Any, Any]) -> NDArray[np.float64]:
    inner: Any = env.unwrapped
    return np.array(inner.state)
