"""`rlctl options`: the option table, for people and for programs."""

from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from rl_orch.cli.arguments import Json
from rl_orch.cli.output import out, print_json, safe
from rl_orch.cli.views.grid import grid_of
from rl_orch.errors import BadInput
from rl_orch.spec.aliases import canonical
from rl_orch.spec.mistakes import unknown
from rl_orch.spec.options import Option, aliases_of, groups, json_schema, table
from rl_orch.spec.reference import default_text, markdown

WIDE = 200
"""Columns that the whole table takes."""


def command(
    group: Annotated[
        str | None, typer.Argument(help="Only this group or option, e.g. train or train.lr.")
    ] = None,
    format: Annotated[
        Literal["table", "json", "markdown", "schema"],
        typer.Option(help="`schema` is JSON Schema for editors."),
    ] = "table",
    json: Json = False,
) -> None:
    """List every option with its type, default, variable and flag.

    A value comes from override, flag, variable, file or default, the first of them that has one.
    Those marked live may be changed while a run goes on, by `rlctl set`.
    """
    chosen = _chosen(group)
    if format == "schema":
        print_json(json_schema())
    elif json or format == "json":
        print_json({"options": [option.document() for option in chosen]})
    elif format == "markdown":
        print(markdown(chosen), end="")
    else:
        _print(chosen)


def _chosen(group: str | None) -> list[Option]:
    if group is None:
        return list(table().values())
    path = canonical(group)
    chosen = [
        option
        for option in table().values()
        if path in (option.group, option.path) or option.path.startswith(f"{path}.")
    ]
    if not chosen:
        problem, _ = unknown(group, None)
        raise BadInput(problem.message, path=problem.path, hint=problem.hint)
    return chosen


def _print(options: list[Option]) -> None:
    console = out()
    wide = len(options) > 1 and (not console.is_terminal or console.width >= WIDE)
    if not console.is_terminal:
        console.width = WIDE
    for group in dict.fromkeys(option.group for option in options):
        console.print(f"[bold]{group}[/]  {safe(groups()[group])}")
        inside = [option for option in options if option.group == group]
        if wide:
            console.print(_grid(inside))
        else:
            for option in inside:
                _print_stacked(console, option, all_names=len(options) == 1)
        console.print()


def _grid(options: list[Option]) -> Table:
    grid = grid_of(("option", "type", "default", "variable", "flag"))
    for option in options:
        cells = (option.type, default_text(option), option.variables[0], option.flags[0])
        grid.add_row(_name(option), *map(safe, cells))
    return grid


def _print_stacked(console: Console, option: Option, *, all_names: bool) -> None:
    console.print(f"  {_name(option)}  {safe(option.type)}, default {safe(default_text(option))}")
    console.print(f"    {safe(option.help)}")
    if not all_names:
        console.print(f"    {option.flags[0]}  {option.variables[0]}", style="dim")
        return
    for names in (option.flags, option.variables, aliases_of(option.path)):
        if names:
            console.print(f"    {'  '.join(names)}", style="dim")


def _name(option: Option) -> str:
    pending = " [yellow](pending)[/]" if isinstance(option.pending, str) else ""
    live = " [green](live)[/]" if option.live else ""
    return f"[cyan]{option.path}[/]{pending}{live}"
