"""`rlctl eval`: play a policy, alone or against another one, and say honestly what it is worth."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from rl_orch.cli import curves, picture, subjects
from rl_orch.cli.arguments import Database, Home, Json, Quiet, Server
from rl_orch.cli.connection import Connected, connect
from rl_orch.cli.output import err, live, note, out, print_json, safe
from rl_orch.cli.words import bounds_text, figure, group_sentence, plain
from rl_orch.core import evaluation, references
from rl_orch.core.evaluation import Asked, Comparison, Evaluated
from rl_orch.core.references import PolicySource
from rl_orch.errors import BadInput, NotFound
from rl_orch.records import Estimate, Run
from rl_orch.stats import summarize_runs

SEED_BITS = 31
NAMES = {"mean": "mean", "median": "median", "iqm": "IQM", "optimality_gap": "optimality gap"}
DECISIONS = {"superior": "it is better", "not": "it is not shown to be better"}

PolicyArgument = Annotated[
    str,
    typer.Argument(
        metavar="POLICY",
        help="A model's id, an alias, best@ENV, a run, a group, or the path of a checkpoint.",
    ),
]


def command(
    policy: PolicyArgument,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="POLICY", help="Play this one on the same episodes."),
    ] = None,
    episodes: Annotated[int, typer.Option("-n", "--episodes", min=1, max=1_000_000)] = 100,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Of the episodes; a fresh one, if none is given.", max=2**31 - 1),
    ] = None,
    sample: Annotated[
        bool | None,
        typer.Option(
            "--sample/--deterministic",
            help="Sample actions, or take the likeliest; as the spec says, if not given.",
            show_default=False,
        ),
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option("--metric", help="A metrics plugin; may be repeated.")
    ] = None,
    sequential: Annotated[
        bool, typer.Option("--sequential", help="With --against: stop once it is decided.")
    ] = False,
    margin: Annotated[
        float, typer.Option(min=0.0, help="With --sequential: a loss that is no loss.")
    ] = 0.0,
    env: Annotated[
        str | None, typer.Option("--env", metavar="ENV", help="Refuse a policy of any other one.")
    ] = None,
    out_folder: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Write evals/ there, not into the run."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, max=256, help="Processes that play; one for each core.")
    ] = None,
    home: Home = None,
    database: Database = None,
    server: Server = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Play a policy, and say what it is worth: mean, median and IQM with their intervals.

    Processes of their own load it from its files and play fresh episodes, whose seeds are in the
    report. Every episode is kept, in a Parquet table beside the report; the best and the worst can
    be looked at with `rlctl play`. Of a group, each run's model is played: the replicates are runs.

    Examples:

      rlctl eval last --episodes 1000

      rlctl eval 12 --against production --sequential
    """
    if sequential and against is None:
        raise BadInput("--sequential is about two policies", hint="Name the other: --against")
    asked = Asked(
        episodes=episodes,
        seed=secrets.randbits(SEED_BITS) if seed is None else seed,
        deterministic=None if sample is None else not sample,
        metrics=tuple(metric or ()),
        sequential=sequential,
        margin=margin,
        jobs=jobs,
    )
    connected = connect(home, database, server)
    group = _group(connected, policy)
    if group is not None and against is None:
        _evaluate_group(connected, group, asked, json=json, quiet=quiet)
        return
    source = source_of(connected, policy, env)
    other = None if against is None else source_of(connected, against, env)
    with _watching(quiet=quiet) as watch:
        found = evaluation.evaluate(source, other, asked, watch)
    files = evaluation.keep(source, found.answer, out_folder)
    files |= _drawn(connected, source, out_folder)
    if json:
        print_json(_document(policy, source, found) | {"files": _paths(files)})
    else:
        _print(source, found, against)
        for path in files.values():
            note(f"wrote {path}")


def source_of(connected: Connected, word: str, env: str | None) -> PolicySource:
    """Where the policy is that a word means, if it is of the environment that is meant."""
    found = references.source(connected.models, connected, word)
    if found.model is not None:
        references.refuse_other_env(connected.models, found.model, env)
    return found


def _group(connected: Connected, word: str) -> Sequence[Run] | None:
    """The runs of a group, if the word means one and no model."""
    try:
        group = connected.group(word)
    except NotFound:
        return None
    return None if group is None else subjects.of_group(connected, group.id).runs


def _evaluate_group(
    connected: Connected, runs: Sequence[Run], asked: Asked, *, json: bool, quiet: bool
) -> None:
    played = []
    for run in runs:
        source = references.source(connected.models, connected, run.id)
        with _watching(quiet=quiet, what=run.id) as watch:
            found = evaluation.evaluate(source, None, asked, watch)
        evaluation.keep(source, found.answer)
        played.append((run, source, found))
    means = [found.answer.report.summary.mean for _, _, found in played]
    whole = summarize_runs(means, seed=asked.seed)
    if json:
        documents = [_document(run.id, source, found) for run, source, found in played]
        print_json({"group": runs[0].group, "policies": documents, "eval": plain(whole)})
        return
    table = Table(box=None, pad_edge=False)
    for name in ("run", "seed", "mean return", "95 %", "IQM"):
        table.add_column(name, justify="left" if name == "run" else "right")
    for run, _, found in played:
        summary = found.answer.report.summary
        interval = bounds_text(summary.ci95)
        table.add_row(
            safe(run.id), str(run.seed), figure(summary.mean), interval, figure(summary.iqm)
        )
    out().print(table)
    out().print(f"\n{group_sentence(whole)}")


@contextmanager
def _watching(*, quiet: bool, what: str = "playing") -> Iterator[evaluation.Watch]:
    """A bar, where a person is watching."""
    if quiet or not live():
        yield lambda _done: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err(), transient=True) as progress:
        task = progress.add_task(safe(what), total=1.0)
        yield lambda done: progress.update(task, completed=done)


def _drawn(connected: Connected, source: PolicySource, folder: Path | None) -> dict[str, Path]:
    """The curve of the policy's run, in `evals/`, if there is one to draw."""
    if source.run is None:
        return {}
    curve = curves.of_run(connected.history(source.run.id), source.run.id)
    if not curve.drawn:
        return {}
    path = (folder or Path(source.run.path)) / "evals" / "curve.svg"
    picture.save(path, [curve], title=source.run.env)
    return {"curve": path}


def _aggregates(source: PolicySource, found: Evaluated) -> dict[str, Estimate]:
    directory = evaluation.run_directory(source)
    target = None if directory is None else directory.spec().gates.min_return
    return evaluation.aggregates(found.answer.report, target)


def _document(word: str, source: PolicySource, found: Evaluated) -> dict[str, Any]:
    report, baseline = found.answer.report, found.answer.baseline
    document: dict[str, Any] = {
        "policy": word,
        "path": str(source.path),
        "model_id": None if source.model is None else source.model.id,
        "run_id": None if source.run is None else source.run.id,
        "env": report.env_id,
        "seed": report.seed,
        "deterministic": report.deterministic,
        "eval": plain(report.summary),
        "aggregates": {name: plain(each) for name, each in _aggregates(source, found).items()},
        "mean_length": report.mean_length,
        "metrics": {name: sum(values) / len(values) for name, values in report.metrics.items()},
    }
    if baseline is not None and found.comparison is not None:
        document["against"] = {"model_id": baseline.model, "eval": plain(baseline.summary)}
        document["comparison"] = _comparison(found.comparison)
    return document


def _comparison(found: Comparison) -> dict[str, Any]:
    apart = found.difference
    return {
        "difference": {"mean": apart.mean, "ci95": list(apart.ci95), "pairs": apart.n[0]},
        "probability_of_improvement": plain(found.improvement),
        "decision": found.decision,
        "episodes_asked": found.asked,
    }


def _paths(files: dict[str, Path]) -> dict[str, str]:
    return {name: str(path) for name, path in files.items()}


def _print(source: PolicySource, found: Evaluated, against: str | None) -> None:
    report, console = found.answer.report, out()
    how = "likeliest actions" if report.deterministic else "sampled actions"
    console.print(
        f"{safe(report.env_id)}: {report.summary.n} episodes, {how}, seed {report.seed}",
        style="dim",
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("return")
    for name in ("estimate", "95 %"):
        table.add_column(name, justify="right")
    for name, each in _aggregates(source, found).items():
        table.add_row(NAMES[name], figure(each.value), bounds_text(each.ci95))
    table.add_row("std", figure(report.summary.std), "")
    table.add_row("length", figure(report.mean_length), "")
    for name, values in report.metrics.items():
        table.add_row(safe(name), figure(sum(values) / len(values)), "")
    console.print(table)
    if found.comparison is not None and against is not None:
        console.print(f"\n{_sentence(found.comparison, against)}")


def _sentence(found: Comparison, against: str) -> str:
    apart, better = found.difference, found.improvement
    pairs = f"{apart.n[0]} pairs of episodes"
    if found.decision is not None:
        pairs += f" (of at most {found.asked}: {DECISIONS.get(found.decision, 'not decided')})"
    return (
        f"minus {safe(against)}: {figure(apart.mean)} {bounds_text(apart.ci95)} over {pairs}; "
        f"it returns more with a chance of {better.value:.0%} "
        f"[{better.ci95[0]:.0%}, {better.ci95[1]:.0%}]"
    )
