"""Summaries against hand-computed numbers and against SciPy's bootstrap on the same resamples.

How often intervals hold the truth is in `test_stats_coverage.py`.
"""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from rl_orch.records import Evaluation
from rl_orch.stats import aggregates, band, interval, iqm, summarize, summarize_runs
from rl_orch.stats.bootstrap import Statistic, mean, median
from rl_orch.stats.student import student_t, upper_quantile, upper_tail
from rl_orch.stats.summary import median_ci95

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
    for n in (2, 10, 100):
        assert summarize([500.0] * n).ci95 == (500.0, 500.0)


def test_a_single_number_says_nothing_of_the_mean() -> None:
    summary = summarize([500.0])
    assert (summary.mean, summary.std, summary.ci95) == (500.0, 0.0, (-math.inf, math.inf))


def test_an_unbounded_interval_survives_json_that_every_parser_reads() -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    summary = summarize([500.0])
    text = summary.model_dump_json()
    assert json.loads(text, parse_constant=refuse)["ci95"] == ["-Infinity", "Infinity"]
    assert Evaluation.model_validate_json(text) == summary


def test_the_interval_is_at_each_end_the_outer_one_of_the_bootstrap_and_students_t() -> None:
    low, high = summarize([1.0, 3.0]).ci95
    assert (low, high) == pytest.approx((2.0 - 12.7062047, 2.0 + 12.7062047))
    rng = np.random.default_rng(1)
    for n in (5, 19, 20, 200):
        sample = rng.exponential(1.0, n)
        half = student_t(n - 1) * float(sample.std(ddof=1)) / math.sqrt(n)
        bootstrap, (low, high) = interval(sample, mean), summarize(sample.tolist()).ci95
        assert low == min(bootstrap[0], sample.mean() - half)
        assert high == max(bootstrap[1], sample.mean() + half)


def test_no_numbers_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one number"):
        summarize([])


@settings(max_examples=25, deadline=None)
@given(st.lists(finite, min_size=1, max_size=40))
def test_the_bootstrap_interval_lies_within_the_sample_and_around_sensible_values(
    values: list[float],
) -> None:
    low, high = interval(np.asarray(values), mean)
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


@pytest.mark.parametrize("statistic", [mean, median, iqm])
@pytest.mark.parametrize(("n", "kind"), [(20, "skewed"), (100, "normal"), (50, "rounded")])
def test_the_bootstrap_is_scipys_on_the_same_numbers(
    statistic: Statistic, n: int, kind: str
) -> None:
    rng = np.random.default_rng(n)
    sample = {
        "skewed": rng.exponential(1.0, n),
        "normal": rng.normal(0.0, 1.0, n),
        "rounded": rng.gamma(4.0, 150.0, n).round(),
    }[kind]

    def along(values: Any, axis: int) -> Any:
        return statistic(np.moveaxis(values, axis, -1))

    theirs = scipy_stats.bootstrap(
        (sample,), along, method="BCa", n_resamples=10_000, rng=np.random.default_rng(7)
    )
    ours = interval(sample, statistic, seed=7)
    assert ours == pytest.approx(tuple(theirs.confidence_interval), rel=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.lists(finite, min_size=1, max_size=60))
def test_the_interquartile_mean_is_scipys_trimmed_mean(values: list[float]) -> None:
    theirs = scipy_stats.trim_mean(values, 0.25)
    assert iqm(np.asarray(values)[None, :])[0] == pytest.approx(theirs, rel=1e-9, abs=1e-6)


def test_aggregates_are_what_one_works_out_by_hand() -> None:
    found = aggregates([0.0, 1.0, 3.0, 100.0], target=3.0)
    assert {name: estimate.value for name, estimate in found.items()} == {
        "mean": 26.0,
        "median": 2.0,
        "iqm": 2.0,
        "optimality_gap": (3.0 + 2.0 + 0.0 + 0.0) / 4,
    }
    assert found["mean"].ci95 == summarize([0.0, 1.0, 3.0, 100.0]).ci95
    assert "optimality_gap" not in aggregates([1.0])


def test_what_is_above_the_target_makes_up_for_nothing() -> None:
    gap = aggregates([90.0] * 10 + [1000.0] * 10, target=100.0)["optimality_gap"]
    assert gap.value == 5.0
    assert 0.0 < gap.ci95[0] < 5.0 < gap.ci95[1] < 10.0
    reached = aggregates([100.0, 250.0], target=100.0)["optimality_gap"]
    assert (reached.value, reached.ci95) == (0.0, (0.0, 0.0))


def test_the_interval_of_the_median_lies_between_the_order_statistics_of_the_tables() -> None:
    # Of 6, the extremes hold the median in 96.9 % of cases, their neighbours in 78 %;
    # of 20, the 6th and the 15th in 95.9 %, the 7th and the 14th in 88.5 %.
    low, high = median_ci95(np.arange(1.0, 7.0))
    assert 1.0 < low < 1.5
    assert high == pytest.approx(7.0 - low)
    low, high = median_ci95(np.arange(1.0, 21.0))
    assert 6.0 < low < 6.5
    assert high == pytest.approx(21.0 - low)
    assert median_ci95(np.arange(5.0)) == (-math.inf, math.inf)
    half = 1.96 * math.sqrt(100_001) / 2
    assert median_ci95(np.arange(100_001.0)) == pytest.approx((50_000 - half, 50_000 + half), abs=2)


def test_a_skewed_sample_gets_a_lopsided_interval() -> None:
    sample = np.random.default_rng(4).exponential(1.0, 60)
    low, high = interval(sample, mean)
    assert high - sample.mean() > sample.mean() - low


@pytest.mark.parametrize("freedom", [1, 2.9, 18, 19, 30, 60.5, 999, 100_000])
def test_students_t_is_scipys_for_the_whole_degrees_of_freedom(freedom: float) -> None:
    assert student_t(freedom) == pytest.approx(scipy_stats.t.isf(0.025, int(freedom)), rel=1e-9)


def test_a_summary_of_training_runs_is_a_summary_with_an_interval_of_its_iqm() -> None:
    values = [0.0, 1.0, 2.0, 3.0, 100.0]
    found, plain = summarize_runs(values), summarize(values)
    as_runs = plain.model_copy(update={"unit": "training runs"})
    assert Evaluation.model_validate(found.model_dump()) == as_runs
    assert found.iqm == 2.0
    # Pulled in to 1, 1, 2, 3, 3 the sample deviates by 1; three numbers are left of five.
    half = 4.30265273 * 1.0 * math.sqrt(5) / 3
    low, high = interval(np.asarray(values), iqm)
    assert found.iqm_ci95 == pytest.approx((min(low, 2.0 - half), max(high, 2.0 + half)))
    assert found.iqm_ci95[0] == pytest.approx(2.0 - half)


def test_three_runs_have_their_mean_as_iqm_and_its_interval_too() -> None:
    found = summarize_runs([1.0, 2.0, 6.0])
    assert found.iqm == found.mean
    assert found.iqm_ci95 == pytest.approx(found.ci95)


def test_a_band_is_the_interval_of_students_t_in_each_column() -> None:
    low, high = band(np.array([[1.0, 5.0, 0.0], [3.0, 5.0, 0.0], [5.0, 5.0, 9.0]]))
    half = 4.30265273 * 2.0 / math.sqrt(3)
    assert low == pytest.approx([3.0 - half, 5.0, 3.0 - 4.30265273 * 3.0], abs=1e-3)
    assert high == pytest.approx([3.0 + half, 5.0, 3.0 + 4.30265273 * 3.0], abs=1e-3)


@pytest.mark.parametrize("freedom", [1, 2, 3, 10, 19, 99])
def test_tails_and_quantiles_of_students_t_are_scipys(freedom: int) -> None:
    for t in (-3.0, 0.0, 0.7, 2.0, 6.0):
        assert upper_tail(t, freedom) == pytest.approx(scipy_stats.t.sf(t, freedom), abs=1e-13)
    for tail in (0.9, 0.5, 0.025, 1e-6):
        theirs = scipy_stats.t.isf(tail, freedom)
        assert upper_quantile(tail, freedom) == pytest.approx(theirs, rel=1e-6, abs=1e-9)
