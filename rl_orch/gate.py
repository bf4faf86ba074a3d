"""Gates: rules as data, and `judge`, which holds a report against them. Pure; reads nothing.

The worker asks whether training may stop; the orchestrator asks whether a policy is validated.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rl_orch.records import Check, EvalReport, Verdict
from rl_orch.spec.groups import GatesGroup

STABLE_SHARE = 0.5
"""The largest deviation, as a share of the mean, that counts as stable."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing asked of a report: the name of the check and its limit (infinite: none)."""

    name: str
    limit: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a rule may read: the report, how long training took, and whom it competes with."""

    report: EvalReport
    env_steps: int
    baseline: EvalReport | None


def rules_from(gates: GatesGroup) -> tuple[Rule, ...]:
    """The rules a spec asks for; none, if it asks for no return, episodes or deviation.

    `stability` takes `max_std` in as the limit for means that are not above zero; switched off, it
    leaves `max_std` to stand alone.
    """
    options = {
        "min_return": gates.min_return,
        "min_episodes": gates.min_episodes,
        "max_std": gates.max_std,
    }
    asked = {name: float(limit) for name, limit in options.items() if limit is not None}
    if asked and gates.stability:
        asked["stability"] = asked.pop("max_std", math.inf)
    return tuple(Rule(name, limit) for name, limit in asked.items())


def judge(
    report: EvalReport,
    baseline: EvalReport | None,
    rules: Sequence[Rule],
    *,
    env_steps: int,
) -> Verdict | None:
    """The verdict on a report after `env_steps` of training, or None where nothing is asked."""
    if not rules:
        return None
    evidence = Evidence(report, env_steps, baseline)
    checks = tuple(RULES[rule.name](evidence, rule.limit) for rule in rules)
    return Verdict(passed=all(check.passed for check in checks), checks=checks)


def _min_return(evidence: Evidence, limit: float) -> Check:
    summary = evidence.report.summary
    low = summary.ci95[0]
    sentence = (
        f"lower bound of the mean return over {summary.n} {summary.unit} is {low:.2f}; "
        f"at least {limit:g} is asked"
    )
    return Check(
        rule="min_return", passed=low >= limit, observed=low, limit=limit, sentence=sentence
    )


def _min_episodes(evidence: Evidence, limit: float) -> Check:
    episodes = evidence.env_steps / max(evidence.report.mean_length, 1.0)
    sentence = f"trained for {episodes:.0f} episodes' worth of steps; at least {limit:g} are asked"
    return Check(
        rule="min_episodes",
        passed=episodes >= limit,
        observed=episodes,
        limit=limit,
        sentence=sentence,
    )


def _max_std(evidence: Evidence, limit: float) -> Check:
    std = evidence.report.summary.std
    sentence = f"standard deviation is {std:.2f}; at most {limit:g} is asked"
    return Check(rule="max_std", passed=std <= limit, observed=std, limit=limit, sentence=sentence)


def _stability(evidence: Evidence, limit: float) -> Check:
    """Deviation below half the mean. That says nothing for means at or below zero: there
    `gates.max_std` decides, and without it the rule abstains and says so."""
    mean, std = evidence.report.summary.mean, evidence.report.summary.std
    if mean > 0:
        aside = "; gates.max_std is for means not above zero" if math.isfinite(limit) else ""
        limit = STABLE_SHARE * mean
        passed = std < limit
        sentence = (
            f"standard deviation is {std:.2f}; below half the mean, {limit:.2f}, is asked{aside}"
        )
    elif math.isfinite(limit):
        passed = std <= limit
        sentence = (
            f"mean return {mean:.2f} is not above zero, so gates.max_std decides: "
            f"standard deviation is {std:.2f}; at most {limit:g} is asked"
        )
    else:
        passed = True
        sentence = (
            f"not judged: mean return {mean:.2f} is not above zero and gates.max_std is not set"
        )
    return Check(
        rule="stability",
        passed=passed,
        observed=std,
        limit=limit if math.isfinite(limit) else None,
        sentence=sentence,
    )


RULES: dict[str, Callable[[Evidence, float], Check]] = {
    "min_return": _min_return,
    "min_episodes": _min_episodes,
    "max_std": _max_std,
    "stability": _stability,
}
