"""Metrics of episodes with their intervals; shares of episodes by an exact one. Pure."""

import math
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

import numpy as np

from rl_orch.records import Estimate
from rl_orch.records.reports import SUCCESS
from rl_orch.stats.student import boundary
from rl_orch.stats.summary import mean_ci95

TAIL = 0.025


def metric_estimates(
    metrics: Mapping[str, Sequence[float]], *, shares: Collection[str] = (), seed: int = 0
) -> dict[str, Estimate]:
    """The mean of each metric with its 95 % interval; of success and other shares the exact one.

    A number that merely happened to be 0 or 1 in each episode is no share, since it may have other
    values: its interval is that of returns, which has no width where all are alike.
    """
    estimates = {}
    for name, values in metrics.items():
        if len(values):
            is_share = name == SUCCESS or name in shares
            estimates[name] = _estimate(values, seed, is_share=is_share)
    return estimates


def share_ci95(count: int, n: int) -> tuple[float, float]:
    """The exact 95 % interval of a share, `count` of n: Clopper and Pearson (1934).

    It never holds less than it says, stays within [0, 1], and has a width where all are alike.
    """
    low = 0.0 if count == 0 else 1.0 - _highest(n - count, n)
    return low, 1.0 if count == n else _highest(count, n)


def _estimate(values: Sequence[float], seed: int, *, is_share: bool) -> Estimate:
    sample = np.asarray(values, np.float64)
    if is_share and np.isin(sample, (0.0, 1.0)).all():
        bounds = share_ci95(int(sample.sum()), int(sample.size))
    else:
        bounds = mean_ci95(sample, seed)
    return Estimate(value=float(sample.mean()), ci95=bounds)


@lru_cache(maxsize=1024)
def _highest(count: int, n: int) -> float:
    """The largest chance at which at most `count` of n are still seen in 2.5 % of cases."""
    k = np.arange(count + 1)
    ways = np.array([math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) for i in k])

    def is_likely(chance: float) -> bool:
        logs = ways + k * math.log(chance) + (n - k) * math.log1p(-chance)
        return float(np.exp(logs).sum()) > TAIL

    return boundary(is_likely, count / n if count else 1e-300, 1.0 - 1e-16)
