"""Rules for what a policy needs besides returns to be used: speed, size, exports, quiet guardrails.

All of them fail where nobody has measured, and say who would.
"""

from rl_orch.gate.evidence import Evidence, Rule, check, missing
from rl_orch.records import Check

MB = 1_000_000
MAKES_ONE = "`rlctl registry validate` makes a bundle"


def max_latency_ms(evidence: Evidence, rule: Rule) -> Check:
    """99 of 100 decisions on one observation take no longer than the limit."""
    seen = evidence.latency_ms
    if seen is None:
        remedy = "`rlctl registry validate` measures it"
        return missing(evidence, rule, "how long a decision takes", remedy)
    sentence = f"99 % of decisions take up to {seen:.3g} ms; at most {rule.limit:g} is asked"
    return _at_most(rule, seen, sentence)


def max_bundle_mb(evidence: Evidence, rule: Rule) -> Check:
    """The bundle, all files together, is no larger than the limit."""
    if evidence.bundle_bytes is None:
        return missing(evidence, rule, "how large the bundle is", MAKES_ONE)
    size = evidence.bundle_bytes / MB
    sentence = f"the bundle has {size:.3g} MB; at most {rule.limit:g} are asked"
    return _at_most(rule, size, sentence)


def guardrail_clean(evidence: Evidence, rule: Rule) -> Check:
    """No guardrail spoke up during the run."""
    seen = evidence.guardrail_events
    if seen is None:
        remedy = "judge the model where the event file of its run is"
        return missing(evidence, rule, "whether guardrails spoke up", remedy)
    times = "once" if seen == 1 else f"{seen} times"
    sentence = f"guardrails spoke up {times}; none may" if seen else "no guardrail spoke up"
    return _at_most(rule, seen, sentence)


def export_parity(evidence: Evidence, rule: Rule) -> Check:
    """Every form that was exported acts as the policy does; the limit is how many may not."""
    if not evidence.parity:
        return missing(evidence, rule, "whether exported forms act alike", MAKES_ONE)
    failed = [form for form in evidence.parity if not form.passed]
    worst = max(failed or evidence.parity, key=lambda form: form.largest_difference)
    said = "differs from the policy" if failed else "act as the policy does"
    forms = ", ".join(form.format for form in failed or evidence.parity)
    sentence = (
        f"{forms} {said}: by up to {worst.largest_difference:.2g} on {worst.n:,} observations"
    )
    return _at_most(rule, len(failed), sentence)


def _at_most(rule: Rule, observed: float, sentence: str) -> Check:
    return check(rule, observed <= rule.limit, float(observed), sentence)
