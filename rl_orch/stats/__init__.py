"""Honest summaries of a handful of numbers, comparisons, and tests that may stop early: pure."""

from rl_orch.stats.bootstrap import interval, iqm, mean, median
from rl_orch.stats.comparison import Difference, difference, paired, probability_of_improvement
from rl_orch.stats.sequential import Look, Sequential, plan
from rl_orch.stats.student import student_t
from rl_orch.stats.summary import aggregates, band, shortfalls, summarize, summarize_runs
from rl_orch.stats.trend import trend

__all__ = [
    "Difference",
    "Look",
    "Sequential",
    "aggregates",
    "band",
    "difference",
    "interval",
    "iqm",
    "mean",
    "median",
    "paired",
    "plan",
    "probability_of_improvement",
    "shortfalls",
    "student_t",
    "summarize",
    "summarize_runs",
    "trend",
]
