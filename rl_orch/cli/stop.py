"""`rlctl stop`: ask a run to end, and see that it does."""

from typing import Annotated

import typer

from rl_orch import orchestrator
from rl_orch.cli.arguments import Database, Home, Json, RunArgument
from rl_orch.cli.output import out, print_json, safe
from rl_orch.cli.words import plain, state_text


def command(
    run: RunArgument,
    force: Annotated[bool, typer.Option("--force", help="Kill it, without a checkpoint.")] = False,
    home: Home = None,
    database: Database = None,
    json: Json = False,
) -> None:
    """Ask a run to end after a last checkpoint, and wait until it has."""
    ended = orchestrator.connect(home, database=database).stop(run, force=force)
    if json:
        print_json(plain(ended))
    else:
        out().print(f"{safe(ended.id)}  {state_text(ended)}: {safe(ended.reason)}")
