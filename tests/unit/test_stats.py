"""Summaries against hand-computed numbers, an independent bootstrap, and simulation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_orch.stats import interval, iqm, mean, summarize

finite = st.floats(-1e6, 1e6)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7.0], 7.0),
        ([1.0, 3.0], 2.0),
        ([1.0, 2.0, 9.0], 4.0),
        ([0.0, 1.0, 3.0, 100.0], 2.0),
        ([0.0, 1.0, 2.0, 3.0, 100.0], 2.0),
        ([-50.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 900.0], 2.5),
    ],
)
def test_the_interquartile_mean_drops_a_quarter_at_each_end(
    values: list[float], expected: float
) -> None:
    shuffled = np.random.default_rng(0).permutation(values)
    assert iqm(shuffled[None, :])[0] == pytest.approx(expected)


def test_a_summary_has_mean_deviation_unit_and_n() -> None:
    summary = summarize([1.0, 2.0, 3.0, 4.0])
    assert (summary.mean, summary.n, summary.unit) == (2.5, 4, "episodes")
    assert summary.std == pytest.approx(np.std([1, 2, 3, 4], ddof=1))


def test_a_sample_without_spread_has_an_interval_of_width_zero() -> None:
    assert summarize([500.0] * 10).ci95 == (500.0, 500.0)
    assert summarize([3.0]).ci95 == (3.0, 3.0)


def test_no_numbers_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one number"):
        summarize([])


@settings(max_examples=25, deadline=None)
@given(st.lists(finite, min_size=1, max_size=40))
def test_the_interval_lies_within_the_sample_and_around_sensible_values(
    values: list[float],
) -> None:
    low, high = summarize(values).ci95
    slack = 1e-9 * (1 + max(abs(v) for v in values))
    assert min(values) - slack <= low <= high <= max(values) + slack


@settings(max_examples=25, deadline=None)
@given(st.lists(finite, min_size=2, max_size=20), st.integers(0, 2**31))
def test_the_same_numbers_give_the_same_interval(values: list[float], seed: int) -> None:
    assert summarize(values, seed=seed) == summarize(values, seed=seed)


def test_the_interval_agrees_with_the_normal_one_where_that_is_right() -> None:
    sample = np.random.default_rng(3).normal(10.0, 2.0, 400)
    low, high = interval(sample, mean)
    half = 1.96 * sample.std(ddof=1) / np.sqrt(sample.size)
    assert low == pytest.approx(sample.mean() - half, abs=0.03)
    assert high == pytest.approx(sample.mean() + half, abs=0.03)


def test_a_skewed_sample_gets_a_lopsided_interval() -> None:
    sample = np.random.default_rng(4).exponential(1.0, 60)
    low, high = interval(sample, mean)
    assert high - sample.mean() > sample.mean() - low


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    samples = rng.normal(0.0, 1.0, (150, 30))
    covered = [low <= 0.0 <= high for low, high in (interval(s, mean) for s in samples)]
    assert 0.89 <= np.mean(covered) <= 0.99
