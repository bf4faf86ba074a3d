"""Comparisons of two samples against hand-computed numbers, SciPy, and simulation."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from rl_orch.stats import difference, paired, probability_of_improvement, summarize


def test_a_difference_of_means_has_welchs_interval() -> None:
    found = difference([1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 4.0, 6.0, 8.0, 10.0])
    # Variances 2.5 / 5 and 10 / 5; 2.5^2 / (0.5^2 / 4 + 2^2 / 4) = 5.88 degrees of freedom.
    half = 2.57058184 * math.sqrt(2.5)
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
    # Samples without spread say nothing of numbers to come.
    assert difference([5.0, 5.0], [4.0, 4.0, 4.0]).clear is False


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


def test_pairs_have_the_interval_of_the_mean_of_their_differences() -> None:
    first, second = [5.0, 9.0, 4.0], [4.0, 7.0, 1.0]
    found = paired(first, second)
    half = 4.30265273 * 1.0 / math.sqrt(3)
    assert (found.mean, found.n, found.paired) == (2.0, (3, 3), True)
    assert found.ci95 == pytest.approx((2.0 - half, 2.0 + half))
    assert found.ci95 == summarize([1.0, 2.0, 3.0]).ci95
    assert found.turned.ci95 == pytest.approx(paired(second, first).ci95)
    assert found.turned.paired


def test_what_pairs_have_in_common_drops_out() -> None:
    rng = np.random.default_rng(0)
    hard = rng.normal(0.0, 100.0, 50)
    first, second = hard + rng.normal(1.0, 1.0, 50), hard
    assert paired(first.tolist(), second.tolist()).clear
    assert not difference(first.tolist(), second.tolist()).clear


def test_one_pair_bounds_nothing_and_equal_ones_leave_nothing_open() -> None:
    assert paired([3.0], [1.0]).ci95 == (-math.inf, math.inf)
    assert paired([500.0] * 9, [500.0] * 9).ci95 == (0.0, 0.0)
    for first, second in (([1.0], [1.0, 2.0]), ([], [])):
        with pytest.raises(ValueError, match="one size"):
            paired(first, second)


@pytest.mark.parametrize(
    ("first", "second", "chance"),
    [
        ([2.0], [1.0], 1.0),
        ([1.0], [1.0], 0.5),
        ([1.0, 3.0], [2.0], 0.5),
        ([1.0, 2.0, 3.0], [1.0, 2.0], (0.5 + 1.5 + 2.0) / 6),
    ],
)
def test_the_probability_of_improvement_counts_pairs_won_and_half_of_the_ties(
    first: list[float], second: list[float], chance: float
) -> None:
    assert probability_of_improvement(first, second).value == pytest.approx(chance)
    other = probability_of_improvement(second, first).value
    assert other == pytest.approx(1.0 - chance)


def test_the_probability_of_improvement_is_mann_and_whitneys_u_and_scipys_bootstrap() -> None:
    rng = np.random.default_rng(1)
    first = np.minimum(500.0, rng.gamma(4.0, 160.0, 60)).round()
    second = np.minimum(500.0, rng.gamma(4.0, 140.0, 40)).round()
    found = probability_of_improvement(first.tolist(), second.tolist())

    def won(a: np.ndarray, b: np.ndarray) -> float:
        return float(scipy_stats.mannwhitneyu(a, b).statistic) / (a.size * b.size)

    assert found.value == pytest.approx(won(first, second))
    theirs = scipy_stats.bootstrap(
        (first, second), won, method="percentile", n_resamples=500, rng=rng, vectorized=False
    ).confidence_interval
    assert found.ci95 == pytest.approx((theirs.low, theirs.high), abs=0.03)


def test_a_sample_wholly_above_another_still_leaves_something_open() -> None:
    few = probability_of_improvement([2.0] * 5, [1.0] * 5)
    many = probability_of_improvement([2.0] * 100, [1.0] * 100)
    assert few.ci95[1] == many.ci95[1] == 1.0
    assert 0.5 < few.ci95[0] < many.ci95[0] < 1.0
