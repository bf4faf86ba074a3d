"""`rlctl resume`: go on with a run, or a group of them, that has not come to a final end."""

from collections.abc import Sequence
from typing import Annotated

import typer

from rl_orch import orchestrator
from rl_orch.cli.arguments import Database, Home, Json
from rl_orch.cli.launch import conclude, conclude_group, stop_requests
from rl_orch.cli.progress import watching
from rl_orch.cli.subjects import SubjectArgument
from rl_orch.records import Event, Run

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
    home: Home = None,
    database: Database = None,
    json: Json = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Show no progress.")] = False,
) -> int:
    """Go on with a stopped, failed or lost run.

    It begins at its newest intact checkpoint. What follows is bit for bit what the run would have
    done without the interruption, where its environment allows that: `rlctl show` says so. A run
    whose `launch` was killed while it trains on is taken over as it is. A group is resumed run by
    run.

    Options that may change: name, train.total_timesteps, eval, gates, checkpoint, resources.

    Examples:

      rlctl resume last

      rlctl resume cartpole-k3m9xq --set train.total_timesteps=2e6
    """
    connected = orchestrator.connect(home, database=database)
    wanted = changes or ()
    group = connected.group(run)
    with stop_requests() as requests, watching(quiet=quiet) as show:

        def watch(run: Run, events: Sequence[Event]) -> None:
            requests.answer(run)
            show(run, events)

        if group is None:
            result = connected.resume(
                run, overrides=wanted, watch=watch, stop_requests=requests.count
            )
        else:
            results = connected.resume_group(
                group.id, overrides=wanted, watch=watch, stop_requests=requests.count
            )
    if group is None:
        return conclude(connected, result, home=home, database=database, json=json)
    return conclude_group(connected, results, home=home, database=database, json=json)
