"""`rlctl down`: end the service of a home, and leave its runs as they are or end them too."""

import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from rl_orch import orchestrator
from rl_orch.cli.arguments import Elsewhere, Home, Json, ServiceDatabase
from rl_orch.cli.connection import home_folder
from rl_orch.cli.output import err, out, print_json, safe, warn
from rl_orch.cli.views.text import counted
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.errors import Conflict, RlctlError
from rl_orch.io import service_note
from rl_orch.io.processes import pids
from rl_orch.io.service_note import ServiceEndpoint
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
    _server: Elsewhere = None,
    json: Json = False,
) -> int:
    """End the service of a home.

    Its runs go on, and the next `rlctl up` takes them over; what is queued waits for it.

    Examples:

      rlctl down

      rlctl down --stop-runs
    """
    folder = home_folder(home)
    endpoint = service_note.living(folder)
    if endpoint is not None:
        end(folder, endpoint)
    connected = orchestrator.connect(
        folder, database=database or (None if endpoint is None else endpoint.database)
    )
    at_work = _left_behind(connected)
    if stop_runs:
        at_work = _stopped(connected, at_work)
    if json:
        ended = None if endpoint is None else {"url": endpoint.url, "pid": endpoint.pid}
        print_json({"ended": ended} | _document(at_work, stopped=stop_runs))
    else:
        out().print(_service_line(folder, endpoint))
        if at_work:
            out().print(_runs_line(at_work, stopped=stop_runs))
    return int(stop_runs and any(run.active for run in at_work))


def end(home: Path, endpoint: ServiceEndpoint) -> None:
    """Ask a service to end, and return once it is gone."""
    with suppress(ProcessLookupError):
        _terminate(endpoint)
    deadline = time.monotonic() + PATIENCE_S
    while pids.alive(endpoint.identity):
        if time.monotonic() > deadline:
            raise RlctlError(
                f"the service at {endpoint.url} (pid {endpoint.pid}) is still there "
                f"{PATIENCE_S:.0f} s after SIGTERM",
                hint=f"Its runs go on without it: kill -9 {endpoint.pid}",
            )
        time.sleep(LOOK_EVERY_S)
    service_note.forget(home, endpoint)


def _terminate(endpoint: ServiceEndpoint) -> None:
    """Ask the very process that was noted to end, and no other that may have its pid by now."""
    if not hasattr(os, "pidfd_open"):
        if pids.alive(endpoint.identity):
            os.kill(endpoint.pid, signal.SIGTERM)
        return
    process = os.pidfd_open(endpoint.pid)
    try:
        if pids.alive(endpoint.identity):
            signal.pidfd_send_signal(process, signal.SIGTERM)
    finally:
        os.close(process)


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


def _stopped(connected: Orchestrator, runs: Sequence[Run]) -> list[Run]:
    """The runs as they are in the end. All are asked before any is waited for."""
    for run in runs:
        with suppress(Conflict):  # It has ended in the meantime.
            connected.ask_to_stop(run.id)
    return [_ended(connected, run) for run in runs]


def _ended(connected: Orchestrator, run: Run) -> Run:
    """The run as it is in the end; one that does not end is told of, and keeps no other waiting."""
    try:
        connected.stop(run.id)
    except Conflict:
        pass
    except RlctlError as error:
        warn(str(error))
    run = connected.get(run.id)
    err().print(f"{safe(run.id)}  {run.state}: {safe(run.reason)}", soft_wrap=True)
    return run


def _document(runs: Sequence[Run], *, stopped: bool) -> dict[str, list[str]]:
    """The ids of the runs: those that go on, or, of those that were stopped, by what they are."""
    if not stopped:
        return {"going_on": [run.id for run in runs]}
    ids: dict[str, list[str]] = {"stopped": []}
    for run in runs:
        ids.setdefault(str(run.state), []).append(run.id)
    return ids


def _service_line(folder: Path, endpoint: ServiceEndpoint | None) -> str:
    if endpoint is None:
        return f"no service of {safe(folder)} is up"
    return f"the service at {safe(endpoint.url)} (pid {endpoint.pid}) has ended"


def _runs_line(runs: Sequence[Run], *, stopped: bool) -> str:
    count = counted(len(runs), "run")
    if stopped:
        states = Counter(str(run.state) for run in runs).most_common()
        return f"{count}: {', '.join(f'{number} {state}' for state, number in states)}"
    return f"{count} {'goes' if len(runs) == 1 else 'go'} on; the next `rlctl up` takes over"
