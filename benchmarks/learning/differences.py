"""How far our runs get above others with the same budget and settings. Pure.

Each run counts by two numbers, both in units of return: where it ends, and the area under its
curve. Differences between their means over seeds have a 95 % interval by Welch's t.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from rl_orch import stats
from rl_orch.stats import Difference

Run: TypeAlias = Mapping[str, Any]

LAST = 2
"""Evaluations at the end of a run whose mean is its final return."""


@dataclass(frozen=True, slots=True)
class Lead:
    """The means of two sides over their seeds, and how far the first lies above the second."""

    means: tuple[float, float]
    difference: Difference

    @property
    def below(self) -> bool:
        """Whether the first is lower beyond chance: the whole interval lies below zero."""
        return self.difference.ci95[1] < 0.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """One side against another, by final return and by area under the curve."""

    final: Lead
    area: Lead

    @property
    def seeds(self) -> tuple[int, int]:
        """The number of runs of each side."""
        return self.final.difference.n

    @property
    def below(self) -> bool:
        """Whether the first side is lower beyond chance in either."""
        return self.final.below or self.area.below


def compare(first: Sequence[Run], second: Sequence[Run]) -> Comparison:
    """The runs of one side against those of another; each has some."""
    return Comparison(_lead(first, second, final_return), _lead(first, second, area))


def final_return(run: Run) -> float:
    """The mean of the last evaluations of a run."""
    return float(np.mean(run["returns"][-LAST:]))


def area(run: Run) -> float:
    """The area under a run's curve for each step that it spans: its mean return on the way."""
    steps, returns = np.asarray(run["steps"], float), np.asarray(run["returns"], float)
    if steps.size == 1:
        return float(returns[0])
    return float(np.trapezoid(returns, steps) / (steps[-1] - steps[0]))


def _lead(first: Sequence[Run], second: Sequence[Run], measure: Callable[[Run], float]) -> Lead:
    one, other = ([measure(run) for run in runs] for runs in (first, second))
    return Lead((float(np.mean(one)), float(np.mean(other))), stats.difference(one, other))
