"""The rule that training has converged, from the evaluations during training. Pure."""

from dataclasses import replace

from rl_orch import stats
from rl_orch.gate.evidence import Evidence, Rule, check, missing
from rl_orch.records import Check
from rl_orch.spec.gate_checks import SETTLING as FEWEST

SETTLED_SHARE = 0.05
"""The largest change, as a share of all that training changed, that counts as none."""


def converged(evidence: Evidence, rule: Rule) -> Check:
    """Returns have settled: the line through the last third of the curve is not clearly steep.

    It fails where the whole 95 % interval of the line's change lies beyond a share (the limit) of
    the distance from the worst evaluation to the best. Rising, training was ended too early;
    falling, the best checkpoint is a peak and the next training may not reach it. All evaluations
    see the same episodes, so the luck of the draw does not move the curve. The test is whether a
    change is clear: noise that hides it lets the rule pass, and `min_return` is there for that.
    """
    if not evidence.history:
        remedy = "judge the model where the event file of its run is"
        return missing(evidence, rule, "how returns went during training", remedy)
    last = evidence.history[-1][0]
    late = [(step, change.mean) for step, change in evidence.history if 3 * step >= 2 * last]
    if len(late) < FEWEST:
        what = f"whether returns have settled, from {len(late)} evaluations in the last third"
        at_most = max(1, last // (3 * FEWEST))
        return missing(evidence, rule, what, f"set eval.every to at most {at_most:,}")
    change = stats.trend([step for step, _ in late], [mean for _, mean in late])
    means = [evaluation.mean for _, evaluation in evidence.history]
    allowed = rule.limit * (max(means) - min(means))
    low, high = change.ci95
    passed = low <= allowed and high >= -allowed
    sentence = (
        f"over the last third of training, {len(late)} evaluations, the mean return changed by "
        f"{change.value:.2f}, with 95 % confidence between {low:.2f} and {high:.2f}; "
        f"{allowed:.2f} either way, {rule.limit:.0%} of all change, counts as settled"
    )
    return check(replace(rule, limit=allowed), passed, change.value, sentence)
