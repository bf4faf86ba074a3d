"""Honest summaries of a handful of numbers, comparisons, and tests that may stop early: pure.

What is here is loaded when it is first asked for: it needs NumPy, which takes a tenth of a second,
and most commands of the control plane never compute anything.
"""

from typing import TYPE_CHECKING

from rl_orch.plugins import exports

if TYPE_CHECKING:
    from rl_orch.stats.bootstrap import interval, iqm
    from rl_orch.stats.comparison import Difference, difference, paired, probability_of_improvement
    from rl_orch.stats.proportion import metric_estimates, share_ci95
    from rl_orch.stats.sequential import Look, plan
    from rl_orch.stats.slope import trend
    from rl_orch.stats.summary import aggregates, band, summarize, summarize_runs

__all__ = [
    "Difference",
    "Look",
    "aggregates",
    "band",
    "difference",
    "interval",
    "iqm",
    "metric_estimates",
    "paired",
    "plan",
    "probability_of_improvement",
    "share_ci95",
    "summarize",
    "summarize_runs",
    "trend",
]

__getattr__ = exports(
    __name__,
    {
        "bootstrap": ("interval", "iqm"),
        "comparison": ("Difference", "difference", "paired", "probability_of_improvement"),
        "proportion": ("metric_estimates", "share_ci95"),
        "sequential": ("Look", "plan"),
        "slope": ("trend",),
        "summary": ("aggregates", "band", "summarize", "summarize_runs"),
    },
)
