"""Summaries against hand-computed numbers, an independent bootstrap, and simulation."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_orch import stats
from rl_orch.records import Evaluation
from rl_orch.stats import (
    STUDENT_T,
    band,
    difference,
    interval,
    iqm,
    mean,
    student_t,
    summarize,
    summarize_runs,
)

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


def test_small_samples_get_at_least_the_interval_of_students_t() -> None:
    low, high = summarize([1.0, 3.0]).ci95
    assert (low, high) == pytest.approx((2.0 - 12.706, 2.0 + 12.706))
    rng = np.random.default_rng(1)
    for n in (5, 19):
        sample = rng.exponential(1.0, n)
        half = STUDENT_T[n - 2] * sample.std(ddof=1) / math.sqrt(n)
        bootstrap, (low, high) = interval(sample, mean), summarize(sample.tolist()).ci95
        assert low == min(bootstrap[0], sample.mean() - half)
        assert high == max(bootstrap[1], sample.mean() + half)


def test_from_twenty_numbers_on_the_interval_is_the_bootstraps() -> None:
    sample = np.random.default_rng(2).exponential(1.0, 20)
    assert summarize(sample.tolist()).ci95 == interval(sample, mean)
    assert len(STUDENT_T) == 18


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


def test_a_skewed_sample_gets_a_lopsided_interval() -> None:
    sample = np.random.default_rng(4).exponential(1.0, 60)
    low, high = interval(sample, mean)
    assert high - sample.mean() > sample.mean() - low


@pytest.mark.parametrize(
    ("kind", "n", "least"),
    [
        ("normal", 5, 0.93),
        ("normal", 10, 0.93),
        ("normal", 30, 0.91),
        ("normal", 100, 0.92),
        ("exponential", 5, 0.85),
        ("exponential", 10, 0.89),
        ("exponential", 30, 0.90),
        ("exponential", 100, 0.92),
    ],
)
def test_the_interval_covers_the_truth_about_as_often_as_it_says(
    kind: str, n: int, least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Skewed small samples fall short of 95 %, and the bounds say by how much."""
    monkeypatch.setattr(stats, "RESAMPLES", 1_000)
    rng = np.random.default_rng(n)
    draw = rng.normal if kind == "normal" else rng.standard_exponential
    samples = draw(size=(500, n)) + (1.0 if kind == "normal" else 0.0)
    intervals = [summarize(sample.tolist()).ci95 for sample in samples]
    assert least <= np.mean([low <= 1.0 <= high for low, high in intervals]) <= 0.98


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [
        (1, 12.706),
        (2.9, 4.303),
        (18, 2.101),
        (19, 2.0930),
        (30, 2.0423),
        (60, 2.0003),
        (999, 1.9623),
    ],
)
def test_students_t_is_that_of_the_tables(freedom: float, quantile: float) -> None:
    assert student_t(freedom) == pytest.approx(quantile, abs=1e-4)


def test_a_summary_of_training_runs_is_a_summary_with_an_interval_of_its_iqm() -> None:
    values = [0.0, 1.0, 2.0, 3.0, 100.0]
    found, plain = summarize_runs(values), summarize(values, unit="training runs")
    assert Evaluation.model_validate(found.model_dump()) == plain
    assert found.iqm == 2.0
    # Pulled in to 1, 1, 2, 3, 3 the sample deviates by 1; three numbers are left of five.
    half = 4.303 * 1.0 * math.sqrt(5) / 3
    low, high = interval(np.asarray(values), iqm)
    assert found.iqm_ci95 == pytest.approx((min(low, 2.0 - half), max(high, 2.0 + half)))
    assert found.iqm_ci95[0] == pytest.approx(2.0 - half)


def test_three_runs_have_their_mean_as_iqm_and_its_interval_too() -> None:
    found = summarize_runs([1.0, 2.0, 6.0])
    assert found.iqm == found.mean
    assert found.iqm_ci95 == pytest.approx(found.ci95)


def test_from_twenty_runs_on_the_interval_of_the_iqm_is_the_bootstraps() -> None:
    sample = np.random.default_rng(5).exponential(1.0, 20)
    assert summarize_runs(sample.tolist()).iqm_ci95 == interval(sample, iqm)


@pytest.mark.parametrize(("kind", "truth"), [("normal", 0.0), ("exponential", 0.73838)])
@pytest.mark.parametrize("n", [5, 10, 30])
def test_the_interval_of_the_iqm_covers_the_truth_about_as_often_as_it_says(
    kind: str, truth: float, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats, "RESAMPLES", 500)
    rng = np.random.default_rng(n)
    draw = rng.normal if kind == "normal" else rng.standard_exponential
    intervals = [summarize_runs(sample.tolist()).iqm_ci95 for sample in draw(size=(300, n))]
    assert 0.91 <= np.mean([low <= truth <= high for low, high in intervals]) <= 0.99


def test_a_band_is_the_interval_of_students_t_in_each_column() -> None:
    low, high = band(np.array([[1.0, 5.0, 0.0], [3.0, 5.0, 0.0], [5.0, 5.0, 9.0]]))
    half = 4.303 * 2.0 / math.sqrt(3)
    assert low == pytest.approx([3.0 - half, 5.0, 3.0 - 4.303 * 3.0], abs=1e-3)
    assert high == pytest.approx([3.0 + half, 5.0, 3.0 + 4.303 * 3.0], abs=1e-3)


def test_a_difference_of_means_has_welchs_interval() -> None:
    found = difference([1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 4.0, 6.0, 8.0, 10.0])
    # Variances 2.5 / 5 and 10 / 5; 2.5^2 / (0.5^2 / 4 + 2^2 / 4) = 5.88 degrees of freedom.
    half = 2.571 * math.sqrt(2.5)
    assert found.mean == -3.0
    assert found.ci95 == pytest.approx((-3.0 - half, -3.0 + half))
    assert (found.n, found.clear) == ((5, 5), False)
    assert found.turned.ci95 == pytest.approx((3.0 - half, 3.0 + half))


def test_a_difference_is_clear_where_its_interval_leaves_zero_out() -> None:
    far = difference([100.0, 101.0, 102.0], [1.0, 2.0])
    assert far.clear
    assert far.turned.clear
    assert (far.n, far.turned.n) == ((3, 2), (2, 3))
    assert difference([5.0, 5.0], [5.0, 5.0]).clear is False
    assert difference([5.0, 5.0], [4.0, 4.0, 4.0]).ci95 == (1.0, 1.0)


def test_a_single_number_on_one_side_bounds_no_difference() -> None:
    found = difference([1.0, 2.0, 3.0], [7.0])
    assert (found.mean, found.ci95, found.clear) == (-5.0, (-math.inf, math.inf), False)
    assert math.isnan(difference([], [1.0]).mean)


def test_a_difference_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(6)
    found = [
        difference(rng.normal(2, 1, 5).tolist(), rng.normal(0, 4, 8).tolist()) for _ in range(1000)
    ]
    assert 0.93 <= np.mean([d.ci95[0] <= 2.0 <= d.ci95[1] for d in found]) <= 0.98
