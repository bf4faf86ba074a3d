"""`rlctl ls`: the runs of a home, a group in one row."""

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from rl_orch.cli.arguments import Json
from rl_orch.cli.connection import Connected, ConnectionOptions
from rl_orch.cli.output import out, print_json, safe
from rl_orch.cli.views.grid import grid_of, wide
from rl_orch.cli.views.text import age_text, outcome_cells, seeds_text, short, tags_text
from rl_orch.cli.views.unlisted import warn_of_unlisted
from rl_orch.core.runs.groups import fold
from rl_orch.errors import BadInput
from rl_orch.records import Group, Run, State
from rl_orch.records.moments import moment
from rl_orch.records.queries import NEWEST, SORTS, Page, Query, state_named

Cell = Callable[[Run | Group], str]
CELLS: dict[str, Cell] = {
    "run": lambda row: safe(row.id),
    "name": lambda row: safe(row.name),
    "state": lambda row: outcome_cells(row)[0],
    "algo": lambda row: safe(row.algo),
    "env": lambda row: safe(row.env),
    "seed": lambda row: _seeds(row),
    "steps": lambda row: _steps(row),
    "return": lambda row: safe(outcome_cells(row)[1]),
    "gate": lambda row: outcome_cells(row)[2],
    "age": lambda row: age_text(row.created_at),
    "created": lambda row: time.strftime("%Y-%m-%d %H:%M", time.localtime(row.created_at)),
    "tags": lambda row: safe(_of_run(row, tags_text)),
    "note": lambda row: safe(_of_run(row, lambda run: run.note.partition("\n")[0])),
    "reason": lambda row: safe(_of_run(row, lambda run: run.reason)),
    "queue": lambda row: safe(_of_run(row, lambda run: run.queue)),
    "priority": lambda row: _of_run(row, lambda run: str(run.priority)),
    "sps": lambda row: _of_run(row, lambda run: "" if run.sps is None else f"{run.sps:,.0f}"),
    "model": lambda row: _of_run(row, lambda run: f"#{run.model_id}" if run.model_id else ""),
    "resume": lambda row: _of_run(row, lambda run: run.resume),
    "config": lambda row: row.config_hash[:12],
}
"""What a listing can have a column of."""

HEADINGS = {"return": "return [95 %]"}
USUAL = ("run", "name", "state", "algo", "env", "steps", "return", "gate", "age")
FIXED = ("run", "state", "age")


def command(
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="LIST",
            help=f"Only runs in these states, each in a row, of: {', '.join(State)}.",
        ),
    ] = None,
    every_run: Annotated[
        bool, typer.Option("--runs", help="A row for every run, also those of groups.")
    ] = False,
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", help="Only runs with this tag, NAME=VALUE; may be repeated."),
    ] = None,
    parent: Annotated[
        str | None, typer.Option(help="Only runs that belong to this run or group.")
    ] = None,
    role: Annotated[
        str | None, typer.Option(help="Only runs that are this to their parent.")
    ] = None,
    env: Annotated[
        str | None,
        typer.Option(
            help="Only runs on this environment; without a version, on any version of it."
        ),
    ] = None,
    algo: Annotated[str | None, typer.Option(help="Only runs of this algorithm.")] = None,
    name: Annotated[str | None, typer.Option(help="Only runs of this name.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only runs made since: 12h, 2026-11-18.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only runs made before: 12h, 2026-11-18.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="LIST", help=f"Columns, of: {', '.join(CELLS)}.")
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help=f"By {', '.join(SORTS)}, each run in a row; -FIELD turns the order round.",
        ),
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

    Of a group of which only some runs match, each that does is a row; so is every run with --runs,
    --state, --parent, --role and --sort. With --json: every run, and the groups that those on the
    page belong to.

    Examples:

      rlctl ls --env CartPole-v1 --since 12h --columns run,name,return,tags,note
    """
    chosen = _columns(columns)
    states = tuple(state_named(word, "--state") for word in _words(state))
    query = Query(
        limit,
        after,
        states,
        env=env,
        algo=algo,
        name=name,
        sort=sort or NEWEST.sort,
        parent=parent,
        role=role,
        tags=tuple(tag or ()),
        since=None if since is None else moment(since, flag="--since"),
        until=None if until is None else moment(until, flag="--until"),
    )
    single = every_run or bool(states or parent or role or sort)
    connected = target.connect(reading=True)
    if json:
        page = connected.ls(query)
        print_json(_document(connected, page))
        if not page.runs:
            warn_of_unlisted(connected, target)
        return
    rows: tuple[Run | Group, ...]
    if single:
        page = connected.ls(query)
        rows, cursor = page.runs, page.next
    else:
        folded = connected.rows(limit=limit, after=after, where=query)
        rows = tuple(fold(row) if folded.is_group(row) else row[0] for row in folded.rows)
        cursor = folded.next
    if rows:
        given = {
            "--state": state, "--tag": tag, "--parent": parent, "--role": role, "--env": env,
            "--algo": algo, "--name": name, "--since": since, "--until": until,
            "--sort": sort, "--columns": columns,
        }  # fmt: skip
        _print(rows, cursor, chosen, f"{' --runs' * every_run}{_flags(given)}")
        return
    if warn_of_unlisted(connected, target):
        return
    words = (env, algo, name, parent, role, since, until, after)
    if filters := [*states, *(tag or ()), *filter(None, words)]:
        out().print(safe(f"no run matches {', '.join(filters)}; `rlctl ls` lists all"))
        return
    where = safe(target.server or short(str(target.folder)))
    out().print(f"no runs in {where} yet; start one with: rlctl launch --env CartPole-v1")


def _document(connected: Connected, page: Page) -> dict[str, Any]:
    names = dict.fromkeys(run.group for run in page.runs if run.group is not None)
    groups = [fold(connected.group_runs(name)) for name in names]
    return {"runs": page.runs, "next": page.next, "groups": groups}


def _flags(given: Mapping[str, str | Sequence[str] | None]) -> str:
    """The flags that were typed, as the command for the next page needs them."""
    words = []
    for flag, value in given.items():
        values = [value] if isinstance(value, str) else value or []
        words += [f" {flag} {shlex.quote(str(each))}" for each in values]
    return "".join(words)


def _words(lists: Sequence[str] | None) -> list[str]:
    """The words of lists with commas between them."""
    return [word for text in lists or () for part in text.split(",") if (word := part.strip())]


def _columns(typed: str | None) -> tuple[str, ...]:
    """The columns that are asked for, or the usual ones."""
    if typed is None:
        return USUAL
    chosen = tuple(_words([typed]))
    unknown = [word for word in chosen if word not in CELLS]
    if unknown or not chosen:
        raise BadInput(
            f"--columns has {', '.join(unknown) or 'nothing'!r}; must be some of: "
            f"{', '.join(CELLS)}",
            hint=f"For example: --columns {','.join(USUAL)}",
        )
    return chosen


def _print(
    rows: Sequence[Run | Group], cursor: str | None, columns: Sequence[str], flags: str
) -> None:
    headings = [HEADINGS.get(name, name) for name in columns]
    grid = grid_of(headings, fixed=FIXED)
    for row in rows:
        grid.add_row(*(CELLS[name](row) for name in columns))
    console = wide()
    console.print(grid)
    if cursor is not None:
        more = f"more: rlctl ls{flags} --after {cursor}"
        console.print(safe(more), style="dim", soft_wrap=True)


def _of_run(row: Run | Group, text: Callable[[Run], str]) -> str:
    """What only a run has, in a cell."""
    return (text(row) if isinstance(row, Run) else "") or "–"


def _seeds(row: Run | Group) -> str:
    return str(row.seed) if isinstance(row, Run) else seeds_text(row.seeds)


def _steps(row: Run | Group) -> str:
    share = f" {row.env_steps / row.total_timesteps:.0%}" if row.active else ""
    unit = "" if row.clock == "env_steps" else f" {row.trained.words}"
    return f"{row.env_steps:,}{unit}{share}"
