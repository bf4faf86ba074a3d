"""Comparison of groups by their runs, in numbers and in a sentence.

It says which is better, as far as the runs can tell.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from rl_orch.core.runs.groups import JUDGED, RunOrGroup, final_returns
from rl_orch.errors import BadInput
from rl_orch.records import EvalReport, Evaluation, RunView
from rl_orch.spec.difference import task_differences
from rl_orch.spec.model import Spec
from rl_orch.stats import Difference, difference, metric_estimates, summarize, summarize_runs
from rl_orch.stats.text import bounds_text, figure

RETURN = "return"
"""What is compared unless another metric is named."""

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


class ShowsRuns(Protocol):
    """Lookup of runs: the verbs, here or over HTTP."""

    def show(self, reference: str, *, checkpoints: bool = True) -> RunView:
        """A run with its spec and its final report."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A run or a group with its spec, the number of each run that counts, and their summary."""

    subject: RunOrGroup
    spec: Spec
    values: tuple[float, ...]
    eval: Evaluation | None
    metric: str = RETURN

    @property
    def id(self) -> str:
        """The id of the group, or of the one run."""
        return self.subject.id


def gathered(
    here: ShowsRuns, subjects: Sequence[RunOrGroup], metric: str = RETURN
) -> list[Compared]:
    """Runs and groups with what is compared of them: the mean returns of final evaluations, or
    another metric that these have."""
    if metric != RETURN:
        return _gathered_metric(here, subjects, metric)
    return [
        Compared(
            subject,
            here.show(subject.runs[0].id, checkpoints=False).spec,
            tuple(final_returns(subject.runs)),
            subject.whole.eval,
        )
        for subject in subjects
    ]


def _gathered_metric(
    here: ShowsRuns, subjects: Sequence[RunOrGroup], metric: str
) -> list[Compared]:
    shown = [[here.show(run.id, checkpoints=False) for run in each.runs] for each in subjects]
    reports = [_final_reports(views) for views in shown]
    there = dict.fromkeys(name for each in reports for report in each for name in report.metrics)
    if metric not in there:
        raise BadInput(
            f"metric is {metric!r}; the final evaluations have: {', '.join([RETURN, *there])}",
            path="metric",
            hint="`env.info_metrics` names keys of info that evaluations record.",
        )
    return [
        _by_metric(subject, views[0].spec, each, metric)
        for subject, views, each in zip(subjects, shown, reports, strict=True)
    ]


def _final_reports(views: Sequence[RunView]) -> list[EvalReport]:
    """The reports of runs that have had their final evaluation."""
    return [view.report for view in views if view.report is not None and view.run.state in JUDGED]


def _by_metric(
    subject: RunOrGroup, spec: Spec, reports: Sequence[EvalReport], metric: str
) -> Compared:
    """A metric of a run over its episodes, or of a group over the means of its training runs."""
    episodes = [report.metrics[metric] for report in reports if report.metrics.get(metric)]
    means = tuple(sum(values) / len(values) for values in episodes)
    summary: Evaluation | None = None
    if episodes and subject.group is not None:
        summary = summarize_runs(means)
    elif episodes:
        report = reports[0]
        (estimate,) = metric_estimates(
            {metric: episodes[0]}, shares=report.shares, seed=report.seed
        ).values()
        summary = summarize(episodes[0]).model_copy(update={"ci95": estimate.ci95})
    return Compared(subject, spec, means, summary, metric)


@dataclass(frozen=True, slots=True)
class Effect:
    """Difference of two specs: the first one's mean return minus the second one's, or that of
    another metric.

    There is none where the two play different tasks, for the `reason` that is given.
    """

    first: str
    second: str
    found: Difference | None
    left_out: str = ""
    reason: str | None = None
    metric: str = RETURN

    @property
    def sentence(self) -> str:
        """Sentence that says what may be said of it, and no more."""
        return f"{self._said} {self.left_out}".rstrip()

    @property
    def _said(self) -> str:
        first, second, measured = self.first, self.second, self.found
        if measured is None:
            return str(self.reason)
        if measured.ci95[1] < 0:
            return replace(self, first=second, second=first, found=measured.turned)._said
        known = self.metric == RETURN
        superior = "is better" if known else f"has the higher {self.metric}"
        n = f"{measured.n[0]} and {measured.n[1]} training runs"
        by = f"{figure(measured.mean)} {bounds_text(measured.ci95)}"
        if min(measured.n) < 2:
            return (
                f"Which of {first} and {second} {superior} cannot be said: it takes two training "
                f"runs with a final evaluation on each side, and there are {n}."
            )
        if measured.mean != 0.0 and measured.ci95[0] == measured.ci95[1]:
            return (
                f"Which of {first} and {second} {superior} cannot be told: all runs of each have "
                "the same number, which does not say how far further ones would be from it; the "
                f"difference is {figure(measured.mean)}, n = {n}."
            )
        if not measured.clear:
            return (
                f"{first} and {second} cannot be told apart: the difference of their mean "
                f"{'returns' if known else self.metric} is {by}, n = {n}."
            )
        if not known:
            return f"{self.metric} of {first} is higher than that of {second} by {by}, n = {n}."
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
            "metric": self.metric,
            "sentence": self.sentence,
            "reason": self.reason,
        }


def effects(compared: Sequence[Compared]) -> list[Effect]:
    """Each of them against the first; none where no group is among them."""
    if not any(each.subject.group for each in compared):
        return []
    return [_effect(compared[0], other) for other in compared[1:]]


def unlike_tasks(compared: Sequence[Compared]) -> list[str]:
    """Sentences on those that play another task than the first: their returns do not compare."""
    reasons = (_unlike(compared[0], other) for other in compared[1:])
    return [reason for reason in reasons if reason is not None]


def caveat(subjects: Sequence[RunOrGroup]) -> str:
    """Sentence on what the intervals in a comparison are about."""
    grouped = [subject.group is not None for subject in subjects]
    if all(grouped):
        return OF_GROUPS
    return OF_BOTH if any(grouped) else OF_RUNS


def _effect(first: Compared, second: Compared) -> Effect:
    reason = _unlike(first, second)
    if reason is not None:
        return Effect(first.id, second.id, None, reason=reason, metric=first.metric)
    measured, left_out = difference(first.values, second.values), _left_out(first, second)
    return Effect(first.id, second.id, measured, left_out, metric=first.metric)


def _unlike(first: Compared, second: Compared) -> str | None:
    """Why the returns of two do not compare, if they do not: by the rule that `promote` has."""
    differing = task_differences([first.spec, second.spec])
    names = f"{first.id} and {second.id}"
    if "env.id" in differing:
        return f"{names} learn in different environments: nothing to compare."
    if not differing:
        return None
    options = "; ".join(
        f"{path} is {_written(ours)} for the one and {_written(theirs)} for the other"
        for path, (ours, theirs) in differing.items()
    )
    return f"{names} play different tasks, whose returns do not compare: {options}."


def _written(value: Any) -> str:
    return json.dumps(value, default=str)


def _left_out(*compared: Compared) -> str:
    """Sentence on runs left out, since they have no final evaluation: those that failed, too."""
    counts = [(len(each.subject.runs), len(each.values), each.id) for each in compared]
    parts = [f"{n - known} of {n} runs of {name}" for n, known, name in counts if n > known]
    metric = compared[0].metric
    lacking = "no final evaluation" + ("" if metric == RETURN else f" with {metric}")
    return f"Without {' and '.join(parts)}, which have {lacking}." if parts else ""
