"""Two samples side by side: how far apart their means are, and how often the one beats the other.

Pure functions of their arguments, seeded where they resample.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rl_orch.records import Estimate
from rl_orch.stats.bootstrap import Floats, slices
from rl_orch.stats.student import NORMAL, boundary, student_t
from rl_orch.stats.summary import mean_ci95

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Difference:
    """How far the mean of one sample lies above that of another, and the 95 % interval of that.

    `paired` if number k of the one belongs to number k of the other, as with episodes that have
    the same seed.
    """

    mean: float
    ci95: tuple[float, float]
    n: tuple[int, int]
    paired: bool = False

    @property
    def clear(self) -> bool:
        """Whether the interval has a width and leaves zero out, so that the sign is not in doubt.

        Samples without spread do not say how far further numbers would be from them.
        """
        low, high = self.ci95
        return low < high and (low > 0.0 or high < 0.0)

    @property
    def turned(self) -> "Difference":
        """How far the other mean lies above this one."""
        low, high = self.ci95
        return Difference(-self.mean, (-high, -low), self.n[::-1], self.paired)


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


def paired(first: Sequence[float], second: Sequence[float], *, seed: int = 0) -> Difference:
    """The mean of the differences of pairs, first minus second, with the interval of a mean.

    What pairs have in common, such as how hard an episode is, drops out: where returns hang on
    that, far fewer episodes tell policies apart.
    """
    a, b = (np.asarray(values, dtype=np.float64) for values in (first, second))
    if a.ndim != 1 or a.shape != b.shape or a.size == 0:
        raise ValueError(f"pairs need samples of one size above 0, got {a.shape} and {b.shape}")
    apart = a - b
    n = (int(a.size), int(b.size))
    return Difference(float(apart.mean()), mean_ci95(apart, seed), n, paired=True)


def probability_of_improvement(
    first: Sequence[float], second: Sequence[float], *, seed: int = 0
) -> Estimate:
    """How likely a number of the first sample is above one of the second; ties count half.

    Mann and Whitney's U over the number of pairs, with the bootstrap's percentiles as 95 %
    interval, as in rliable (Agarwal et al. 2021). Where one sample lies wholly above the other all
    resamples say the same, though unseen numbers may not: there Newcombe's (2006) method 5 decides.
    """
    a, b = (np.asarray(values, dtype=np.float64) for values in (first, second))
    if a.ndim != 1 or b.ndim != 1 or 0 in (a.size, b.size):
        raise ValueError(f"needs two samples of numbers, got {a.shape} and {b.shape}")
    _, places = np.unique(np.concatenate([a, b]), return_inverse=True)
    kinds = int(places.max()) + 1
    one, other = (np.bincount(part, minlength=kinds) for part in np.split(places, [a.size]))
    value = float(_superiority(one[None, :], other[None, :])[0])
    resampled = _resampled_superiority(one, other, seed)
    if np.ptp(resampled) == 0.0:
        return Estimate(value=value, ci95=_newcombe(value, a.size, b.size))
    low, high = np.quantile(resampled, (0.025, 0.975))
    return Estimate(value=value, ci95=(float(low), float(high)))


def _superiority(one: Counts, other: Counts) -> Floats:
    """U / (n · m) for each row, from how often each value, in rising order, occurs."""
    below = np.cumsum(other, axis=-1) - 0.5 * other
    won = np.sum(one * below, axis=-1)
    return np.asarray(won / (one[0].sum() * other[0].sum()))


def _resampled_superiority(one: Counts, other: Counts, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    return np.concatenate(
        [
            _superiority(_recounted(one, rows, rng), _recounted(other, rows, rng))
            for rows in slices(2 * one.size)
        ]
    )


def _recounted(counts: Counts, rows: int, rng: np.random.Generator) -> Counts:
    """How often each value occurs in resamples of the sample in which it occurs so often."""
    sample, kinds = np.repeat(np.arange(counts.size), counts), counts.size
    drawn = sample[rng.integers(0, sample.size, (rows, sample.size))]
    drawn += kinds * np.arange(rows)[:, None]
    return np.bincount(drawn.ravel(), minlength=rows * kinds).reshape(rows, kinds)


def _newcombe(value: float, n: int, m: int) -> tuple[float, float]:
    """Those chances from which what was seen is no further than 1.96 deviations.

    The deviation is Hanley and McNeil's (1982) at each chance itself, for half of n + m in both.
    """
    z = NORMAL.inv_cdf(0.975)

    def likely(chance: float) -> bool:
        spare = (n + m) / 2 - 1
        shape = 1 + spare * ((1 - chance) / (2 - chance) + chance / (1 + chance))
        return abs(chance - value) <= z * math.sqrt(chance * (1 - chance) * shape / (n * m))

    return boundary(likely, value, 0.0), boundary(likely, value, 1.0)
