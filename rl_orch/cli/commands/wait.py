"""`rlctl wait`: block until a run has ended."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Annotated

import typer

from rl_orch.cli.arguments import Json, Quiet
from rl_orch.cli.connection import ConnectionOptions, RetryingConnection
from rl_orch.cli.live.follow import as_now, observe
from rl_orch.cli.live.progress import watching
from rl_orch.cli.output import print_result
from rl_orch.cli.views import subjects
from rl_orch.cli.views.subjects import SubjectArgument
from rl_orch.core.runs.groups import RunOrGroup
from rl_orch.core.runs.state import EXIT_CODES
from rl_orch.errors import RlctlError
from rl_orch.records import Run


def command(
    run: SubjectArgument,
    timeout: Annotated[
        float | None, typer.Option(help="Give up after so many seconds.", min=0.0)
    ] = None,
    *,
    target: ConnectionOptions,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Wait until a run has ended and exit with its code.

    Its progress is shown on standard error, as `rlctl watch` does.
    A group has ended once all of its runs have. Its code is 1 if any failed or was lost, else 4 if
    any was stopped, else 3 if any was rejected, else 0. A service that is started anew in the
    meantime is waited for.
    """
    line = target.retrying(reading=True)
    meant = line.ask(lambda connected: subjects.find(connected, run))
    ended = _ended(line, meant, timeout, quiet=quiet)
    print_result(subjects.document(ended), subjects.line(ended), as_json=json)
    return EXIT_CODES[ended.whole.state]


def _ended(
    line: RetryingConnection, subject: RunOrGroup, timeout_s: float | None, *, quiet: bool
) -> RunOrGroup:
    """The run or group once it has ended, which for a group is when its last run has."""
    started = time.monotonic()

    def give_up(runs: Sequence[Run]) -> None:
        late = timeout_s is not None and time.monotonic() - started > timeout_s
        for run in runs if late else ():
            if run.active:
                raise RlctlError(f"run {run.id} is still {run.state} after {timeout_s:g} s")

    if subject.whole.active:
        with watching(quiet=quiet, several=len(subject.runs) > 1) as view:
            watch, recall = (None, None) if view is None else (view.watch, view.recall)
            look = partial(as_now, line, subject.runs)
            observe(line, look, watch, recall=recall, each_look=give_up)
    return line.ask(lambda connected: subjects.find(connected, subject.id))
