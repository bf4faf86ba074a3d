"""`rlctl compare`: runs and groups side by side, what their specs differ in, and their curves."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from rl_orch.cli.arguments import Json
from rl_orch.cli.connection import Connected, ConnectionOptions
from rl_orch.cli.output import print_json, safe
from rl_orch.cli.views import figure as picture
from rl_orch.cli.views import subjects
from rl_orch.cli.views.grid import grid_of, wide
from rl_orch.cli.views.run_summary import print_chart
from rl_orch.cli.views.text import counted, outcome_cells, seeds_text
from rl_orch.core.runs import curves
from rl_orch.core.runs.comparison import Compared, caveat, effects, gathered, unlike_tasks
from rl_orch.core.runs.curves import Curve
from rl_orch.core.runs.groups import RunOrGroup, final_returns
from rl_orch.errors import BadInput
from rl_orch.records import Group, GroupEvaluation
from rl_orch.spec.difference import differences, task_differences
from rl_orch.spec.model import Spec
from rl_orch.stats.text import figure

COLUMNS = ("run", "state", "seed", "steps", "return [95 %]", "mean", "n", "gate")


def command(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN RUN...", help="Two runs or groups, or more.")
    ],
    files: Annotated[
        list[Path] | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Also draw the curves into a file, .png or .svg; may be repeated.",
        ),
    ] = None,
    smooth: Annotated[
        int,
        typer.Option(
            min=1,
            max=curves.POINTS,
            help="Average curves over so many points; the picture says so.",
        ),
    ] = 1,
    *,
    target: ConnectionOptions,
    as_json: Json = False,
) -> None:
    """Put runs side by side: results, config difference, curves.

    Each may be a run or a group of seeds. Two groups also get the difference of their mean returns
    with its 95 % interval over training runs; with more than two, each is held against the first.
    Of those that play different tasks nothing is said but in which options these differ.

    Examples:

      rlctl compare baseline-k3m9xq wider-p7d2ba --out curves.png --out curves.svg
    """
    if len(runs) < 2:
        raise BadInput("compare needs two runs or more", hint="rlctl compare RUN RUN")
    for path in files or ():
        picture.check_name(path)
    connected = target.connect(reading=True)
    compared = [subjects.find(connected, reference) for reference in runs]
    measured = gathered(connected, compared)
    specs = [each.spec for each in measured]
    difference = differences(specs)
    if any(subject.group for subject in compared):
        difference.pop("env.seed", None)
    longest = max(run.env_steps for subject in compared for run in subject.runs)
    wanted = compared if files or not as_json else []
    drawn = [_curve(connected, subject, longest) for subject in wanted]
    if smooth > 1:
        drawn = [curves.smoothed(curve, smooth) for curve in drawn]
    _save(files or [], compared, drawn, _shared_gate(specs), smooth)
    if as_json:
        print_json(_document(measured, difference, files or []))
        return
    console = wide()
    print_chart(console, drawn, target=_shared_gate(specs))
    _print(console, measured, difference)
    for path in files or ():
        console.print(f"wrote {safe(path)}")


def _document(
    measured: Sequence[Compared], difference: dict[str, list[Any]], files: Sequence[Path]
) -> dict[str, Any]:
    compared = [each.subject for each in measured]
    tasks = task_differences([each.spec for each in measured])
    return {
        "runs": [subjects.document(subject) for subject in compared],
        "difference": [{"path": path, "values": values} for path, values in difference.items()],
        "task_difference": [{"path": path, "values": values} for path, values in tasks.items()],
        "effects": [effect.document() for effect in effects(measured)],
        "note": " ".join([*unlike_tasks(measured), caveat(compared)]),
        "pictures": [str(path) for path in files],
    }


def _print(
    console: Console, measured: Sequence[Compared], difference: dict[str, list[Any]]
) -> None:
    compared = [each.subject for each in measured]
    console.print(_results(compared))
    console.print()
    if difference:
        console.print(_difference_table(compared, difference))
    else:
        console.print("The specs are the same.")
    console.print()
    apart = effects(measured)
    for sentence in [effect.sentence for effect in apart] or unlike_tasks(measured):
        console.print(safe(sentence))
    console.print(caveat(compared), style="dim")


def _curve(connected: Connected, subject: RunOrGroup, longest: int) -> Curve:
    if subject.group is None:
        return curves.of_run(connected.history(subject.id), subject.id, until=longest)
    return curves.of_group(subject.runs, connected.history, subject.id)


def _save(
    files: Sequence[Path],
    compared: Sequence[RunOrGroup],
    drawn: Sequence[Curve],
    gate: float | None,
    smooth: int,
) -> None:
    if files and not any(curve.drawn for curve in drawn):
        names = " and ".join(subject.id for subject in compared)
        raise BadInput(f"there is nothing to draw of {names} yet: no episode has ended")
    title = ", ".join(dict.fromkeys(subject.whole.env for subject in compared))
    if smooth > 1:
        title += f"; curves averaged over {smooth} of {curves.POINTS} points"
    scores = [_scores(subject) for subject in compared if subject.group is not None]
    for path in files:
        picture.save(path, drawn, title=title, target=gate, scores=scores)


def _scores(subject: RunOrGroup) -> picture.FinalScores:
    """The final evaluation of each run of a group, and what they come to."""
    returns = tuple(final_returns(subject.runs))
    whole = subject.whole.eval
    if not isinstance(whole, GroupEvaluation) or not returns:
        return picture.FinalScores(subject.id, returns)
    return picture.FinalScores(subject.id, returns, whole.iqm, whole.iqm_ci95)


def _shared_gate(specs: Sequence[Spec]) -> float | None:
    """The return that all of them must reach, if it is the same."""
    limits = {spec.gates.min_return for spec in specs}
    return limits.pop() if len(limits) == 1 else None


def _results(compared: Sequence[RunOrGroup]) -> Table:
    grid = grid_of(COLUMNS, fixed=("run", "state"))
    for subject in compared:
        grid.add_row(safe(subject.id), *_cells(subject))
    return grid


def _cells(subject: RunOrGroup) -> tuple[str, ...]:
    whole, seen = subject.whole, subject.whole.eval
    state, evaluation, gate = outcome_cells(whole)
    return (
        state,
        seeds_text(whole.seeds if isinstance(whole, Group) else (whole.seed,)),
        f"{whole.env_steps:,}",
        safe(evaluation),
        "–" if seen is None else figure(seen.mean),
        "–" if seen is None else counted(seen.n, seen.unit),
        gate,
    )


def _difference_table(compared: Sequence[RunOrGroup], difference: dict[str, list[Any]]) -> Table:
    grid = grid_of(["option", *(subject.id for subject in compared)])
    for path, values in difference.items():
        grid.add_row(f"[cyan]{path}[/]", *(safe(json.dumps(value)) for value in values))
    return grid
