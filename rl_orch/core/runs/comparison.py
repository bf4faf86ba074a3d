"""Which of some groups is better, as far as their runs can tell, in numbers and in a sentence."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rl_orch.core.runs.groups import JUDGED, RunOrGroup
from rl_orch.stats import Difference, difference
from rl_orch.stats.text import bounds_text, figure

OF_RUNS = (
    "Intervals are over evaluation episodes of one training run each: they say how good these "
    "policies are, not which spec is better. For that, launch each spec with several seeds."
)
OF_GROUPS = (
    "Intervals of groups are over training runs: they say how good a spec is, as far as its seeds "
    "tell. A difference is that of the means, by Welch's t."
)
OF_BOTH = (
    "The interval of a group is over training runs, that of a run over evaluation episodes of one "
    "training run: the two do not compare. Launch each spec with several seeds."
)


@dataclass(frozen=True, slots=True)
class Effect:
    """How one spec does against another: the first one's mean return minus the second one's."""

    first: str
    second: str
    found: Difference | None
    left_out: str = ""

    @property
    def sentence(self) -> str:
        """What may be said of it, and no more."""
        return f"{self._said} {self.left_out}".rstrip()

    @property
    def _said(self) -> str:
        first, second, found = self.first, self.second, self.found
        if found is not None and found.ci95[1] < 0:
            return Effect(second, first, found.turned)._said
        if found is None:
            return f"{first} and {second} learn in different environments: nothing to compare."
        n = f"{found.n[0]} and {found.n[1]} training runs"
        by = f"{figure(found.mean)} {bounds_text(found.ci95)}"
        if min(found.n) < 2:
            return (
                f"Which of {first} and {second} is better cannot be said: it takes two training "
                f"runs with a final evaluation on each side, and there are {n}."
            )
        if not found.clear:
            return (
                f"{first} and {second} cannot be told apart: the difference of their mean returns "
                f"is {by}, n = {n}."
            )
        return f"{first} is better than {second} by {by}, n = {n}."

    def document(self) -> dict[str, Any]:
        """The effect as `compare --json` shows it."""
        found = self.found
        return {
            "first": self.first,
            "second": self.second,
            "mean": None if found is None else found.mean,
            "ci95": None if found is None else list(found.ci95),
            "n": None if found is None else list(found.n),
            "unit": "training runs",
            "sentence": self.sentence,
        }


def effects(found: Sequence[RunOrGroup]) -> list[Effect]:
    """Each subject against the first; none where no group is among them."""
    if not any(subject.group for subject in found):
        return []
    return [_effect(found[0], other) for other in found[1:]]


def caveat(found: Sequence[RunOrGroup]) -> str:
    """What the intervals in a comparison are about."""
    grouped = [subject.group is not None for subject in found]
    if all(grouped):
        return OF_GROUPS
    return OF_BOTH if any(grouped) else OF_RUNS


def _effect(first: RunOrGroup, second: RunOrGroup) -> Effect:
    if first.whole.env != second.whole.env:
        return Effect(first.id, second.id, None)
    found = difference(_returns(first), _returns(second))
    return Effect(first.id, second.id, found, _left_out(first, second))


def _left_out(*subjects: RunOrGroup) -> str:
    """Which runs say nothing here, since they have no final evaluation: those that failed, too."""
    counts = [(len(s.runs) - len(_returns(s)), len(s.runs), s.id) for s in subjects]
    parts = [f"{missing} of {n} runs of {name}" for missing, n, name in counts if missing]
    return f"Without {' and '.join(parts)}, which have no final evaluation." if parts else ""


def _returns(subject: RunOrGroup) -> list[float]:
    return [run.eval.mean for run in subject.runs if run.eval and run.state in JUDGED]
