"""Tables without lines, as listings have them."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from rl_orch.cli.output import out, safe

PIPED_WIDTH = 160


def grid_of(columns: Sequence[str], fixed: Sequence[str] = ()) -> Table:
    """An empty table with its headings; the fixed columns are never folded."""
    grid = Table(box=None, pad_edge=False)
    for column in columns:
        grid.add_column(safe(column), header_style="dim", overflow="fold", no_wrap=column in fixed)
    return grid


def number_table(first: str, *others: str) -> Table:
    """An empty table whose columns are numbers, but for the first."""
    table = Table(box=None, pad_edge=False)
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table


def wide() -> Console:
    """Standard output, with room for a listing where it is no terminal."""
    console = out()
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    return console
