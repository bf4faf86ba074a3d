"""`rlctl wait`: block until runs have ended."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated

import typer

from rl_orch.cli.arguments import Json, Quiet
from rl_orch.cli.connection import ConnectionOptions, RetryingConnection
from rl_orch.cli.live.follow import as_now, observe
from rl_orch.cli.live.progress import watching
from rl_orch.cli.output import print_result
from rl_orch.cli.views import subjects
from rl_orch.cli.views.subjects import SubjectsArgument
from rl_orch.core.runs.groups import folded_state
from rl_orch.core.runs.state import EXIT_CODES
from rl_orch.errors import TimedOut
from rl_orch.records import Run


def command(
    runs: SubjectsArgument,
    timeout: Annotated[
        float | None, typer.Option(help="Give up after so many seconds.", min=0.0)
    ] = None,
    *,
    target: ConnectionOptions,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Wait until runs have ended and exit with their code.

    Their progress is shown on standard error, as `rlctl watch` does.
    A group has ended once all of its runs have. The code of several runs, of a group or named, is 1
    if any failed or was lost, else 4 if any was stopped, else 3 if any was rejected, else 0; and
    124 if one is still at work when --timeout is over. A service that is started anew in the
    meantime is waited for.
    """
    line = target.retrying(reading=True)
    meant = line.ask(lambda connected: subjects.find_all(connected, runs))
    _wait(line, {run.id: run for subject in meant for run in subject.runs}, timeout, quiet=quiet)
    ids = [subject.id for subject in meant]
    ended = line.ask(lambda connected: subjects.find_all(connected, ids))
    result = subjects.documents([*map(subjects.document, ended)])
    print_result(result, "\n".join(map(subjects.line, ended)), as_json=json)
    states = [run.state for subject in ended for run in subject.runs]
    return EXIT_CODES[folded_state(states)]


def _wait(
    line: RetryingConnection, runs: Mapping[str, Run], timeout_s: float | None, *, quiet: bool
) -> None:
    """Return once the last of the runs has ended."""
    started = time.monotonic()

    def give_up(seen: Sequence[Run]) -> None:
        late = timeout_s is not None and time.monotonic() - started > timeout_s
        for run in seen if late else ():
            if run.active:
                raise TimedOut(f"run {run.id} is still {run.state} after {timeout_s:g} s")

    if any(run.active for run in runs.values()):
        with watching(quiet=quiet, several=len(runs) > 1) as view:
            watch, recall = (None, None) if view is None else (view.watch, view.recall)
            look = partial(as_now, line, list(runs.values()))
            observe(line, look, watch, recall=recall, each_look=give_up)
