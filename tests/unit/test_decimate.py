"""Thinned curves: fewer points, in order, and no peak, no end and no gap is lost."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from rl_orch.io.metrics.decimate import LEAST_POINTS, decimate

Curve = tuple[NDArray[np.int64], NDArray[np.float64]]
ANY = st.floats()
FINITE = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def curves(draw: st.DrawFn, values: st.SearchStrategy[float] = ANY) -> Curve:
    drawn = draw(st.lists(st.tuples(st.integers(0, 50), values), max_size=120))
    steps = np.array([step for step, _ in drawn], dtype=np.int64)
    return steps, np.array([value for _, value in drawn], dtype=np.float64)


@given(curves(), st.integers(LEAST_POINTS, 60))
def test_at_most_so_many_points_each_at_most_once_and_in_the_order_of_steps(
    curve: Curve, points: int
) -> None:
    steps, values = curve
    kept = decimate(steps, values, points)
    assert len(kept) == len(set(kept.tolist())) <= points
    assert set(kept.tolist()) <= set(range(len(values)))
    assert np.all(np.diff(steps[kept]) >= 0)


@given(curves(), st.integers(LEAST_POINTS, 60))
def test_the_lowest_the_highest_the_first_and_the_last_are_always_there(
    curve: Curve, points: int
) -> None:
    steps, values = curve
    if len(values) == 0:
        return
    kept = decimate(steps, values, points)
    order = np.argsort(steps, kind="stable")
    assert (kept[0], kept[-1]) == (order[0], order[-1])
    finite = values[np.isfinite(values)]
    shown = values[kept][np.isfinite(values[kept])]
    if len(finite):
        assert (shown.min(), shown.max()) == (finite.min(), finite.max())
    assert np.isfinite(values).all() == np.isfinite(values[kept]).all()


@given(curves(), st.integers(120, 200))
def test_a_curve_that_is_short_enough_is_shown_whole(curve: Curve, points: int) -> None:
    steps, values = curve
    assert decimate(steps, values, points).tolist() == sorted(
        range(len(steps)), key=lambda i: steps[i]
    )


@given(curves(), st.integers(LEAST_POINTS, 60))
def test_what_is_thinned_is_not_thinned_again(curve: Curve, points: int) -> None:
    steps, values = curve
    kept = decimate(steps, values, points)
    again = decimate(steps[kept], values[kept], points)
    assert again.tolist() == list(range(len(kept)))


@given(curves(FINITE), st.integers(LEAST_POINTS, 60))
def test_every_stretch_keeps_its_lowest_and_its_highest(curve: Curve, points: int) -> None:
    steps, values = curve
    if len(values) <= points:
        return
    kept = set(decimate(steps, values, points).tolist())
    order = np.argsort(steps, kind="stable")
    size = math.ceil(len(values) / ((points - 2) // 2))
    for start in range(0, len(order), size):
        stretch = order[start : start + size]
        shown = [values[index] for index in stretch if index in kept]
        assert min(shown) == values[stretch].min()
        assert max(shown) == values[stretch].max()


def test_one_spike_in_a_million_points_is_seen() -> None:
    steps, values = np.arange(1_000_000), np.zeros(1_000_000)
    values[123_456], values[654_321] = 1.0, -1.0
    kept = decimate(steps, values, 2_000)
    assert len(kept) <= 2_000
    assert {0, 123_456, 654_321, 999_999} <= set(kept.tolist())


def test_a_stretch_with_numbers_that_are_not_finite_keeps_the_first_of_them() -> None:
    values = np.arange(1_000.0)
    values[500:510] = [math.nan, math.inf, -math.inf, *[math.nan] * 7]
    kept = decimate(np.arange(1_000), values, 32)
    assert 500 in kept
    assert values[kept[np.isfinite(values[kept])]].max() == 999.0
    assert len(kept) <= 32


def test_a_curve_without_a_finite_number_still_has_both_ends() -> None:
    kept = decimate(np.arange(100), np.full(100, math.nan), 5)
    assert {0, 99} <= set(kept.tolist())


def test_fewer_points_than_the_rule_needs_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 5 points, not 4"):
        decimate(np.arange(10), np.zeros(10), 4)
