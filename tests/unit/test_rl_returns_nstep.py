"""Advantages and n-step returns: by hand, and against sums written out for each row."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rl_orch.rl.returns import NStep, gae, n_step_returns

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
    sums = n_step_returns(rewards, terminated, ended, gamma, len(rewards))
    close(found, sums.returns + sums.discounts * 2.0 - values)


def by_hand() -> NStep:
    """Rewards 1 to 6; row 2 terminates an episode and row 4 truncates the next."""
    rewards = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    terminated = np.array([False, False, True, False, False, False])
    ended = np.array([False, False, True, False, True, False])
    return n_step_returns(rewards, terminated, ended, 0.5, 3)


def test_a_window_sums_up_to_n_rewards_and_none_beyond_an_end() -> None:
    assert by_hand().returns.tolist() == [2.75, 3.5, 3.0, 6.5, 5.0, 6.0]
    assert by_hand().steps.tolist() == [3, 2, 1, 2, 1, 1]


def test_a_terminated_window_discounts_to_nothing_and_a_truncated_one_by_its_length() -> None:
    assert by_hand().discounts.tolist() == [0.0, 0.0, 0.0, 0.25, 0.5, 0.5]


@a_few
@given(shapes, discounts, st.integers(1, 9), seeds)
def test_n_step_returns_are_those_of_a_loop_over_each_window(
    shape: tuple[int, int], gamma: float, n: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rewards, ended = rng.normal(size=shape), flags(rng, shape, 0.3)
    terminated = ended & flags(rng, shape, 0.5)
    found = n_step_returns(rewards, terminated, ended, gamma, n)
    for t, copy in np.ndindex(shape):
        rows = window(t, copy, ended, n)
        close(found.returns[t, copy], sum(gamma ** (i - t) * rewards[i, copy] for i in rows))
        open_ended = not terminated[rows[-1], copy]
        close(found.discounts[t, copy], gamma ** len(rows) if open_ended else 0.0)
        assert found.steps[t, copy] == len(rows)


def test_one_step_returns_are_the_rewards_themselves() -> None:
    rewards = np.array([1.0, -2.0, 0.5], np.float32)
    terminated = np.array([False, True, False])
    found = n_step_returns(rewards, terminated, terminated, 0.9, 1)
    assert found.returns.tolist() == [1.0, -2.0, 0.5]
    assert found.discounts.tolist() == [0.9, 0.0, 0.9]


def test_a_terminated_row_ends_its_window_even_where_ended_is_unset() -> None:
    terminated = np.array([True, False])
    found = n_step_returns(np.ones(2), terminated, np.zeros(2, np.bool_), 1.0, 2)
    assert found.returns.tolist() == [1.0, 1.0]
    assert found.discounts.tolist() == [0.0, 1.0]
