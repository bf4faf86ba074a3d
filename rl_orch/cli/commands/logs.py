"""`rlctl logs`: what a run's processes wrote, and its events."""

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated

import typer

from rl_orch.cli.arguments import Json, RunArgument
from rl_orch.cli.connection import Connected, ConnectionOptions, RetryingConnection
from rl_orch.cli.output import unread
from rl_orch.errors import BadInput
from rl_orch.io.run.events import OneHistory
from rl_orch.printable import clean
from rl_orch.records import Event, Run

LOOK_EVERY_S = 0.2
LINE = re.compile(r"[^\n]*\n|[^\n]+")

Read = Callable[[Connected, str, int], tuple[str, int]]
"""What a run's file has after a byte offset, as it is printed, and where to go on."""


def command(
    run: RunArgument,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on until the run has ended.")
    ] = False,
    tail: Annotated[
        int | None,
        typer.Option("-n", "--tail", metavar="N", min=0, help="Begin with the last N lines."),
    ] = None,
    events: Annotated[
        bool, typer.Option("--events", help="Its events, one JSON object a line.")
    ] = False,
    every: Annotated[
        bool,
        typer.Option("--all", help="Also events that a later attempt has superseded."),
    ] = False,
    *,
    target: ConnectionOptions,
    json: Json = False,
) -> None:
    """Print a run's log; -f follows it.

    With --json or --events: the events, one JSON object a line, without those that a later attempt
    has superseded. What -f has printed before that attempt began stays: its first event says, as
    `after`, up to where the earlier ones count.
    """
    if every and not (events or json):
        raise BadInput("--all is about events", hint="Add --events.")
    line = target.retrying(reading=True)
    followed = line.get(run)
    read = _log if not (events or json) else _events if every else _one_history(line, followed)
    for text in _parts(line, followed.id, read, follow=follow, tail=tail):
        print(text, end="", flush=True)
        if unread():
            return


def _parts(
    line: RetryingConnection, run_id: str, read: Read, *, follow: bool, tail: int | None
) -> Iterator[str]:
    """Whole lines as they appear, until the run has ended and everything is read; of those that are
    there, the last ones alone with `tail`."""
    offset = 0
    last = None if tail is None else deque[str](maxlen=tail)

    def rest(connected: Connected) -> tuple[str, int]:
        return read(connected, run_id, offset)

    while True:
        ended = not follow or not line.get(run_id).active
        while True:
            text, after = line.ask(rest)
            if after == offset:
                break
            offset = after
            if last is None:
                yield text
            else:
                last.extend(LINE.findall(text))
        if last is not None:
            yield "".join(last)
            last = None
        if ended:
            return
        time.sleep(LOOK_EVERY_S)


def _log(connected: Connected, run_id: str, offset: int) -> tuple[str, int]:
    part = connected.log(run_id, offset)
    return clean(part.text), part.offset


def _events(connected: Connected, run_id: str, offset: int) -> tuple[str, int]:
    tail = connected.events(run_id, offset)
    return _lines(tail.events), tail.offset


def _one_history(line: RetryingConnection, run: Run) -> Read:
    """Reads events and leaves out what is superseded, by all attempts that have begun so far."""
    history = OneHistory()
    for event in line.events(run.id).events if run.attempt > 1 else ():
        history.expect(event)

    def read(connected: Connected, run_id: str, offset: int) -> tuple[str, int]:
        tail = connected.events(run_id, offset)
        return _lines(event for event in tail.events if history.counts(event)), tail.offset

    return read


def _lines(events: Iterable[Event]) -> str:
    return "".join(f"{event.model_dump_json()}\n" for event in events)
