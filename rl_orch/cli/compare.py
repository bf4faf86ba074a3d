"""`rlctl compare`: runs side by side, what their specs differ in, and their curves."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from rl_orch import orchestrator
from rl_orch.cli.arguments import Database, Home, Json
from rl_orch.cli.output import out, print_json, safe
from rl_orch.cli.summary import print_curves
from rl_orch.cli.words import evaluation_text, figure, plain, state_text
from rl_orch.errors import BadInput
from rl_orch.io.rundir import RunDir
from rl_orch.records import Run
from rl_orch.spec.checks import value_at
from rl_orch.spec.model import Spec
from rl_orch.spec.options import table

CAVEAT = (
    "Intervals are over evaluation episodes of one training run each: they say how good these "
    "policies are, not which spec is better. For that, launch each spec with several seeds."
)


def command(
    runs: Annotated[list[str], typer.Argument(metavar="RUN RUN...", help="Two runs or more.")],
    home: Home = None,
    database: Database = None,
    as_json: Json = False,
) -> None:
    """Put runs side by side: results, config difference, curves."""
    if len(runs) < 2:
        raise BadInput("compare needs two runs or more", hint="rlctl compare RUN RUN")
    connected = orchestrator.connect(home, database=database)
    found = [connected.get(reference) for reference in runs]
    difference = differences([RunDir(Path(run.path)).spec() for run in found])
    if as_json:
        rows = [{"path": path, "values": values} for path, values in difference.items()]
        print_json({"runs": [plain(run) for run in found], "difference": rows, "note": CAVEAT})
        return
    console = out()
    if not console.is_terminal:
        console.width = 160
    print_curves(console, found)
    console.print(_results(found))
    console.print()
    console.print(_difference_table(found, difference) if difference else "The specs are the same.")
    console.print()
    console.print(CAVEAT, style="dim")


def differences(specs: list[Spec]) -> dict[str, list[Any]]:
    """The options in which specs differ, with the value in each."""
    found = {}
    for path in table():
        try:
            values = [value_at(spec, path) for spec in specs]
        except AttributeError:
            continue
        if any(value != values[0] for value in values):
            found[path] = values
    return found


def _results(runs: list[Run]) -> Table:
    grid = Table(box=None, pad_edge=False)
    columns = ("run", "state", "seed", "steps", "steps/s", "return [95 %]", "IQM", "n", "gate")
    for column in columns:
        fixed = column in ("run", "state")
        grid.add_column(column, header_style="dim", overflow="fold", no_wrap=fixed)
    for run in runs:
        grid.add_row(
            safe(run.id),
            state_text(run),
            str(run.seed),
            f"{run.env_steps:,}",
            "–" if run.sps is None else f"{run.sps:,.0f}",
            safe(evaluation_text(run)),
            "–" if run.eval is None else figure(run.eval.iqm),
            "–" if run.eval is None else f"{run.eval.n} {run.eval.unit}",
            run.verdict or "–",
        )
    return grid


def _difference_table(runs: list[Run], difference: dict[str, list[Any]]) -> Table:
    grid = Table(box=None, pad_edge=False)
    grid.add_column("option", header_style="dim")
    for run in runs:
        grid.add_column(safe(run.id), header_style="dim", overflow="fold")
    for path, values in difference.items():
        grid.add_row(f"[cyan]{path}[/]", *(safe(json.dumps(value)) for value in values))
    return grid
