"""Thinning a curve for the eye: fewer points, and not one spike less. Pure."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

LEAST_POINTS = 5
"""The first and the last point, the lowest, the highest, and one that is not finite."""


def decimate(steps: NDArray[np.number], values: Floats, points: int) -> Indices:
    """The points of a curve to show, by their indices: at most `points`, in the order of steps.

    A curve that is short enough is shown whole. A longer one is cut into stretches of as many
    points each; of every stretch the lowest and the highest finite value stay and, if it has any,
    the first value that is not finite; so do the first and the last point of the curve. Points of
    one step keep their order.
    """
    if points < LEAST_POINTS:
        raise ValueError(f"a curve is shown with at least {LEAST_POINTS} points, not {points}")
    in_order = bool(np.all(steps[1:] >= steps[:-1]))
    order = np.arange(len(steps)) if in_order else np.argsort(steps, kind="stable")
    if len(order) <= points:
        return order
    ordered = np.ascontiguousarray(values if in_order else values[order])
    odd = ~np.isfinite(ordered)
    has_odd = bool(odd.any())
    size = -(-len(order) // ((points - 2) // (3 if has_odd else 2)))
    kept = [
        np.array([0, len(order) - 1]),
        _of_each(np.argmin, np.where(odd, np.inf, ordered) if has_odd else ordered, size),
        _of_each(np.argmax, np.where(odd, -np.inf, ordered) if has_odd else ordered, size),
    ]
    if has_odd:
        first_odd = _of_each(np.argmax, odd, size)
        kept.append(first_odd[odd[first_odd]])
    shown: Indices = order[np.unique(np.concatenate(kept))]
    return shown


def _of_each(pick: Callable[..., Any], values: NDArray[Any], size: int) -> Indices:
    """The index that is picked of every stretch of `size` values; the last may be shorter."""
    whole = len(values) - len(values) % size
    picked = pick(values[:whole].reshape(-1, size), axis=1) + np.arange(0, whole, size)
    rest = [] if whole == len(values) else [whole + pick(values[whole:])]
    return np.append(picked, np.array(rest, np.intp))
