"""Rules that hold a policy against another one: no worse than by a margin, or better. Pure."""

import math
from dataclasses import dataclass, replace

from rl_orch import stats
from rl_orch.gate.evidence import Evidence, Rule, check, missing
from rl_orch.records import Check, EvalReport


def no_regression(evidence: Evidence, rule: Rule) -> Check:
    """Non-inferiority: the lower bound of the difference to the model at the alias is at most the
    margin (the limit) below zero. To be no clear loss is not enough: few episodes never show one.
    """
    return _compared(evidence, rule, -rule.limit, f"a loss of at most {rule.limit:g} is allowed")


def improvement(evidence: Evidence, rule: Rule) -> Check:
    """Superiority: the lower bound of the difference to the model at the alias is above zero."""
    return _compared(evidence, rule, 0.0, "more than 0 is asked")


def same_episodes(first: EvalReport, second: EvalReport) -> int:
    """How many episodes of two reports can be paired, from the first on: all of the shorter one
    if its seeds are those that the other begins with, or else none."""
    n = min(len(first.seeds), len(second.seeds), len(first.returns), len(second.returns))
    return n if n > 0 and first.seeds[:n] == second.seeds[:n] else 0


def _compared(evidence: Evidence, rule: Rule, least: float, asked: str) -> Check:
    alias = str(rule.against)
    remedy = "`rlctl registry validate` plays both on the same seeds"
    if alias not in evidence.baselines:
        return missing(evidence, rule, f"how the model at {alias!r} does", remedy)
    baseline = evidence.baselines[alias]
    if baseline is None:
        return check(replace(rule, limit=least), True, None, _abstains(evidence, alias))
    unlike = _unlike(evidence.report, baseline)
    if unlike is not None:
        return missing(evidence, rule, f"how the two compare, since {unlike}", remedy)
    apart = _difference(evidence.report, baseline, least)
    passed = apart.low > least if rule.name == "improvement" else apart.low >= least
    sentence = (
        f"mean return minus that of {_name(baseline, alias)} {apart.how} is {apart.mean:.2f}, "
        f"{apart.bounds}; {asked}"
    )
    return check(replace(rule, limit=least), passed, apart.low, sentence)


def _abstains(evidence: Evidence, alias: str) -> str:
    """Why there is nobody to compare with."""
    if alias in evidence.own:
        return f"not judged: the model is {alias!r} itself"
    return f"not judged: no model of {evidence.report.env_id} is {alias!r} yet"


def _unlike(report: EvalReport, baseline: EvalReport) -> str | None:
    """Why two reports cannot be compared, if they cannot."""
    if report.env_id != baseline.env_id:
        return f"the one played {report.env_id}, the other {baseline.env_id}"
    if report.deterministic != baseline.deterministic:
        return "one of them took its most likely actions and the other sampled"
    return None


@dataclass(frozen=True, slots=True)
class _Difference:
    """The difference of two means with its lower bound, all bounds in words, and where it is
    from."""

    low: float
    mean: float
    bounds: str
    how: str


def _difference(report: EvalReport, baseline: EvalReport, least: float) -> _Difference:
    n = same_episodes(report, baseline)
    if n == 0:
        unpaired = stats.difference(report.returns, baseline.returns)
        how = f"over {unpaired.n[0]} and {unpaired.n[1]} episodes with other seeds"
        # Where it was stopped by pairs that are not here, nothing is bounded.
        ci95 = unpaired.ci95 if report.stopping is None else (-math.inf, math.inf)
        return _Difference(ci95[0], unpaired.mean, _between(ci95, least), how)
    first, second = report.returns[:n], baseline.returns[:n]
    apart = stats.paired(first, second, seed=report.seed)
    how = f"over {n} pairs of episodes with the same seed"
    stopping = report.stopping
    if stopping is None:
        return _Difference(apart.ci95[0], apart.mean, _between(apart.ci95, least), how)
    test = stats.plan(
        stopping.n_max, looks=stopping.looks, alpha=stopping.alpha, margin=stopping.margin
    )
    seen = test.look([a - b for a, b in zip(first, second, strict=True)])
    how = f"{how}, of at most {stopping.n_max},"
    return _Difference(
        seen.low, apart.mean, f"at least {_beside(seen.low, least)} by all looks", how
    )


def _between(ci95: tuple[float, float], least: float) -> str:
    return f"with 95 % confidence between {_beside(ci95[0], least)} and {ci95[1]:.2f}"


def _beside(value: float, limit: float) -> str:
    """A bound with as many digits as it takes to tell it from a limit that it is not at."""
    digits = (d for d in range(2, 17) if value == limit or round(value, d) != round(limit, d))
    return f"{value:.{next(digits, 17)}f}"


def _name(baseline: EvalReport, alias: str) -> str:
    return f"{alias!r}" if baseline.model is None else f"{alias!r} (model {baseline.model})"
