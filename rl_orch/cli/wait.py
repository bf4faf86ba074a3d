"""`rlctl wait`: block until a run has ended."""

import time
from typing import Annotated

import typer

from rl_orch import orchestrator
from rl_orch.cli.arguments import Database, Home, Json, RunArgument
from rl_orch.cli.output import out, print_json, safe
from rl_orch.cli.words import plain, state_text
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.state import EXIT_CODES
from rl_orch.errors import RlctlError
from rl_orch.records import Run

LOOK_EVERY_S = 0.2


def command(
    run: RunArgument,
    timeout: Annotated[
        float | None, typer.Option(help="Give up after so many seconds.", min=0.0)
    ] = None,
    home: Home = None,
    database: Database = None,
    json: Json = False,
) -> int:
    """Wait until a run has ended and exit with its code."""
    connected = orchestrator.connect(home, database=database)
    ended = until_ended(connected, connected.get(run).id, timeout_s=timeout)
    if json:
        print_json(plain(ended))
    else:
        out().print(f"{safe(ended.id)}  {state_text(ended)}: {safe(ended.reason)}")
    return EXIT_CODES[ended.state]


def until_ended(connected: Orchestrator, run_id: str, *, timeout_s: float | None = None) -> Run:
    """The run once it has ended."""
    started = time.monotonic()
    while (run := connected.get(run_id)).active:
        if timeout_s is not None and time.monotonic() - started > timeout_s:
            raise RlctlError(f"run {run_id} is still {run.state} after {timeout_s:g} s")
        time.sleep(LOOK_EVERY_S)
    return run
