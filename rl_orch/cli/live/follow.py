"""Runs that a service carries out, seen from a terminal: queued, followed, and asked to stop."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from rl_orch.cli.connection import RetryingConnection
from rl_orch.cli.output import err, out, print_json, safe, warn
from rl_orch.cli.views import subjects
from rl_orch.cli.views.text import counted
from rl_orch.core.runs.groups import RunOrGroup
from rl_orch.errors import Conflict, NotFound
from rl_orch.io.run.events import Tail
from rl_orch.records import Event, Run, Submission

if TYPE_CHECKING:
    from rl_orch.core.runs.foreground import RunObserver, StopRequests

LOOK_EVERY_S = 0.5


def _forget(_run: Run, _events: Sequence[Event]) -> None:
    """Keeps nothing in mind."""


def _nothing(_runs: Sequence[Run]) -> None:
    """Does nothing at a look."""


NEXT = ("watch", "logs -f", "wait", "stop")
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
        ids = (subject.id, submission.runs[0].id, subject.id, subject.id)
        for number, word in enumerate(map("{} {}".format, NEXT, ids)):
            name = "" if number else "next"
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
    heeded = 0

    def heed(seen: Sequence[Run]) -> None:
        nonlocal heeded
        if stop_requests() > heeded:
            heeded += 1
            _ask_to_stop(line, seen, force=heeded > 1)

    # What earlier attempts told is no news.
    told = {run.id: _recalled(line, run, _forget) if run.attempt else 0 for run in runs}
    return observe(line, partial(as_now, line, runs), watch, offsets=told, each_look=heed)


def observe(
    line: RetryingConnection,
    look: Callable[[], Sequence[Run]],
    watch: "RunObserver | None",
    *,
    recall: "RunObserver | None" = None,
    offsets: Mapping[str, int] | None = None,
    each_look: Callable[[Sequence[Run]], None] = _nothing,
) -> tuple[Run, ...]:
    """The runs once all have ended; until then, whoever watches is told what is new.

    `recall` is told of what a run has told before it was first seen, unless `offsets` say from
    where on its events are news. Where nobody watches, no events are read.
    """
    known, ended = dict(offsets or {}), set[str]()
    while True:
        runs = look()
        for run in runs:
            if watch is None or run.id in ended:
                continue
            if run.id not in known:
                known[run.id] = _recalled(line, run, recall or _forget)
            tail = _after(line, run, known[run.id])
            known[run.id] = tail.offset
            watch(run, tail.events)
            if not run.active:
                ended.add(run.id)
        each_look(runs)
        if not any(run.active for run in runs):
            return tuple(runs)
        time.sleep(LOOK_EVERY_S)


def as_now(line: RetryingConnection, runs: Sequence[Run]) -> tuple[Run, ...]:
    """The runs as they are now; those of one group are asked for at once."""
    group = runs[0].group
    if group is None or len(runs) == 1 or any(run.group != group for run in runs):
        return tuple(line.get(run.id) for run in runs)
    wanted = {run.id for run in runs}
    members = line.ask(lambda connected: connected.group_runs(group))
    return tuple(run for run in members if run.id in wanted)


def _recalled(line: RetryingConnection, run: Run, recall: "RunObserver") -> int:
    """The offset after all that a run has told by now, a part of which is recalled at a time."""
    offset = -1
    while offset != (tail := _after(line, run, max(0, offset), at_once=False)).offset:
        recall(run, tail.events)
        offset = tail.offset
    return offset


def _after(line: RetryingConnection, run: Run, offset: int, *, at_once: bool = True) -> Tail:
    """Events after an offset; none, where the run's directory is gone. `at_once`, all of them, or
    as many as one answer holds."""
    try:
        if at_once:
            return line.events(run.id, offset)
        return line.ask(lambda connected: connected.events(run.id, offset))
    except NotFound:
        return Tail((), offset)


def _ask_to_stop(line: RetryingConnection, runs: Sequence[Run], *, force: bool) -> None:
    for run in runs:
        with suppress(Conflict):  # It has ended in the meantime.
            line.ask_to_stop(run.id, force=force)
