"""`rlctl ls`: the runs of a home, a group in one row."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from rl_orch.cli.arguments import Json
from rl_orch.cli.connection import Connected, ConnectionOptions
from rl_orch.cli.output import out, print_json, safe
from rl_orch.cli.views.grid import grid_of, wide
from rl_orch.cli.views.text import age_text, outcome_cells, short
from rl_orch.cli.views.unlisted import warn_of_unlisted
from rl_orch.core.runs.groups import fold
from rl_orch.records import Group, Run, State
from rl_orch.records.queries import Page, Query

COLUMNS = ("run", "state", "algo", "env", "steps", "return [95 %]", "gate", "age")


def command(
    state: Annotated[
        list[State] | None,
        typer.Option("--state", help="Only runs in this state, each in a row; may be repeated."),
    ] = None,
    every_run: Annotated[
        bool, typer.Option("--runs", help="A row for every run, also those of groups.")
    ] = False,
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", help="Only runs with this tag, NAME=VALUE; may be repeated."),
    ] = None,
    parent: Annotated[
        str | None, typer.Option(help="Only runs that belong to the run or group of this id.")
    ] = None,
    role: Annotated[
        str | None, typer.Option(help="Only runs that are this to their parent.")
    ] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=1000)] = 50,
    after: Annotated[
        str | None, typer.Option(help="Continue after the `next` of the page before.")
    ] = None,
    *,
    target: ConnectionOptions,
    json: Json = False,
) -> None:
    """List runs, newest first, a group in one row.

    With --json: every run, and the groups that those on the page belong to.
    """
    connected = target.connect(reading=True)
    query = Query(limit, after, tuple(state or ()), parent=parent, role=role, tags=tuple(tag or ()))
    if json:
        page = connected.ls(query)
        print_json(_document(connected, page))
        if not page.runs:
            warn_of_unlisted(connected, target)
        return
    rows: tuple[Run | Group, ...]
    if every_run or state or tag or parent or role:
        page = connected.ls(query)
        rows, cursor, flags = page.runs, page.next, " --runs" if every_run else ""
    else:
        folded = connected.rows(limit=limit, after=after)
        rows, cursor, flags = tuple(map(_whole, folded.rows)), folded.next, ""
    if rows:
        _print(rows, cursor, flags)
        return
    if warn_of_unlisted(connected, target):
        return
    where = safe(target.server or short(str(target.folder)))
    out().print(f"no runs in {where} yet; start one with: rlctl launch --env CartPole-v1")


def _document(connected: Connected, page: Page) -> dict[str, Any]:
    names = dict.fromkeys(run.group for run in page.runs if run.group is not None)
    groups = [fold(connected.group_runs(name)) for name in names]
    return {"runs": page.runs, "next": page.next, "groups": groups}


def _whole(runs: Sequence[Run]) -> Run | Group:
    return runs[0] if runs[0].group is None else fold(runs)


def _print(rows: Sequence[Run | Group], cursor: str | None, flags: str = "") -> None:
    grid = grid_of(COLUMNS, fixed=("run", "state", "age"))
    for row in rows:
        grid.add_row(*_cells(row))
    console = wide()
    console.print(grid)
    if cursor is not None:
        console.print(f"more: rlctl ls{flags} --after {safe(cursor)}", style="dim")


def _cells(row: Run | Group) -> tuple[str, ...]:
    share = f" {row.env_steps / row.total_timesteps:.0%}" if row.active else ""
    unit = "" if row.clock == "env_steps" else f" {row.trained.words}"
    steps = f"{row.env_steps:,}{unit}{share}"
    state, evaluation, gate = outcome_cells(row)
    return (
        safe(row.id),
        state,
        safe(row.algo),
        safe(row.env),
        steps,
        safe(evaluation),
        gate,
        age_text(row.created_at),
    )
