"""Gates: rules as data, evidence, and the verdict that follows. Pure; reads nothing."""

from rl_orch.gate.comparison import same_episodes
from rl_orch.gate.evidence import Evidence, Rule
from rl_orch.gate.verdict import (
    RULES,
    judge,
    read_more,
    rules_from,
    rules_of_reports,
    weigh,
)

__all__ = [
    "RULES",
    "Evidence",
    "Rule",
    "judge",
    "read_more",
    "rules_from",
    "rules_of_reports",
    "same_episodes",
    "weigh",
]
