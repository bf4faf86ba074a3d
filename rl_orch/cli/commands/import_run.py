"""`rlctl import-run`: take in a run directory from elsewhere."""

from pathlib import Path
from typing import Annotated

import typer

from rl_orch.cli.arguments import Json, Quiet
from rl_orch.cli.connection import ConnectionOptions, local_orchestrator
from rl_orch.cli.live.bar import watching
from rl_orch.cli.output import out, print_json, safe
from rl_orch.cli.views.text import short, state_text
from rl_orch.core.runs.state import RESUMABLE
from rl_orch.errors import BadInput
from rl_orch.records.jobs import ImportRunJob


def command(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The run directory.")],
    move: Annotated[bool, typer.Option("--move", help="Move it here instead of a copy.")] = False,
    *,
    target: ConnectionOptions,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Take in a run directory from another home.

    It is copied into this home, unless it lies there already or --move is given. All that is known
    of the run comes from its files; it can be shown, compared and resumed like any other.

    Before a byte is copied, all of it is measured: at most 250,000 files and folders, 32 inside
    each other, no links, FIFOs, sockets or devices; and the disk must have room for it with 64 MiB
    to spare. Holes in files stay holes. An import that does not come to its end leaves nothing.
    """
    if move and target.server is not None:
        raise BadInput("--move cannot be done through --server", hint="Leave --move out.")
    with watching(quiet=quiet or json) as watch:
        if move:
            here = local_orchestrator(target.home, target.database)
            run = here.import_run(path, move=True, watch=watch)
        else:
            run = target.workplace().carry_out(ImportRunJob(directory=str(path)), watch)
    if json:
        print_json(run)
        return
    out().print(f"{safe(run.id)}  {state_text(run)}: {safe(run.reason)}")
    out().print(f"  in {safe(short(run.path))}", style="dim")
    if run.state in RESUMABLE:
        out().print(safe(f"  next: rlctl resume {run.id}{target.flags}"), style="dim")
