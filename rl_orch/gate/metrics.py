"""Rules on metrics of evaluated episodes: success, reward terms, and whatever else infos told."""

import operator
from collections.abc import Callable
from dataclasses import replace

from rl_orch import stats
from rl_orch.gate.evidence import Evidence, Rule, check
from rl_orch.records import Check
from rl_orch.records.reports import SUCCESS

SIGNS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
}


def min_success_rate(evidence: Evidence, rule: Rule) -> Check:
    """The lower bound of the success rate reaches the limit."""
    return _bounded(evidence, replace(rule, metric=SUCCESS))


def metrics(evidence: Evidence, rule: Rule) -> Check:
    """The bound of a metric that is on the side of the limit keeps to it."""
    return _bounded(evidence, replace(rule, name=f"metrics.{rule.metric}"))


def _bounded(evidence: Evidence, rule: Rule) -> Check:
    report, name = evidence.report, str(rule.metric)
    values = report.metrics.get(name)
    if not values:
        return check(rule, False, None, f"not known: {name}; {_why(evidence, name)}")
    estimate = stats.metric_estimates({name: values}, shares=report.shares, seed=report.seed)[name]
    low, high = estimate.ci95
    least = rule.sign.startswith(">")
    seen = low if least else high
    sentence = (
        f"{'lower' if least else 'upper'} bound of {name} over {len(values)} episodes is "
        f"{seen:.4g} (mean {estimate.value:.4g}); {rule.sign} {rule.limit:g} is asked"
    )
    return check(rule, SIGNS[rule.sign](seen, rule.limit), seen, sentence)


def _why(evidence: Evidence, name: str) -> str:
    """Why there is no such metric in a report."""
    report = evidence.report
    if name in report.missing:
        return report.missing[name]
    if name == SUCCESS:
        return "no episode gave a number as info['is_success'] or info['success']"
    there = ", ".join(report.metrics) or "none"
    return f"the evaluation has: {there}; env.info_metrics names keys of info to record"
