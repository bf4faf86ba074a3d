"""Student's t: quantiles for intervals and for the bounds of sequential tests. Pure.

SciPy has them too, but takes seconds to load, and every command would pay for that.
"""

import math
from statistics import NormalDist

NORMAL = NormalDist()

STUDENT_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262),
    *(2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101),
)
"""The 97.5 % quantiles of Student's t for 1, 2, ... 18 degrees of freedom (n - 1)."""

FAR = 2.0**40
"""No quantile that is asked for lies further out."""


def student_t(freedom: float) -> float:
    """The 97.5 % quantile of Student's t; a fraction of a degree of freedom is not counted.

    Past the table, Cornish and Fisher's expansion around the normal one is exact to four digits.
    """
    whole = math.floor(freedom)
    if whole <= len(STUDENT_T):
        return STUDENT_T[whole - 1]
    z = NORMAL.inv_cdf(0.975)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / whole + second / whole**2 + third / whole**3


def upper_tail(t: float, freedom: int) -> float:
    """The chance that Student's t is above `t`: a finite sum for whole degrees of freedom.

    Abramowitz and Stegun, 26.7.3 and 26.7.4. It is a difference of numbers near one half, so
    chances far below 1e-12 are lost in rounding.
    """
    angle = math.atan2(t, math.sqrt(freedom))
    cosine, odd = math.cos(angle), freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    within = math.sin(angle) * total
    if odd:
        within = (angle + within) * 2.0 / math.pi
    return 0.5 * (1.0 - within)


def upper_quantile(tail: float, freedom: int) -> float:
    """The number that Student's t exceeds with the chance `tail`, by bisection."""
    if tail > 0.5:
        return -upper_quantile(1.0 - tail, freedom)
    low, high = 0.0, 1.0
    while upper_tail(high, freedom) > tail and high < FAR:
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if upper_tail(middle, freedom) > tail else (low, middle)
    return 0.5 * (low + high)
