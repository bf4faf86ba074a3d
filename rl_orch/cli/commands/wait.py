"""`rlctl wait`: block until a run has ended."""

import time
from typing import Annotated

import typer

from rl_orch.cli.arguments import Json
from rl_orch.cli.connection import ConnectionOptions, RetryingConnection
from rl_orch.cli.output import print_result
from rl_orch.cli.views import subjects
from rl_orch.cli.views.subjects import SubjectArgument
from rl_orch.core.runs.groups import RunOrGroup
from rl_orch.core.runs.state import EXIT_CODES
from rl_orch.errors import RlctlError

LOOK_EVERY_S = 0.2


def command(
    run: SubjectArgument,
    timeout: Annotated[
        float | None, typer.Option(help="Give up after so many seconds.", min=0.0)
    ] = None,
    *,
    target: ConnectionOptions,
    json: Json = False,
) -> int:
    """Wait until a run has ended and exit with its code.

    A group has ended once all of its runs have. Its code is 1 if any failed or was lost, else 4 if
    any was stopped, else 3 if any was rejected, else 0. A service that is started anew in the
    meantime is waited for.
    """
    line = target.retrying(reading=True)
    meant = line.ask(lambda connected: subjects.find(connected, run))
    ended = _ended(line, meant, timeout)
    print_result(subjects.document(ended), subjects.line(ended), as_json=json)
    return EXIT_CODES[ended.whole.state]


def _ended(line: RetryingConnection, subject: RunOrGroup, timeout_s: float | None) -> RunOrGroup:
    """The run or group once it has ended, which for a group is when its last run has."""
    started = time.monotonic()
    for run in subject.runs:
        while (seen := line.get(run.id)).active:
            if timeout_s is not None and time.monotonic() - started > timeout_s:
                raise RlctlError(f"run {run.id} is still {seen.state} after {timeout_s:g} s")
            time.sleep(LOOK_EVERY_S)
    return line.ask(lambda connected: subjects.find(connected, subject.id))
