"""`rlctl resume`: go on with a run, or a group of them, that has not come to a final end."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from rl_orch.cli.arguments import Database, Detach, Home, Json, Quiet, Server
from rl_orch.cli.connection import lasting, place_flags
from rl_orch.cli.live.finish import OutputOptions, attached, conclude
from rl_orch.cli.live.follow import announce
from rl_orch.cli.live.progress import watched
from rl_orch.cli.views import subjects
from rl_orch.cli.views.subjects import SubjectArgument
from rl_orch.core.runs.groups import RunOrGroup

if TYPE_CHECKING:
    from rl_orch.core.orchestrator import Orchestrator

Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="GROUP.OPTION=VALUE",
        help="Go on with another value; may be repeated.",
        show_default=False,
    ),
]


def command(
    run: SubjectArgument,
    changes: Changes = None,
    detach: Detach = False,
    home: Home = None,
    database: Database = None,
    server: Server = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Go on with a stopped, failed or lost run.

    It begins at its newest intact checkpoint. What follows is bit for bit what the run would have
    done without the interruption, where its environment allows that: `rlctl show` says so. A run
    whose `launch` was killed while it trains on is taken over as it is. A group is resumed run by
    run. Where a service is up, the run is queued there and followed to its end; else it goes on
    here in the foreground. With --detach it is queued, and this returns.

    Options that may change: name, train.total_timesteps, eval, gates, checkpoint, resources.

    Examples:

      rlctl resume last

      rlctl resume cartpole-k3m9xq --set train.total_timesteps=2e6
    """
    line = lasting(home, database, server)
    manner = OutputOptions(place_flags(home, database, server), json=json, quiet=quiet)
    if not line.connected.serves and not detach:
        return _in_foreground(line.connected, run, changes or (), manner)
    submission = line.ask(lambda connected: connected.requeue(run, overrides=changes or ()))
    if detach:
        return announce(submission, flags=manner.flags, json=json, served=line.connected.serves)
    return attached(line, submission, manner)


def _in_foreground(
    connected: "Orchestrator", reference: str, changes: Sequence[str], manner: OutputOptions
) -> int:
    group = connected.group(reference)
    with watched(quiet=manner.quiet) as (watch, asked):
        if group is None:
            result = connected.resume(
                reference, overrides=changes, watch=watch, stop_requests=asked
            )
        else:
            connected.resume_group(group.id, overrides=changes, watch=watch, stop_requests=asked)
    if group is None:
        return conclude(connected, RunOrGroup((result.run,)), manner, result.verdict)
    return conclude(connected, subjects.of_group(connected, group.id), manner)
