"""`rlctl rm`: delete runs that have ended."""

from typing import Annotated

import typer

from rl_orch import orchestrator
from rl_orch.cli.arguments import Database, Home, Json
from rl_orch.cli.output import out, print_json, safe
from rl_orch.errors import BadInput


def command(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="The runs to delete.")],
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    home: Home = None,
    database: Database = None,
    json: Json = False,
) -> None:
    """Delete runs that have ended: directory, checkpoints and models."""
    connected = orchestrator.connect(home, database=database)
    found = [connected.get(reference) for reference in runs]
    if not yes:
        if json:
            raise BadInput("rm deletes for good", hint="With --json, say --yes as well.")
        for run in found:
            models = [m for m in connected.registry.of_run(run.id) if m.validated]
            warning = f", with validated model #{models[0].id}" if models else ""
            out().print(f"{safe(run.id)} ({run.state}{warning})")
        typer.confirm("Delete for good?", abort=True)
    removed = [connected.remove(run.id).id for run in found]
    if json:
        print_json({"removed": removed})
    else:
        for run_id in removed:
            out().print(f"removed {safe(run_id)}")
