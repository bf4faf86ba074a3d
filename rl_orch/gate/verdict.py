"""Which rules a spec asks for, and `judge`, which holds evidence against them. Reads nothing.

The worker asks whether training may stop; the orchestrator asks whether a policy is validated.
"""

import math
from collections.abc import Callable, Iterator, Sequence

from rl_orch.gate.comparison import improvement, no_regression
from rl_orch.gate.convergence import SETTLED_SHARE, converged
from rl_orch.gate.evidence import Evidence, Rule
from rl_orch.gate.fitness import export_parity, guardrail_clean, max_bundle_mb, max_latency_ms
from rl_orch.gate.metrics import metrics, min_success_rate
from rl_orch.gate.returns import max_std, min_episodes, min_return, stability
from rl_orch.records import Check, EvalReport, Verdict
from rl_orch.spec.groups import GatesGroup

OF_REPORTS: dict[str, Callable[[Evidence, Rule], Check]] = {
    "min_return": min_return,
    "min_episodes": min_episodes,
    "max_std": max_std,
    "stability": stability,
    "min_success_rate": min_success_rate,
    "metrics": metrics,
}
"""Rules that need nothing but a report, so that training can be held against them as it goes."""

RULES: dict[str, Callable[[Evidence, Rule], Check]] = OF_REPORTS | {
    "converged": converged,
    "no_regression": no_regression,
    "improvement": improvement,
    "max_latency_ms": max_latency_ms,
    "max_bundle_mb": max_bundle_mb,
    "guardrail_clean": guardrail_clean,
    "export_parity": export_parity,
}


def rules_from(gates: GatesGroup) -> tuple[Rule, ...]:
    """The rules a spec asks for."""
    return (*rules_of_reports(gates), *_rules_of_the_rest(gates))


def rules_of_reports(gates: GatesGroup) -> tuple[Rule, ...]:
    """Those that need nothing but a report: none, if no return, episodes or deviation is asked for.

    `stability` takes `max_std` in as the limit for means that are not above zero; switched off, it
    leaves `max_std` to stand alone.
    """
    options = {name: getattr(gates, name) for name in ("min_return", "min_episodes", "max_std")}
    asked = {name: float(limit) for name, limit in options.items() if limit is not None}
    if asked and gates.stability:
        asked["stability"] = asked.pop("max_std", math.inf)
    return (*(Rule(name, limit) for name, limit in asked.items()), *_rules_of_metrics(gates))


def _rules_of_metrics(gates: GatesGroup) -> Iterator[Rule]:
    if gates.min_success_rate is not None:
        yield Rule("min_success_rate", float(gates.min_success_rate))
    for name, limit in gates.metrics.items():
        sign, number = limit.split()
        yield Rule("metrics", float(number), metric=name, sign=sign)


def read_more(rules: Sequence[Rule]) -> bool:
    """Whether any rule reads more than the report."""
    return any(rule.name not in OF_REPORTS for rule in rules)


def judge(
    report: EvalReport,
    baseline: EvalReport | None,
    rules: Sequence[Rule],
    *,
    env_steps: int,
) -> Verdict | None:
    """The verdict on a report after `env_steps` of training, or None where nothing is asked.

    The baseline stands for whichever model a rule compares with; `weigh` takes further evidence.
    """
    aliases = [rule.against for rule in rules if rule.against is not None]
    baselines = {} if baseline is None else dict.fromkeys(aliases, baseline)
    return weigh(Evidence(report, env_steps, baselines), rules)


def weigh(evidence: Evidence, rules: Sequence[Rule]) -> Verdict | None:
    """The verdict on all that is known of a policy, or None where nothing is asked."""
    if not rules:
        return None
    checks = tuple(RULES[rule.name](evidence, rule) for rule in rules)
    return Verdict(passed=all(check.passed for check in checks), checks=checks)


def _rules_of_the_rest(gates: GatesGroup) -> Iterator[Rule]:
    if gates.converged:
        yield Rule("converged", SETTLED_SHARE)
    if gates.no_regression is not None:
        yield Rule("no_regression", gates.margin or 0.0, gates.no_regression)
    if gates.improvement is not None:
        yield Rule("improvement", 0.0, gates.improvement)
    for name in ("max_latency_ms", "max_bundle_mb"):
        limit = getattr(gates, name)
        if limit is not None:
            yield Rule(name, float(limit))
    for name in ("guardrail_clean", "export_parity"):
        if getattr(gates, name):
            yield Rule(name, 0.0)
