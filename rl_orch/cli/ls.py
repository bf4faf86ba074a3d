"""`rlctl ls`: the runs of a home."""

from typing import Annotated

import typer
from rich.table import Table

from rl_orch import orchestrator
from rl_orch.cli.arguments import Database, Home, Json
from rl_orch.cli.output import out, print_json, safe
from rl_orch.cli.words import age_text, evaluation_text, plain, short, state_text
from rl_orch.core.store import Page
from rl_orch.records import State


def command(
    state: Annotated[
        list[State] | None,
        typer.Option("--state", help="Only runs in this state; may be repeated."),
    ] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=1000)] = 50,
    after: Annotated[
        str | None, typer.Option(help="Continue after the `next` of the page before.")
    ] = None,
    home: Home = None,
    database: Database = None,
    json: Json = False,
) -> None:
    """List runs, newest first."""
    connected = orchestrator.connect(home, database=database)
    page = connected.ls(limit=limit, after=after, states=state or ())
    if json:
        print_json({"runs": [plain(run) for run in page.runs], "next": page.next})
    elif not page.runs:
        place = safe(short(str(connected.database.parent)))
        out().print(f"no runs in {place} yet; start one with: rlctl launch --env CartPole-v1")
    else:
        _print(page)


def _print(page: Page) -> None:
    grid = Table(box=None, pad_edge=False)
    for column in ("run", "state", "algo", "env", "steps", "return [95 %]", "gate", "age"):
        fixed = column in ("run", "state", "age")
        grid.add_column(column, header_style="dim", overflow="fold", no_wrap=fixed)
    for run in page.runs:
        share = f" {run.env_steps / run.total_timesteps:.0%}" if run.active else ""
        grid.add_row(
            safe(run.id),
            state_text(run),
            run.algo,
            safe(run.env),
            f"{run.env_steps:,}{share}",
            safe(evaluation_text(run)),
            run.verdict or "–",
            age_text(run.created_at),
        )
    console = out()
    if not console.is_terminal:
        console.width = 160
    console.print(grid)
    if page.next is not None:
        console.print(f"more: rlctl ls --after {safe(page.next)}", style="dim")
