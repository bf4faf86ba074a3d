"""Student's t: quantiles for intervals and for the bounds of sequential tests. Pure.

SciPy has them too, but takes seconds to load, and every command would pay for that.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist

import numpy as np

NORMAL = NormalDist()

BISECTIONS = 45
FAR = 2.0**40
"""No quantile that is asked for lies further out."""


def student_t(freedom: float) -> float:
    """The 97.5 % quantile of Student's t; a fraction of a degree of freedom is not counted."""
    return upper_quantile(0.025, math.floor(freedom))


@lru_cache(maxsize=1024)
def upper_quantile(tail: float, freedom: int) -> float:
    """The number that Student's t exceeds with the chance `tail`, by bisection."""
    if tail > 0.5:
        return -upper_quantile(1.0 - tail, freedom)
    far = 1.0
    while upper_tail(far, freedom) > tail and far < FAR:
        far *= 2.0
    return boundary(lambda t: upper_tail(t, freedom) > tail, 0.0, far)


def upper_tail(t: float, freedom: int) -> float:
    """The chance that Student's t is above `t`: a finite sum for whole degrees of freedom.

    Abramowitz and Stegun, 26.7.3 and 26.7.4. It is a difference of numbers near one half, so
    chances far below 1e-12 are lost in rounding.
    """
    angle = math.atan2(t, math.sqrt(freedom))
    cosine, odd = math.cos(angle), freedom % 2
    first = cosine if odd else 1.0
    k = np.arange(2 + odd, freedom - 1, 2)
    total = first * (1.0 + float(np.cumprod(cosine * cosine * (k - 1) / k).sum()))
    within = math.sin(angle) * (total if freedom > 1 else 0.0)
    if odd:
        within = (angle + within) * 2.0 / math.pi
    return 0.5 * (1.0 - within)


def boundary(holds: Callable[[float], bool], inside: float, outside: float) -> float:
    """Where a condition that holds inside and not outside ceases to, by bisection."""
    for _ in range(BISECTIONS):
        middle = 0.5 * (inside + outside)
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return 0.5 * (inside + outside)
