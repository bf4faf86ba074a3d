"""Rules that read one report alone: returns, their spread, and how long training took."""

import math
from dataclasses import replace

from rl_orch.gate.evidence import Evidence, Rule, check
from rl_orch.records import Check

STABLE_SHARE = 0.5
"""The largest deviation, as a share of the mean, that counts as stable."""


def min_return(evidence: Evidence, rule: Rule) -> Check:
    """The lower bound of the mean return reaches the limit."""
    summary = evidence.report.summary
    low = summary.ci95[0]
    sentence = (
        f"lower bound of the mean return over {summary.n} {summary.unit} is {low:.2f}; "
        f"at least {rule.limit:g} is asked"
    )
    return check(rule, low >= rule.limit, low, sentence)


def min_episodes(evidence: Evidence, rule: Rule) -> Check:
    """Training took as many steps as so many episodes of the length that was seen."""
    episodes = evidence.env_steps / max(evidence.report.mean_length, 1.0)
    sentence = (
        f"trained for {episodes:.0f} episodes' worth of steps; at least {rule.limit:g} are asked"
    )
    return check(rule, episodes >= rule.limit, episodes, sentence)


def max_std(evidence: Evidence, rule: Rule) -> Check:
    """The deviation of returns is within the limit."""
    std = evidence.report.summary.std
    sentence = f"standard deviation is {std:.2f}; at most {rule.limit:g} is asked"
    return check(rule, std <= rule.limit, std, sentence)


def stability(evidence: Evidence, rule: Rule) -> Check:
    """Deviation below half the mean. That says nothing for means at or below zero: there
    `gates.max_std` decides, and without it the rule abstains and says so."""
    mean, std = evidence.report.summary.mean, evidence.report.summary.std
    limit = rule.limit
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
    return check(replace(rule, limit=limit), passed, std, sentence)
