"""Comparison of groups by their runs, in numbers and in a sentence.

It says which is better, as far as the runs can tell.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rl_orch.core.runs.groups import RunOrGroup, final_returns
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
    """Difference of two specs: the first one's mean return minus the second one's."""

    first: str
    second: str
    found: Difference | None
    left_out: str = ""

    @property
    def sentence(self) -> str:
        """Sentence that says what may be said of it, and no more."""
        return f"{self._said} {self.left_out}".rstrip()

    @property
    def _said(self) -> str:
        first, second, measured = self.first, self.second, self.found
        if measured is not None and measured.ci95[1] < 0:
            return Effect(second, first, measured.turned)._said
        if measured is None:
            return f"{first} and {second} learn in different environments: nothing to compare."
        n = f"{measured.n[0]} and {measured.n[1]} training runs"
        by = f"{figure(measured.mean)} {bounds_text(measured.ci95)}"
        if min(measured.n) < 2:
            return (
                f"Which of {first} and {second} is better cannot be said: it takes two training "
                f"runs with a final evaluation on each side, and there are {n}."
            )
        if not measured.clear:
            return (
                f"{first} and {second} cannot be told apart: the difference of their mean returns "
                f"is {by}, n = {n}."
            )
        return f"{first} is better than {second} by {by}, n = {n}."

    def document(self) -> dict[str, Any]:
        """The effect as `compare --json` shows it."""
        measured = self.found
        return {
            "first": self.first,
            "second": self.second,
            "mean": None if measured is None else measured.mean,
            "ci95": None if measured is None else list(measured.ci95),
            "n": None if measured is None else list(measured.n),
            "unit": "training runs",
            "sentence": self.sentence,
        }


def effects(subjects: Sequence[RunOrGroup]) -> list[Effect]:
    """Each subject against the first; none where no group is among them."""
    if not any(subject.group for subject in subjects):
        return []
    return [_effect(subjects[0], other) for other in subjects[1:]]


def caveat(subjects: Sequence[RunOrGroup]) -> str:
    """Sentence on what the intervals in a comparison are about."""
    grouped = [subject.group is not None for subject in subjects]
    if all(grouped):
        return OF_GROUPS
    return OF_BOTH if any(grouped) else OF_RUNS


def _effect(first: RunOrGroup, second: RunOrGroup) -> Effect:
    if first.whole.env != second.whole.env:
        return Effect(first.id, second.id, None)
    measured = difference(final_returns(first.runs), final_returns(second.runs))
    return Effect(first.id, second.id, measured, _left_out(first, second))


def _left_out(*subjects: RunOrGroup) -> str:
    """Sentence on runs left out, since they have no final evaluation: those that failed, too."""
    counts = [(len(s.runs) - len(final_returns(s.runs)), len(s.runs), s.id) for s in subjects]
    parts = [f"{missing} of {n} runs of {name}" for missing, n, name in counts if missing]
    return f"Without {' and '.join(parts)}, which have no final evaluation." if parts else ""
