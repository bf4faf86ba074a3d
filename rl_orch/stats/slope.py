"""Whether a series of numbers still rises or falls: the change along a fitted line. Pure."""

import math
from collections.abc import Sequence

import numpy as np

from rl_orch.records import Estimate
from rl_orch.stats.student import student_t

MOST_ALIKE = 0.9
"""The largest correlation between neighbours that is reckoned with."""


def trend(steps: Sequence[float], values: Sequence[float]) -> Estimate:
    """How much the least-squares line changes from the first step to the last, by Student's t.

    What the line leaves over is taken as noise, of which neighbours may have a share in common:
    with a correlation r between them, n values tell as much as n (1 - r) / (1 + r) alone would.
    Two points fit every line: they bound nothing, and neither do values at one single step.
    """
    x, y = (np.asarray(numbers, dtype=np.float64) for numbers in (steps, values))
    if x.size == 0 or x.shape != y.shape:
        raise ValueError(f"a trend needs a value for each step, got {x.shape} and {y.shape}")
    span = float(np.ptp(x))
    if np.ptp(y) == 0.0 and x.size > 2:
        return Estimate(value=0.0, ci95=(0.0, 0.0))
    if span == 0.0 or x.size < 3:
        change = float(y[-1] - y[0]) if span > 0.0 else 0.0
        return Estimate(value=change, ci95=(-math.inf, math.inf))
    away = (x - x.mean()) / span
    change = float(away @ y / (away @ away))
    left_over = y - y.mean() - change * away
    squares = float(left_over @ left_over)
    error = math.sqrt(squares / (x.size - 2) / float(away @ away))
    alike = float(left_over[1:] @ left_over[:-1]) / squares if squares > 0.0 else 0.0
    alike = min(max(alike, 0.0), MOST_ALIKE)
    half = student_t(x.size - 2) * error * math.sqrt((1.0 + alike) / (1.0 - alike))
    return Estimate(value=change, ci95=(change - half, change + half))
