"""`rlctl down`: end the service of a home, and leave its runs as they are or end them too."""

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from rl_orch import orchestrator
from rl_orch.cli.arguments import Home, Json, ServiceDatabase
from rl_orch.cli.connection import home_folder
from rl_orch.cli.output import err, out, print_json, safe
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.errors import Conflict, RlctlError
from rl_orch.io import place, processes
from rl_orch.io.place import Place
from rl_orch.records import Run, State

PATIENCE_S = 30.0
LOOK_EVERY_S = 0.05


def command(
    stop_runs: Annotated[
        bool,
        typer.Option("--stop-runs", help="Then end its runs as well, after a last checkpoint."),
    ] = False,
    home: Home = None,
    database: ServiceDatabase = None,
    json: Json = False,
) -> None:
    """End the service of a home.

    Its runs go on, and the next `rlctl up` takes them over; what is queued waits for it.

    Examples:

      rlctl down

      rlctl down --stop-runs
    """
    folder = home_folder(home)
    found = place.living(folder)
    if found is not None:
        end(folder, found)
    connected = orchestrator.connect(
        folder, database=database or (None if found is None else found.database)
    )
    at_work = _left_behind(connected)
    if stop_runs:
        _stop(connected, at_work)
    if json:
        ended = None if found is None else {"url": found.url, "pid": found.pid}
        verb = "stopped" if stop_runs else "going_on"
        print_json({"ended": ended, verb: [run.id for run in at_work]})
        return
    if found is None:
        out().print(f"no service of {safe(folder)} is up")
    else:
        out().print(f"the service at {safe(found.url)} (pid {found.pid}) has ended")
    if at_work:
        out().print(_left(len(at_work), stopped=stop_runs))


def end(home: Path, found: Place) -> None:
    """Ask a service to end, and return once it is gone."""
    with suppress(ProcessLookupError):
        if processes.alive(found.identity):
            os.kill(found.pid, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE_S
    while processes.alive(found.identity):
        if time.monotonic() > deadline:
            raise RlctlError(
                f"the service at {found.url} (pid {found.pid}) is still there {PATIENCE_S:.0f} s "
                "after SIGTERM",
                hint=f"Its runs go on without it: kill -9 {found.pid}",
            )
        time.sleep(LOOK_EVERY_S)
    place.forget(home, found)


def _left_behind(connected: Orchestrator) -> list[Run]:
    """The runs of this home that are at work, and that nobody looks after."""
    if not connected.exists:
        return []
    return [
        run
        for run, lease in connected.store.active()
        if run.state is not State.QUEUED
        and Path(run.path).is_relative_to(connected.home)
        and (lease is None or not connected.services.alive(lease))
    ]


def _stop(connected: Orchestrator, runs: Sequence[Run]) -> None:
    """All are asked before any is waited for."""
    for run in runs:
        with suppress(Conflict):  # It has ended in the meantime.
            connected.ask_to_stop(run.id)
    for run in runs:
        with suppress(Conflict):
            connected.stop(run.id)
        err().print(f"{safe(run.id)}  {safe(connected.get(run.id).reason)}", soft_wrap=True)


def _left(count: int, *, stopped: bool) -> str:
    runs = "1 run" if count == 1 else f"{count} runs"
    if stopped:
        return f"{runs} stopped after a last checkpoint"
    return f"{runs} {'goes' if count == 1 else 'go'} on; the next `rlctl up` takes over"
