"""Gates: rules as data, evidence, and the verdict that follows. Pure; reads nothing."""

from rl_orch.gate.evidence import Evidence, Rule
from rl_orch.gate.verdict import judge, read_more, rules_from, rules_of_reports, weigh

__all__ = [
    "Evidence",
    "Rule",
    "judge",
    "read_more",
    "rules_from",
    "rules_of_reports",
    "weigh",
]
