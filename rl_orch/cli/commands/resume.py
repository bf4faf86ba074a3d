"""`rlctl resume`: go on with a run, or a group of them, that has not come to a final end."""

from functools import partial
from typing import Annotated

import typer

from rl_orch.cli.arguments import Detach, Json, Quiet
from rl_orch.cli.connection import ConnectionOptions
from rl_orch.cli.live.finish import OutputOptions, attached, group_in_foreground, run_in_foreground
from rl_orch.cli.live.follow import announce
from rl_orch.cli.views.subjects import SubjectArgument

Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="GROUP.OPTION=VALUE", help="Go on with another value; may be repeated."
    ),
]


def command(
    run: SubjectArgument,
    changes: Changes = None,
    detach: Detach = False,
    *,
    target: ConnectionOptions,
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
    line = target.retrying()
    options = OutputOptions(target.flags, json=json, quiet=quiet)
    if not line.connected.serves and not detach:
        here, group = line.connected, line.connected.group(run)
        if group is None:
            resume = partial(here.resume, run, overrides=changes or ())
            return run_in_foreground(here, resume, options)
        resume_group = partial(here.resume_group, group.id, overrides=changes or ())
        return group_in_foreground(here, resume_group, options)
    submission = line.ask(lambda connected: connected.requeue(run, overrides=changes or ()))
    if detach:
        return announce(submission, flags=options.flags, json=json, served=line.connected.serves)
    return attached(line, submission, options)
