"""`rlctl logs`: what a run's processes wrote, and its events."""

import time
from collections.abc import Iterator
from functools import partial
from typing import Annotated

import typer

from rl_orch.cli.arguments import Database, Home, Json, RunArgument, Server
from rl_orch.cli.connection import Connected, Lasting, lasting
from rl_orch.io.text import clean

LOOK_EVERY_S = 0.2


def command(
    run: RunArgument,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on until the run has ended.")
    ] = False,
    events: Annotated[
        bool, typer.Option("--events", help="Its events, one JSON object a line.")
    ] = False,
    home: Home = None,
    database: Database = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Print a run's log; -f follows it.

    With --json or --events: the events, one JSON object a line.
    """
    line = lasting(home, database, server)
    found = line.get(run)
    for text in _parts(line, found.id, follow=follow, events=events or json):
        print(text, end="", flush=True)


def _parts(line: Lasting, run_id: str, *, follow: bool, events: bool) -> Iterator[str]:
    """Whole lines as they appear, until the run has ended and everything is read."""
    read, offset = _events if events else _log, 0
    while True:
        ended = not follow or not line.get(run_id).active
        while True:
            text, after = line.ask(partial(read, run_id=run_id, offset=offset))
            if after == offset:
                break
            yield text
            offset = after
        if ended:
            return
        time.sleep(LOOK_EVERY_S)


def _log(connected: Connected, run_id: str, offset: int) -> tuple[str, int]:
    part = connected.log(run_id, offset)
    return clean(part.text), part.offset


def _events(connected: Connected, run_id: str, offset: int) -> tuple[str, int]:
    tail = connected.events(run_id, offset)
    return "".join(f"{event.model_dump_json()}\n" for event in tail.events), tail.offset
