"""`rlctl logs`: what a run's processes wrote, and its events."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from rl_orch import orchestrator
from rl_orch.cli.arguments import Database, Home, Json, RunArgument
from rl_orch.cli.output import clean
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.errors import NotFound
from rl_orch.io.rundir import RunDir

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
    json: Json = False,
) -> None:
    """Print a run's log; -f follows it.

    With --json or --events: the events, one JSON object a line.
    """
    connected = orchestrator.connect(home, database=database)
    found = connected.get(run)
    directory = RunDir(Path(found.path))
    file = directory.events if events or json else directory.log
    if not file.exists():
        raise NotFound(f"run {found.id} has no {file.name}: {found.path!r} is gone or was moved")
    for text in _parts(connected, found.id, file, follow=follow):
        print(text if events or json else clean(text), end="", flush=True)


def _parts(connected: Orchestrator, run_id: str, file: Path, *, follow: bool) -> Iterator[str]:
    """Whole lines as they appear, until the run has ended and everything is read."""
    with file.open("rb") as opened:
        rest = b""
        while True:
            ended = not follow or not connected.get(run_id).active
            while data := opened.read(1 << 16):
                lines, newline, rest = (rest + data).rpartition(b"\n")
                yield (lines + newline).decode("utf-8", "replace")
            if ended:
                yield rest.decode("utf-8", "replace")
                return
            time.sleep(LOOK_EVERY_S)
