"""Honest summaries of a handful of numbers: interquartile mean and bootstrap intervals.

Pure functions of their arguments; the same numbers give the same interval on every machine.
"""

from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rl_orch.records import Evaluation

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], Floats]

NORMAL = NormalDist()
RESAMPLES = 10_000
JACKKNIFE_LIMIT = 2_000

STUDENT_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262),
    *(2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101),
)
"""The 97.5 % quantiles of Student's t for 1, 2, ... 18 degrees of freedom (n - 1)."""


def summarize(
    values: Sequence[float],
    *,
    unit: Literal["episodes", "training runs"] = "episodes",
    seed: int = 0,
) -> Evaluation:
    """Mean, deviation (n - 1), interquartile mean and the 95 % interval of the mean."""
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or sample.size == 0:
        raise ValueError(f"summarize needs at least one number, got shape {sample.shape}")
    return Evaluation(
        mean=float(sample.mean()),
        std=float(sample.std(ddof=1)) if sample.size > 1 else 0.0,
        iqm=float(iqm(sample[None, :])[0]),
        ci95=_ci95(sample, seed),
        n=int(sample.size),
        unit=unit,
    )


def mean(rows: Floats) -> Floats:
    """The mean of each row."""
    return np.asarray(rows.mean(axis=-1))


def iqm(rows: Floats) -> Floats:
    """The interquartile mean of each row: its mean without the lowest and highest quarter.

    A quarter is rounded down, as in SciPy's `trim_mean` and in rliable.
    """
    cut = rows.shape[-1] // 4
    return mean(np.sort(rows, axis=-1)[..., cut : rows.shape[-1] - cut])


def interval(
    sample: Floats, statistic: Statistic, *, level: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """The bootstrap interval of a statistic, bias-corrected and accelerated (Efron 1987).

    A sample without spread, or of a single number, has an interval of width zero.
    """
    if sample.size < 2 or np.ptp(sample) == 0.0:
        point = float(statistic(sample[None, :])[0])
        return point, point
    resampled = np.sort(_resampled(sample, statistic, seed))
    low, high = _bca_levels(sample, statistic, resampled, level)
    return float(np.quantile(resampled, low)), float(np.quantile(resampled, high))


def _ci95(sample: Floats, seed: int) -> tuple[float, float]:
    """The 95 % interval of the mean, safe for small samples.

    A bootstrap of a few numbers is too narrow: up to n = 19, Student's t moves out each end that it
    puts further from the mean. A single number says nothing of the mean.
    """
    if sample.size == 1:
        return -np.inf, np.inf
    low, high = interval(sample, mean, seed=seed)
    if sample.size - 1 > len(STUDENT_T):
        return low, high
    middle = float(sample.mean())
    half = STUDENT_T[sample.size - 2] * float(sample.std(ddof=1)) / float(np.sqrt(sample.size))
    return min(low, middle - half), max(high, middle + half)


def _resampled(sample: Floats, statistic: Statistic, seed: int) -> Floats:
    """The statistic of each bootstrap resample, drawn in slices so that memory stays bounded."""
    rng = np.random.default_rng(seed)
    rows = max(1, min(RESAMPLES, 4_000_000 // sample.size))
    parts = []
    for start in range(0, RESAMPLES, rows):
        count = min(rows, RESAMPLES - start)
        parts.append(statistic(sample[rng.integers(0, sample.size, (count, sample.size))]))
    return np.concatenate(parts)


def _bca_levels(
    sample: Floats, statistic: Statistic, resampled: Floats, level: float
) -> tuple[float, float]:
    """The two quantile levels, moved by the bias z0 and the jackknife's acceleration a."""
    observed = float(statistic(sample[None, :])[0])
    below = np.mean(resampled < observed) + 0.5 * np.mean(resampled == observed)
    z0 = NORMAL.inv_cdf(float(np.clip(below, 1e-6, 1 - 1e-6)))
    a = _acceleration(sample, statistic)

    def moved(p: float) -> float:
        z = z0 + NORMAL.inv_cdf(p)
        return NORMAL.cdf(z0 + z / (1.0 - a * z))

    return moved((1.0 - level) / 2.0), moved((1.0 + level) / 2.0)


def _acceleration(sample: Floats, statistic: Statistic) -> float:
    """How fast the statistic's deviation changes with its value; negligible for a large n."""
    if sample.size > JACKKNIFE_LIMIT:
        return 0.0
    kept = ~np.eye(sample.size, dtype=bool)
    rows = np.broadcast_to(sample, kept.shape)[kept].reshape(sample.size, -1)
    left_out = statistic(rows)
    spread = left_out.mean() - left_out
    scale = float(np.sum(spread**2)) ** 1.5
    return float(np.sum(spread**3)) / (6.0 * scale) if scale > 0.0 else 0.0
