"""Honest summaries of a handful of numbers: interquartile mean and bootstrap intervals.

Pure functions of their arguments; the same numbers give the same interval on every machine.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rl_orch.records import Evaluation, GroupEvaluation

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


def summarize_runs(values: Sequence[float], *, seed: int = 0) -> GroupEvaluation:
    """What the mean returns of some training runs say of their spec: see `summarize`.

    The interquartile mean has an interval of its own.
    """
    summary = summarize(values, unit="training runs", seed=seed)
    sample = np.asarray(values, dtype=np.float64)
    return GroupEvaluation(**summary.model_dump(), iqm_ci95=_iqm_ci95(sample, seed))


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


def band(rows: Floats) -> tuple[Floats, Floats]:
    """The pointwise 95 % interval of the mean of each column, by Student's t: lows and highs.

    Each row is a replicate, and there are at least two of them.
    """
    n = rows.shape[0]
    half = student_t(n - 1) * rows.std(axis=0, ddof=1) / np.sqrt(n)
    middle = rows.mean(axis=0)
    return middle - half, middle + half


@dataclass(frozen=True, slots=True)
class Difference:
    """How far the mean of one sample lies above that of another, and the 95 % interval of that."""

    mean: float
    ci95: tuple[float, float]
    n: tuple[int, int]

    @property
    def clear(self) -> bool:
        """Whether the interval leaves zero out, so that the sign is not in doubt."""
        return self.ci95[0] > 0.0 or self.ci95[1] < 0.0

    @property
    def turned(self) -> "Difference":
        """How far the other mean lies above this one."""
        low, high = self.ci95
        return Difference(-self.mean, (-high, -low), self.n[::-1])


def difference(first: Sequence[float], second: Sequence[float]) -> Difference:
    """The mean of the first sample minus that of the second, by Welch's t.

    The samples may differ in size and in spread. With a single number on either side
    nothing is bounded, with none there is no difference either.
    """
    a, b = (np.asarray(values, dtype=np.float64) for values in (first, second))
    n = (int(a.size), int(b.size))
    middle = float(a.mean() - b.mean()) if min(n) > 0 else math.nan
    if min(n) < 2:
        return Difference(middle, (-math.inf, math.inf), n)
    x, y = float(a.var(ddof=1)) / a.size, float(b.var(ddof=1)) / b.size
    if x + y == 0.0:
        return Difference(middle, (middle, middle), n)
    # Welch-Satterthwaite; at least the smaller of n - 1, so never below one.
    freedom = (x + y) ** 2 / (x**2 / (a.size - 1) + y**2 / (b.size - 1))
    half = student_t(max(freedom, min(n) - 1)) * math.sqrt(x + y)
    return Difference(middle, (middle - half, middle + half), n)


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


def _iqm_ci95(sample: Floats, seed: int) -> tuple[float, float]:
    """The 95 % interval of the interquartile mean, safe for small samples as `_ci95` is.

    What Student's t is to the mean, Tukey and McLaughlin's (1963) interval is to a trimmed mean:
    with g numbers cut off at each end, the deviation is that of the sample whose g lowest and
    highest are set to their neighbours, and n - 2g - 1 the degrees of freedom.
    """
    if sample.size == 1:
        return -np.inf, np.inf
    low, high = interval(sample, iqm, seed=seed)
    if sample.size - 1 > len(STUDENT_T):
        return low, high
    ordered, cut = np.sort(sample), sample.size // 4
    left = sample.size - 2 * cut
    pulled_in = np.clip(ordered, ordered[cut], ordered[-cut - 1])
    half = student_t(left - 1) * float(pulled_in.std(ddof=1)) * np.sqrt(sample.size) / left
    middle = float(iqm(sample[None, :])[0])
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
