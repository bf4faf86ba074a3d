"""`rlctl stop`: ask a run to end, and see that it does."""

from contextlib import suppress
from typing import Annotated

import typer

from rl_orch.cli import subjects
from rl_orch.cli.arguments import Database, Home, Json, Server
from rl_orch.cli.connection import Connected, connect
from rl_orch.cli.output import out, print_json
from rl_orch.cli.subjects import Subject, SubjectArgument
from rl_orch.errors import Conflict


def command(
    run: SubjectArgument,
    force: Annotated[bool, typer.Option("--force", help="Kill it, without a checkpoint.")] = False,
    home: Home = None,
    database: Database = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Ask a run to end after a last checkpoint, and wait until it has.

    One that has not ended after `runner.stop_grace_s` seconds is killed, with every process that
    it has started. Of a group, every run that has yet to end is asked.
    """
    connected = connect(home, database, server)
    found = subjects.find(connected, run)
    ended = _ended(connected, found, force=force)
    if json:
        print_json(ended.document())
        return
    out().print(ended.line())
    if ended.group is not None:
        asked = {each.id for each in found.runs if each.active}
        for each in ended.runs:
            if each.id in asked:
                out().print(f"  {Subject((each,)).line()}")


def _ended(connected: Connected, subject: Subject, *, force: bool) -> Subject:
    if subject.group is None:
        return Subject((connected.stop(subject.id, force=force),))
    active = [run for run in subject.runs if run.active]
    if not active:
        state = subject.group.state
        raise Conflict(f"group {subject.id} is {state} already; there is nothing to stop")
    # All are asked before any is waited for, so that no queued run takes the place of another.
    for stop in (connected.ask_to_stop, connected.stop):
        for run in active:
            with suppress(Conflict):  # It has ended in the meantime.
                stop(run.id, force=force)
    return subjects.of_group(connected, subject.id)
