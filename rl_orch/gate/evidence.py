"""Rules as data, and the evidence that they may read. What nobody has gathered is None."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rl_orch.records import Check, EvalReport, Evaluation, Parity


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that is asked: the name of the check, its limit (infinite: none) and, for a
    comparison, the alias of the model to compare with; for a metric, which one, and the `sign`
    that its bound must be in to the limit."""

    name: str
    limit: float
    against: str | None = None
    metric: str | None = None
    sign: str = ">="


@dataclass(frozen=True, slots=True)
class Evidence:
    """What rules may read of a policy.

    `baselines` are the reports on the models that it competes with, by alias; None for an alias
    that no model of the environment holds, or that is its `own`. `history` are the evaluations
    during training with their steps, oldest first. `latency_ms` is the 99th percentile of the time
    of one decision on one observation, `bundle_bytes` the size of the bundle with all its files,
    `guardrail_events` how often a guardrail of the run spoke up, `parity` how each exported form
    compares. `problems` say why the evidence of a rule is missing, where that is known.
    """

    report: EvalReport
    env_steps: int
    baselines: Mapping[str, EvalReport | None] = field(default_factory=dict)
    history: tuple[tuple[int, Evaluation], ...] | None = None
    latency_ms: float | None = None
    bundle_bytes: int | None = None
    guardrail_events: int | None = None
    parity: tuple[Parity, ...] | None = None
    own: Collection[str] = ()
    problems: Mapping[str, str] = field(default_factory=dict)


def check(rule: Rule, passed: bool, observed: float | None, sentence: str) -> Check:
    """The check of a rule by its own limit, if it has one."""
    limit = rule.limit if math.isfinite(rule.limit) else None
    return Check(rule=rule.name, passed=passed, observed=observed, limit=limit, sentence=sentence)


def missing(evidence: Evidence, rule: Rule, what: str, remedy: str) -> Check:
    """The check of a rule without its evidence: failed, with what is missing and why, or else what
    to do."""
    problem = evidence.problems.get(rule.name)
    why = f"; {remedy}" if problem is None else f": {problem}"
    return check(rule, False, None, f"not known: {what}{why}")
