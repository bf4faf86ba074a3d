"""`rlctl compare`: runs and groups side by side, what their specs differ in, and their curves."""

import json
from collections.abc import Callable, Sequence
from functools import partial
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
from rl_orch.cli.views.text import counted, outcome_cells, plain, seeds_text, summary_text
from rl_orch.core.runs import curves
from rl_orch.core.runs.comparison import RETURN, Compared, caveat, effects, gathered, unlike_tasks
from rl_orch.core.runs.curves import Curve
from rl_orch.core.runs.groups import RunOrGroup
from rl_orch.core.telemetry import Telemetry
from rl_orch.errors import BadInput
from rl_orch.records import Group, GroupEvaluation, History
from rl_orch.spec.difference import differences, task_differences
from rl_orch.spec.model import Spec
from rl_orch.stats import summarize
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
    metric: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Compare by another number of the final evaluation, such as success_rate.",
        ),
    ] = RETURN,
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

      rlctl compare baseline-k3m9xq wider-p7d2ba --metric success_rate
    """
    if len(runs) < 2:
        raise BadInput("compare needs two runs or more", hint="rlctl compare RUN RUN")
    for path in files or ():
        picture.check_name(path)
    connected = target.connect(reading=True)
    compared = [subjects.find(connected, reference) for reference in runs]
    measured = gathered(connected, compared, metric)
    specs = [each.spec for each in measured]
    difference = differences(specs)
    if any(subject.group for subject in compared):
        difference.pop("env.seed", None)
    longest = max(run.env_steps for subject in compared for run in subject.runs)
    wanted = compared if files or not as_json else []
    past = connected.history if metric == RETURN else partial(_metric_history, connected, metric)
    drawn = [_curve(past, subject, longest) for subject in wanted]
    if smooth > 1:
        drawn = [curves.smoothed(curve, smooth) for curve in drawn]
    gate = _shared_gate(specs) if metric == RETURN else None
    _save(files or [], measured, drawn, gate, smooth)
    if as_json:
        print_json(_document(measured, difference, files or []))
        return
    console = wide()
    print_chart(console, drawn, target=gate)
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
        "metric": measured[0].metric,
        "evals": [each.eval and plain(each.eval) for each in measured],
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
    console.print(_results(measured))
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


def _curve(past: Callable[[str], History], subject: RunOrGroup, longest: int) -> Curve:
    if subject.group is None:
        return curves.of_run(past(subject.id), subject.id, until=longest)
    return curves.of_group(subject.runs, past, subject.id)


def _metric_history(connected: Connected, metric: str, run_id: str) -> History:
    """A metric of a run in its evaluations during training."""
    series = connected.series if connected.serves else Telemetry(connected).series
    charts = series(run_id, [f"eval/{metric}"])
    pairs = [pair for chart in charts for pair in zip(chart.steps, chart.values, strict=True)]
    return History(evaluations=tuple((step, summarize([value])) for step, value in pairs))


def _save(
    files: Sequence[Path],
    measured: Sequence[Compared],
    drawn: Sequence[Curve],
    gate: float | None,
    smooth: int,
) -> None:
    compared, metric = [each.subject for each in measured], measured[0].metric
    grouped = [each for each in measured if each.subject.group is not None]
    shown = grouped if grouped or metric == RETURN else measured
    scores = [_scores(each) for each in shown]
    if files and not any(curve.drawn for curve in drawn) and not any(s.returns for s in scores):
        names = " and ".join(subject.id for subject in compared)
        raise BadInput(f"there is nothing to draw of {names} yet: no episode has ended")
    title = ", ".join(dict.fromkeys(subject.whole.env for subject in compared))
    if smooth > 1:
        title += f"; curves averaged over {smooth} of {curves.POINTS} points"
    for path in files:
        picture.save(path, drawn, title=title, target=gate, scores=scores, metric=metric)


def _scores(each: Compared) -> picture.FinalScores:
    """The final evaluation of each run of a group, and what they come to; or that of one run."""
    whole = each.eval
    if whole is None or not each.values:
        return picture.FinalScores(each.id, each.values)
    if isinstance(whole, GroupEvaluation):
        return picture.FinalScores(each.id, each.values, whole.iqm, whole.iqm_ci95)
    return picture.FinalScores(each.id, each.values, whole.mean, whole.ci95)


def _shared_gate(specs: Sequence[Spec]) -> float | None:
    """The return that all of them must reach, if it is the same."""
    limits = {spec.gates.min_return for spec in specs}
    return limits.pop() if len(limits) == 1 else None


def _results(measured: Sequence[Compared]) -> Table:
    metric = f"{measured[0].metric} [95 %]"
    columns = [metric if name == COLUMNS[4] else name for name in COLUMNS]
    grid = grid_of(columns, fixed=("run", "state"))
    for each in measured:
        grid.add_row(safe(each.id), *_cells(each))
    return grid


def _cells(each: Compared) -> tuple[str, ...]:
    whole, seen = each.subject.whole, each.eval
    state, evaluation, gate = outcome_cells(whole)
    if each.metric != RETURN:
        evaluation = summary_text(seen)
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
