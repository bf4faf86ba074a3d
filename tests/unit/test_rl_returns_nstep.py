"""Advantages and n-step returns: by hand, and against sums written out for each row."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rl_orch.rl.data.returns import gae, n_step

a_few = settings(max_examples=40, deadline=None)
shapes = st.tuples(st.integers(1, 7), st.integers(1, 3))
discounts = st.sampled_from([0.0, 0.5, 0.99, 1.0])
seeds = st.integers(0, 2**32 - 1)


def close(ours: NDArray[Any], theirs: Any) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)


def flags(rng: np.random.Generator, shape: tuple[int, ...], share: float) -> NDArray[np.bool_]:
    return rng.random(shape) < share


def window(t: int, copy: int, ended: NDArray[np.bool_], n: int) -> list[int]:
    """The rows of the window that begins at row t."""
    rows = [t]
    while len(rows) < n and not ended[rows[-1], copy] and rows[-1] + 1 < len(ended):
        rows.append(rows[-1] + 1)
    return rows


@a_few
@given(shapes, discounts, discounts, seeds)
def test_gae_is_the_discounted_sum_of_the_errors_up_to_the_end(
    shape: tuple[int, int], gamma: float, lam: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rewards, values, next_values = rng.normal(size=(3, *shape))
    dones = flags(rng, shape, 0.3)
    found = gae(rewards, values, next_values, dones, gamma=gamma, lam=lam)
    for t, copy in np.ndindex(shape):
        rows = window(t, copy, dones, len(rewards))
        errors = [rewards[i, copy] + gamma * next_values[i, copy] - values[i, copy] for i in rows]
        close(found[t, copy], sum((gamma * lam) ** i * error for i, error in enumerate(errors)))


@a_few
@given(shapes, discounts, seeds)
def test_gae_with_lambda_one_is_the_return_less_the_value(
    shape: tuple[int, int], gamma: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rewards, values = rng.normal(size=(2, *shape))
    ended = flags(rng, shape, 0.3)
    # Every window ends in something that is worth the same, but for those that terminated.
    last = 2.0 * ~(terminated := ended & flags(rng, shape, 0.5))
    next_values = np.where(ended, last, np.concatenate([values[1:], np.full((1, shape[1]), 2.0)]))
    found = gae(rewards, values, next_values, ended, gamma=gamma, lam=1.0)
    for t, copy in np.ndindex(shape):
        rows = slice(t, None), slice(copy, copy + 1)
        sums, left = n_step(rewards[rows].T, terminated[rows].T, ended[rows].T, gamma)
        close(found[t, copy], sums[0] + left[0] * 2.0 - values[t, copy])


REWARDS = np.array([[1.0, 2.0, 3.0], [3.0, 4.0, 5.0], [4.0, 5.0, 6.0], [6.0, 7.0, 8.0]])
TERMINATED = np.array([[0, 0, 1], [1, 0, 0], [0, 0, 0], [0, 0, 0]], np.bool_)
TRUNCATED = np.array([[0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 0]], np.bool_)


def test_a_window_sums_up_to_n_rewards_and_none_beyond_an_end() -> None:
    sums, _ = n_step(REWARDS, TERMINATED, TERMINATED | TRUNCATED, 0.5)
    assert sums.tolist() == [2.75, 3.0, 6.5, 11.5]


def test_a_terminated_window_discounts_to_nothing_and_a_truncated_one_by_its_length() -> None:
    _, left = n_step(REWARDS, TERMINATED, TERMINATED | TRUNCATED, 0.5)
    assert left.tolist() == [0.0, 0.0, 0.25, 0.125]


@a_few
@given(shapes, discounts, seeds)
def test_n_step_returns_are_those_of_a_loop_over_each_window(
    shape: tuple[int, int], gamma: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rewards, ended = rng.normal(size=shape), flags(rng, shape, 0.3)
    terminated = ended & flags(rng, shape, 0.5)
    sums, left = n_step(rewards.T, terminated.T, ended.T, gamma)
    for copy in range(shape[1]):
        rows = window(0, copy, ended, len(rewards))
        close(sums[copy], sum(gamma**i * rewards[i, copy] for i in rows))
        close(left[copy], 0.0 if terminated[rows[-1], copy] else gamma ** len(rows))


def test_one_step_returns_are_the_rewards_themselves() -> None:
    rewards = np.array([[1.0], [-2.0], [0.5]], np.float32)
    terminated = np.array([[False], [True], [False]])
    sums, left = n_step(rewards, terminated, terminated, 0.9)
    assert sums.tolist() == [1.0, -2.0, 0.5]
    assert left.tolist() == [0.9, 0.0, 0.9]
