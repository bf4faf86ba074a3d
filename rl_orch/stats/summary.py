"""What a handful of numbers says of the policy or the spec behind them: points with intervals.

Pure functions of their arguments; the same numbers give the same interval on every machine.
"""

import math
from collections.abc import Sequence

import numpy as np

from rl_orch.records import Estimate, Evaluation, GroupEvaluation
from rl_orch.stats.bootstrap import Floats, interval, iqm, mean, median
from rl_orch.stats.student import student_t

EXACT_RANKS = 1_000
FEWEST_FOR_MEDIAN = 6
"""The smallest sample whose range holds the median in at least 95 % of cases: 1 - 2 · 2^-6."""


def summarize(values: Sequence[float], *, seed: int = 0) -> Evaluation:
    """Mean, deviation (n - 1), interquartile mean and the 95 % interval of the mean."""
    sample = _sample(values, "summarize")
    return Evaluation(
        mean=float(sample.mean()),
        std=float(sample.std(ddof=1)) if sample.size > 1 else 0.0,
        iqm=float(iqm(sample[None, :])[0]),
        ci95=mean_ci95(sample, seed),
        n=int(sample.size),
    )


def summarize_runs(values: Sequence[float], *, seed: int = 0) -> GroupEvaluation:
    """What the mean returns of some training runs say of their spec: see `summarize`.

    The interquartile mean has an interval of its own.
    """
    summary = summarize(values, seed=seed).model_dump(exclude={"unit"})
    return GroupEvaluation(**summary, iqm_ci95=iqm_ci95(np.asarray(values, np.float64), seed))


def aggregates(
    values: Sequence[float], *, target: float | None = None, seed: int = 0
) -> dict[str, Estimate]:
    """`mean`, `median`, `iqm` and, against a target return, `optimality_gap`, with intervals."""
    sample = _sample(values, "aggregates")
    rows = sample[None, :]
    estimates = {
        "mean": Estimate(value=float(mean(rows)[0]), ci95=mean_ci95(sample, seed)),
        "median": Estimate(value=float(median(rows)[0]), ci95=median_ci95(sample)),
        "iqm": Estimate(value=float(iqm(rows)[0]), ci95=iqm_ci95(sample, seed)),
    }
    if target is not None:
        short = shortfalls(sample, target)
        low, high = mean_ci95(short, seed)
        gap = Estimate(value=float(short.mean()), ci95=(max(0.0, low), high))
        estimates["optimality_gap"] = gap
    return estimates


def shortfalls(sample: Floats, target: float) -> Floats:
    """How far each number falls short of the target; nothing is made up for by those above it.

    Their mean is the optimality gap of Agarwal et al. (2021), in units of return.
    """
    return np.maximum(target - sample, 0.0)


def band(rows: Floats) -> tuple[Floats, Floats]:
    """The pointwise 95 % interval of the mean of each column, by Student's t: lows and highs.

    Each row is a replicate, and there are at least two of them.
    """
    n = rows.shape[0]
    half = student_t(n - 1) * rows.std(axis=0, ddof=1) / np.sqrt(n)
    middle = rows.mean(axis=0)
    return middle - half, middle + half


def mean_ci95(sample: Floats, seed: int = 0) -> tuple[float, float]:
    """The 95 % interval of the mean: at each end the outer one of BCa and Student's t.

    BCa follows the skew of a sample but is too narrow for a small one; Student's t is wide enough,
    but for a skewed one on the wrong side. A single number says nothing of the mean.
    """
    if sample.size == 1:
        return -math.inf, math.inf
    half = student_t(sample.size - 1) * float(sample.std(ddof=1)) / math.sqrt(sample.size)
    return _outer(interval(sample, mean, seed=seed), float(sample.mean()), half)


def iqm_ci95(sample: Floats, seed: int = 0) -> tuple[float, float]:
    """The 95 % interval of the interquartile mean, safe for small samples as `mean_ci95` is.

    What Student's t is to the mean, Tukey and McLaughlin's (1963) interval is to a trimmed mean:
    with g numbers cut off at each end, the deviation is that of the sample whose g lowest and
    highest are set to their neighbours, and n - 2g - 1 the degrees of freedom.
    """
    if sample.size == 1:
        return -math.inf, math.inf
    ordered, cut = np.sort(sample), sample.size // 4
    left = sample.size - 2 * cut
    pulled_in = np.clip(ordered, ordered[cut], ordered[-cut - 1])
    half = student_t(left - 1) * float(pulled_in.std(ddof=1)) * math.sqrt(sample.size) / left
    return _outer(interval(sample, iqm, seed=seed), float(iqm(sample[None, :])[0]), half)


def median_ci95(sample: Floats) -> tuple[float, float]:
    """The 95 % interval of the median, between order statistics: right for every distribution.

    The number of values below the median is binomial. Between the two ranks whose chances enclose
    95 %, Hettmansperger and Sheather (1986) interpolate. Up to n = 5, even the whole range of the
    sample holds the median less often: nothing is bounded.
    """
    ordered, n = np.sort(sample), sample.size
    if n < FEWEST_FOR_MEDIAN:
        return -math.inf, math.inf
    rank, share = _median_rank(n)
    weight = (n - rank - 1) * share / (rank + 1 + (n - 2 * rank - 2) * share)
    low = (1 - weight) * ordered[rank] + weight * ordered[rank + 1]
    high = (1 - weight) * ordered[n - 1 - rank] + weight * ordered[n - 2 - rank]
    return float(low), float(high)


def _median_rank(n: int) -> tuple[int, float]:
    """The last rank, from 0, below which the median lies with a chance of at most 2.5 %, and how
    much of the chance of the next rank is left until then. In whole numbers of 2^-n; of many
    values, the normal approximation is exact to less than a rank."""
    if n > EXACT_RANKS:
        return math.floor(n / 2 - 0.5 - student_t(n) * math.sqrt(n) / 2), 0.0
    rank, below, ways = 0, 1, n
    while 40 * (below + ways) <= 2**n:
        rank, below = rank + 1, below + ways
        ways = ways * (n - rank) // (rank + 1)
    return rank, (2**n - 40 * below) / (40 * ways)


def _outer(bounds: tuple[float, float], middle: float, half: float) -> tuple[float, float]:
    return min(bounds[0], middle - half), max(bounds[1], middle + half)


def _sample(values: Sequence[float], who: str) -> Floats:
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or sample.size == 0:
        raise ValueError(f"{who} needs at least one number, got shape {sample.shape}")
    return sample
