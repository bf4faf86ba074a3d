"""Statistics of many resamples at once, and bootstrap intervals of them. Pure; seeded."""

from collections.abc import Callable
from typing import cast

import numpy as np
from numpy.typing import NDArray

from rl_orch.stats.student import NORMAL

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], Floats]

LEVEL = 0.95
RESAMPLES = 10_000
JACKKNIFE_LIMIT = 2_000
NUMBERS_AT_ONCE = 4_000_000
"""How many resampled numbers are held in memory."""


def mean(rows: Floats) -> Floats:
    """The mean of each row."""
    return np.asarray(rows.mean(axis=-1))


def median(rows: Floats) -> Floats:
    """The median of each row."""
    return np.asarray(np.median(rows, axis=-1))


def iqm(rows: Floats) -> Floats:
    """The interquartile mean of each row: its mean without the lowest and highest quarter.

    A quarter is rounded down, as in SciPy's `trim_mean` and in rliable.
    """
    cut = rows.shape[-1] // 4
    return mean(np.sort(rows, axis=-1)[..., cut : rows.shape[-1] - cut])


def interval(sample: Floats, statistic: Statistic, *, seed: int = 0) -> tuple[float, float]:
    """The 95 % bootstrap interval of a statistic, bias-corrected and accelerated (Efron 1987).

    A sample without spread, or of a single number, has an interval of width zero.
    """
    if sample.size < 2 or np.ptp(sample) == 0.0:
        point = float(statistic(sample[None, :])[0])
        return point, point
    resampled = np.sort(_resampled(sample, statistic, seed))
    low, high = _bca_levels(sample, statistic, resampled)
    return float(np.quantile(resampled, low)), float(np.quantile(resampled, high))


def slices(width: int) -> list[int]:
    """How many resamples to draw at a time, if each is `width` numbers."""
    rows = max(1, min(RESAMPLES, NUMBERS_AT_ONCE // width))
    return [min(rows, RESAMPLES - start) for start in range(0, RESAMPLES, rows)]


def _resampled(sample: Floats, statistic: Statistic, seed: int) -> Floats:
    """The statistic of each bootstrap resample, drawn in slices so that memory stays bounded."""
    rng = np.random.default_rng(seed)
    n = sample.size
    return np.concatenate([statistic(sample[rng.integers(0, n, (k, n))]) for k in slices(n)])


def _bca_levels(sample: Floats, statistic: Statistic, resampled: Floats) -> tuple[float, float]:
    """The two quantile levels, moved by the bias z0 and the jackknife's acceleration a."""
    observed = float(statistic(sample[None, :])[0])
    below = np.mean(resampled < observed) + 0.5 * np.mean(resampled == observed)
    z0 = NORMAL.inv_cdf(float(np.clip(below, 1e-6, 1 - 1e-6)))
    a = _acceleration(sample, statistic)

    def moved(p: float) -> float:
        z = z0 + NORMAL.inv_cdf(p)
        return NORMAL.cdf(z0 + z / (1.0 - a * z))

    return moved((1.0 - LEVEL) / 2.0), moved((1.0 + LEVEL) / 2.0)


def _acceleration(sample: Floats, statistic: Statistic) -> float:
    """How fast the statistic's deviation changes with its value; negligible for a large n."""
    if sample.size > JACKKNIFE_LIMIT:
        return 0.0
    left_out = statistic(_without_each(sample))
    spread = left_out.mean() - left_out
    scale = float(np.sum(spread**2)) ** 1.5
    return float(np.sum(spread**3)) / (6.0 * scale) if scale > 0.0 else 0.0


def _without_each(sample: Floats) -> Floats:
    """A row for each number, with all the others."""
    kept = ~np.eye(sample.size, dtype=bool)
    rows = np.broadcast_to(sample, kept.shape)[kept].reshape(sample.size, -1)
    return cast(Floats, rows)
