"""Schedules of hyperparameters over the budget of a run."""

import math
from collections.abc import Callable

SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda progress: 1.0,
    "linear": lambda progress: 1.0 - progress,
    "cosine": lambda progress: 0.5 * (1.0 + math.cos(math.pi * progress)),
}
"""The share of the initial value that is left at a progress in [0, 1]."""


def scheduled(schedule: str, initial: float, progress: float, final: float = 0.0) -> float:
    """A hyperparameter at a progress, which counts as 1 past the end of the budget."""
    share = SCHEDULES[schedule](min(max(progress, 0.0), 1.0))
    return final + (initial - final) * share
