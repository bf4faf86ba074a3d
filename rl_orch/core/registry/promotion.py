"""Decision whether a model deserves an alias: by the verdicts that are stored, and by a comparison
with the model in its place. Pure; what is decided here is carried out in `verbs.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rl_orch.core.registry import verdicts
from rl_orch.errors import GateRefused
from rl_orch.gate import Rule
from rl_orch.records import ModelVersion, StoredVerdict, Verdict

IMPROVEMENT = "improvement"
NO_REGRESSION = "no_regression"


@dataclass(frozen=True, slots=True)
class PromotionRule:
    """Demand on a challenger: to be better than the model at the alias, or, with a margin, not to
    be worse."""

    alias: str
    allow_equal: bool = False
    margin: float = 0.0

    @property
    def gate_rule(self) -> Rule:
        """The same as a rule of a gate."""
        name = NO_REGRESSION if self.allow_equal else IMPROVEMENT
        return Rule(name, self.margin, self.alias)

    @property
    def met_by(self) -> tuple[str, ...]:
        """The rules that a passing verdict may be by: who is better is not worse."""
        return (NO_REGRESSION, IMPROVEMENT) if self.allow_equal else (IMPROVEMENT,)


def validating(model: ModelVersion, stored: Sequence[StoredVerdict]) -> StoredVerdict:
    """The verdict by which a model may have a name.

    Raises `GateRefused` with what to do if there is none.
    """
    newest = verdicts.alone(verdicts.on_files(stored, model.digests))
    if newest is None:
        older = " on its files as they are now" if stored else ""
        raise GateRefused(
            f"model {model.id} has no verdict{older}, and nobody promotes what no gate has passed",
            hint=f"rlctl registry validate {model.id}; with --min-return NUMBER, if its spec has "
            "no gate.",
        )
    if not newest.passed:
        raise GateRefused(
            f"model {model.id} has not passed its gate: {_failed(newest.verdict)}",
            hint='To promote it all the same: --force --reason "…"; that is kept for good.',
        )
    return newest


def decided(
    model: ModelVersion,
    stored: Sequence[StoredVerdict],
    champion: ModelVersion,
    rule: PromotionRule,
    episodes: int,
) -> StoredVerdict | None:
    """The stored verdict that settles whether a challenger takes the champion's place.

    The newest one that passed does, if it asked for no less. Else one over as many episodes that
    was asked the same: whoever tries again has to play more.
    """
    met = verdicts.against(verdicts.on_files(stored, model.digests), champion, rule.met_by)
    for verdict in met:
        margins = [each["limit"] for each in verdict.rules if each["name"] == NO_REGRESSION]
        if verdict.passed and all(margin <= rule.margin for margin in margins):
            return verdict
    same = (
        verdict
        for verdict in met
        if (verdict.episodes or 0) >= episodes
        and [(each["name"], each["limit"]) for each in verdict.rules]
        == [(rule.gate_rule.name, rule.gate_rule.limit)]
    )
    return next(same, None)


def refuse_beaten(
    model: ModelVersion, champion_id: int, place: str, comparison: StoredVerdict
) -> None:
    """Raise `GateRefused` unless the comparison passed."""
    if comparison.passed:
        return
    equal = any(check.rule == NO_REGRESSION for check in comparison.verdict.checks)
    less = "" if equal else "Where being as good is enough: --allow-equal, with --margin. "
    raise GateRefused(
        f"model {model.id} does not take the place of model {champion_id} as {place}: "
        f"{_failed(comparison.verdict)}",
        hint=f"{less}To decide by more episodes: --episodes. To promote it all the same: --force "
        '--reason "…"; that is kept for good.',
    )


def _failed(verdict: Verdict) -> str:
    return next((check.sentence for check in verdict.checks if not check.passed), "it failed")
