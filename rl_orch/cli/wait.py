"""`rlctl wait`: block until a run has ended."""

import time
from typing import Annotated

import typer

from rl_orch import orchestrator
from rl_orch.cli import subjects
from rl_orch.cli.arguments import Database, Home, Json
from rl_orch.cli.output import out, print_json
from rl_orch.cli.subjects import Subject, SubjectArgument
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.state import EXIT_CODES
from rl_orch.errors import RlctlError

LOOK_EVERY_S = 0.2


def command(
    run: SubjectArgument,
    timeout: Annotated[
        float | None, typer.Option(help="Give up after so many seconds.", min=0.0)
    ] = None,
    home: Home = None,
    database: Database = None,
    json: Json = False,
) -> int:
    """Wait until a run has ended and exit with its code.

    A group has ended once all of its runs have. Its code is 1 if any failed or was lost, else 4 if
    any was stopped, else 3 if any was rejected, else 0.
    """
    connected = orchestrator.connect(home, database=database)
    ended = until_ended(connected, subjects.find(connected, run), timeout_s=timeout)
    if json:
        print_json(ended.document())
    else:
        out().print(ended.line())
    return EXIT_CODES[ended.whole.state]


def until_ended(
    connected: Orchestrator, subject: Subject, *, timeout_s: float | None = None
) -> Subject:
    """The run or group once it has ended, which for a group is when its last run has."""
    started = time.monotonic()
    for run in subject.runs:
        while (seen := connected.get(run.id)).active:
            if timeout_s is not None and time.monotonic() - started > timeout_s:
                raise RlctlError(f"run {run.id} is still {seen.state} after {timeout_s:g} s")
            time.sleep(LOOK_EVERY_S)
    return subjects.find(connected, subject.id)
