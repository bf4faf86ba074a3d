"""`rlctl stop`: ask a run to end, and see that it does."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from rl_orch import orchestrator
from rl_orch.cli import subjects
from rl_orch.cli.arguments import Database, Home, Json
from rl_orch.cli.output import out, print_json
from rl_orch.cli.subjects import Subject, SubjectArgument
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.errors import Conflict
from rl_orch.io.rundir import RunDir


def command(
    run: SubjectArgument,
    force: Annotated[bool, typer.Option("--force", help="Kill it, without a checkpoint.")] = False,
    home: Home = None,
    database: Database = None,
    json: Json = False,
) -> None:
    """Ask a run to end after a last checkpoint, and wait until it has.

    Of a group, every run that has yet to end is asked.
    """
    connected = orchestrator.connect(home, database=database)
    ended = _ended(connected, subjects.find(connected, run), force=force)
    if json:
        print_json(ended.document())
    else:
        out().print(ended.line())


def _ended(connected: Orchestrator, subject: Subject, *, force: bool) -> Subject:
    if subject.group is None:
        return Subject((connected.stop(subject.id, force=force),))
    active = [run for run in subject.runs if run.active]
    if not active:
        state = subject.group.state
        raise Conflict(f"group {subject.id} is {state} already; there is nothing to stop")
    # All are asked before any is waited for, so that no queued run takes the place of another.
    for run in active:
        RunDir(Path(run.path)).request_stop()
    for run in active:
        with suppress(Conflict):  # It has ended in the meantime.
            connected.stop(run.id, force=force)
    return subjects.of_group(connected, subject.id)
