"""Records in words and in colour, alike in every command."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from rl_orch.records import Certificate, Evaluation, Group, GroupEvaluation, Run, State
from rl_orch.stats.text import bounds_text, figure

STATE_STYLES = {
    State.QUEUED: "dim",
    State.STARTING: "cyan",
    State.RUNNING: "cyan",
    State.EVALUATING: "cyan",
    State.SUCCEEDED: "green",
    State.REJECTED: "yellow",
    State.FAILED: "red",
    State.STOPPED: "yellow",
    State.LOST: "red",
}

ACTIVE = (State.QUEUED, State.STARTING, State.RUNNING, State.EVALUATING)
RANGES = 8
"""Ranges of seeds that a line has room for."""


def plain(record: BaseModel) -> dict[str, Any]:
    """A record as JSON would hold it."""
    document = json.loads(record.model_dump_json())
    assert isinstance(document, dict)
    return document


def tags_text(run: Run) -> str:
    """The tags of a run, as one would type them."""
    return " ".join(f"{name}={value}" for name, value in run.tags.items()) or "no tags"


def counted(count: int, noun: str) -> str:
    """So many of something: `1 episode`, `1,000 episodes`. The noun may be given as one or many."""
    one = noun.removesuffix("s")
    return f"{count:,} {one}" if count == 1 else f"{count:,} {one}s"


def changes_text(options: Mapping[str, Sequence[Any]]) -> str:
    """Options that changed: `train.lr 0.0003 → 0.0001`."""
    return ", ".join(f"{path} {old} → {new}" for path, (old, new) in options.items())


def state_text(subject: Run | Group) -> str:
    """The state of a run or a group in its colour."""
    return f"[{STATE_STYLES[subject.state]}]{subject.state}[/]"


def outcome_cells(subject: Run | Group) -> tuple[str, str, str]:
    """State, evaluation and gate of a run or a group, as listings show them."""
    if isinstance(subject, Group):
        verdicts = f"{subject.verdicts.passed}/{subject.verdicts.n}"
        gate = verdicts if subject.verdicts.n else "–"
        return _group_state_text(subject), _group_evaluation_text(subject), gate
    return state_text(subject), evaluation_text(subject), subject.verdict or "–"


def _group_state_text(group: Group) -> str:
    """The state of a group: how many runs have ended while it runs, then how many it counts for."""
    count = ended(group) if group.active else _worst(group)
    style = STATE_STYLES[group.state]
    short_of = f" of {group.asked} asked" if group.is_smaller else ""
    return f"[{style}]{group.state} {count}/{len(group.runs)}{short_of}[/]"


def state_counts(group: Group) -> str:
    """How many runs are in which state: `3 succeeded, 1 running, 1 queued`, or `all 5 runs`."""
    if len(group.counts) == 1 and len(group.runs) > 1:
        return f"all {len(group.runs)} runs"
    order = sorted(group.counts.items(), key=lambda item: -item[1])
    return ", ".join(f"{count} {state}" for state, count in order)


def ended(group: Group) -> int:
    """How many runs have ended."""
    return sum(count for state, count in group.counts.items() if state not in ACTIVE)


def _worst(group: Group) -> int:
    """How many runs have given the group its state; a lost run counts as failed."""
    lost = group.counts.get(State.LOST, 0) if group.state is State.FAILED else 0
    return group.counts.get(group.state, 0) + lost


def evaluation_text(run: Run) -> str:
    """A return with its interval; `~` marks one that the run reported about itself."""
    if run.eval is None:
        return "–"
    final = run.state in (State.SUCCEEDED, State.REJECTED)
    return f"{'' if final else '~'}{figure(run.eval.mean)} {interval_text(run.eval)}"


def interval_text(evaluation: Evaluation) -> str:
    """The 95 % interval; a single episode has none."""
    return bounds_text(evaluation.ci95)


def _group_evaluation_text(group: Group) -> str:
    """The interquartile mean over training runs with its interval and n."""
    return summary_text(group.eval)


def summary_text(summary: Evaluation | None) -> str:
    """Numbers with their interval: of a group the interquartile mean, of a run the mean."""
    if summary is None:
        return "–"
    if not isinstance(summary, GroupEvaluation):
        return f"{figure(summary.mean)} {interval_text(summary)}"
    return f"IQM {figure(summary.iqm)} {bounds_text(summary.iqm_ci95)} n={summary.n}"


def group_sentence(evaluation: GroupEvaluation) -> str:
    """What the runs of a group say of their spec, with intervals, unit and n."""
    return (
        f"IQM {figure(evaluation.iqm)}, 95 % interval {bounds_text(evaluation.iqm_ci95)}; "
        f"mean {figure(evaluation.mean)}, 95 % interval {interval_text(evaluation)}, "
        f"std {figure(evaluation.std)}; n = {counted(evaluation.n, evaluation.unit)}"
    )


def seeds_text(seeds: Sequence[int]) -> str:
    """Seeds with those in a row as a range, `1–5, 9`; of many the first few."""
    ranges: list[list[int]] = []
    for seed in seeds:
        if ranges and seed == ranges[-1][-1] + 1:
            ranges[-1] = [ranges[-1][0], seed]
        else:
            ranges.append([seed])
    shown = ", ".join("–".join(map(str, part)) for part in ranges[:RANGES])
    return shown if len(ranges) <= RANGES else f"{shown}, … ({counted(len(seeds), 'seed')})"


def compared_text(certificate: Certificate) -> str:
    """How much a certificate has compared."""
    checkpoints = counted(certificate.checkpoints, "checkpoint")
    return f"{checkpoints} and {counted(certificate.events, 'event')} compared"


def age_text(since: float) -> str:
    """How long ago something was."""
    return span_text(max(0.0, time.time() - since))


def span_text(seconds: float) -> str:
    """A span of time in the largest unit that fits."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def short(path: str) -> str:
    """A path relative to the working directory where that is shorter; one of another machine, as
    it is there."""
    relative = os.path.relpath(path)
    here = not relative.startswith(os.pardir) or os.path.lexists(path)
    return relative if here and len(relative) < len(path) else path
