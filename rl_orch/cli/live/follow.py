"""Runs that a service carries out, seen from a terminal: queued, followed, and asked to stop."""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from rl_orch.cli.connection import RetryingConnection
from rl_orch.cli.output import err, out, print_json, safe, warn
from rl_orch.cli.views import subjects
from rl_orch.cli.views.text import counted
from rl_orch.core.runs.groups import RunOrGroup
from rl_orch.errors import Conflict
from rl_orch.records import Event, Run, Submission

if TYPE_CHECKING:
    from rl_orch.core.runs.foreground import RunObserver, StopRequests

LOOK_EVERY_S = 0.5
NO_SERVICE = "queued; no service is up: `rlctl up` starts it"


def announce(submission: Submission, *, flags: str, json: bool, served: bool) -> int:
    """Say what was queued and what can be done next; returns the exit code."""
    subject = RunOrGroup(submission.runs, submission.group)
    for sentence in submission.warnings:
        warn(sentence)
    if json:
        print_json(subjects.document(subject))
    else:
        runs = "" if submission.group is None else f", {counted(len(submission.runs), 'run')}"
        out().print(f"{safe(subject.id)}  queued{runs}")
        words = (f"logs -f {submission.runs[0].id}", f"wait {subject.id}", f"stop {subject.id}")
        for name, word in zip(("next", "", ""), words, strict=True):
            out().print(f"[dim]{name:>10}[/]  {safe(f'rlctl {word}{flags}')}", soft_wrap=True)
    if not served:
        err().print(f"[yellow]{NO_SERVICE}[/]", soft_wrap=True)
    return 0


def follow(
    line: RetryingConnection,
    runs: Sequence[Run],
    watch: "RunObserver",
    stop_requests: "StopRequests",
) -> tuple[Run, ...]:
    """The runs once all have ended; until then, whoever watches is told what is new.

    A request to stop is passed on to all of them. If this process ends otherwise, they go on.
    """
    offsets: dict[str, int] = {}
    for run in runs:
        if run.attempt > 0:  # What earlier attempts told is no news.
            _news(line, run, offsets)
    heeded, ended = 0, set[str]()
    while True:
        if stop_requests() > heeded:
            heeded += 1
            _ask_to_stop(line, runs, force=heeded > 1)
        runs = _seen(line, runs)
        for run in runs:
            if run.id not in ended:
                watch(run, _news(line, run, offsets))
            if not run.active:
                ended.add(run.id)
        if not any(run.active for run in runs):
            return tuple(runs)
        time.sleep(LOOK_EVERY_S)


def _seen(line: RetryingConnection, runs: Sequence[Run]) -> tuple[Run, ...]:
    """The runs as they are now; those of one group are asked for at once."""
    group = runs[0].group
    if group is None or len(runs) == 1:
        return tuple(line.get(run.id) for run in runs)
    wanted = {run.id for run in runs}
    members = line.ask(lambda connected: connected.group_runs(group))
    return tuple(run for run in members if run.id in wanted)


def _news(line: RetryingConnection, run: Run, offsets: dict[str, int]) -> tuple[Event, ...]:
    tail = line.events(run.id, offsets.get(run.id, 0))
    offsets[run.id] = tail.offset
    return tail.events


def _ask_to_stop(line: RetryingConnection, runs: Sequence[Run], *, force: bool) -> None:
    for run in runs:
        with suppress(Conflict):  # It has ended in the meantime.
            line.ask_to_stop(run.id, force=force)
