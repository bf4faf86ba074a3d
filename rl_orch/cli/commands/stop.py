"""`rlctl stop`: ask a run to end, and see that it does."""

from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from rl_orch.cli.arguments import Json
from rl_orch.cli.connection import ConnectionOptions, RetryingConnection
from rl_orch.cli.output import out, print_json
from rl_orch.cli.views import subjects
from rl_orch.cli.views.subjects import SubjectArgument
from rl_orch.core.runs.groups import RunOrGroup
from rl_orch.errors import Conflict
from rl_orch.records import Run


def command(
    run: SubjectArgument,
    force: Annotated[bool, typer.Option("--force", help="Kill it, without a checkpoint.")] = False,
    *,
    target: ConnectionOptions,
    json: Json = False,
) -> None:
    """Ask a run to end after a last checkpoint, and wait until it has.

    One that has not ended after `runner.stop_grace_s` seconds is killed, with every process that
    it has started. Of a group, every run that has yet to end is asked. A service that is started
    anew in the meantime is waited for.
    """
    line = target.retrying()
    meant = line.ask(
        lambda connected: subjects.find_only(connected, run, active=True, ask=not json)
    )
    ended = _ended(line, meant, force=force)
    if json:
        print_json(subjects.document(ended))
        return
    out().print(subjects.line(ended))
    if ended.group is not None:
        asked = {each.id for each in meant.runs if each.active}
        for each in ended.runs:
            if each.id in asked:
                out().print(f"  {subjects.line(RunOrGroup((each,)))}")


def _ended(line: RetryingConnection, subject: RunOrGroup, *, force: bool) -> RunOrGroup:
    if subject.group is None:
        return RunOrGroup((_told(line, subject.runs[0], partial(line.stop, force=force)),))
    active = [run for run in subject.runs if run.active]
    if not active:
        state = subject.group.state
        raise Conflict(f"group {subject.id} is {state} already; there is nothing to stop")
    # All are asked before any is waited for, so that no queued run takes the place of another.
    for tell in (partial(line.ask_to_stop, force=force), partial(line.stop, force=force)):
        for run in active:
            _told(line, run, tell)
    return line.ask(lambda connected: subjects.of_group(connected, subject.id))


def _told(line: RetryingConnection, run: Run, tell: Callable[[str], Run]) -> Run:
    """The run after it was told. One that was seen at work may have ended in the meantime."""
    try:
        return tell(run.id)
    except Conflict:
        if not run.active:
            raise
        return line.get(run.id)
