"""`rlctl eval`: play a policy, alone or against another one, and say honestly what it is worth."""

import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from rl_orch.cli.arguments import Json, Quiet
from rl_orch.cli.connection import Connected, ConnectionOptions
from rl_orch.cli.live.bar import watching
from rl_orch.cli.output import note, print_json, warn
from rl_orch.cli.policy_arguments import (
    MeantEnv,
    OptionalPolicy,
    UsingOption,
    names_model,
    only_one,
)
from rl_orch.cli.views import evaluations, figure, subjects
from rl_orch.cli.views.text import counted
from rl_orch.core.policies import evaluation
from rl_orch.core.runs import curves
from rl_orch.errors import BadInput, NotFound
from rl_orch.io.processes.task_worker import ProgressCallback
from rl_orch.records import Run
from rl_orch.records.jobs import EvaluateJob, PolicyEvaluation
from rl_orch.stats import summarize_runs


def command(
    policy: OptionalPolicy = None,
    model_id: Annotated[
        int | None,
        typer.Option("--model-id", metavar="ID", min=1, help="A model by its id, for POLICY."),
    ] = None,
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
        ),
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option("--metric", help="A metrics plugin; may be repeated.")
    ] = None,
    sequential: Annotated[
        bool, typer.Option("--sequential", help="With --against: stop once it is decided.")
    ] = False,
    margin: Annotated[
        float | None, typer.Option(min=0.0, help="With --sequential: a loss that is no loss.")
    ] = None,
    using: UsingOption = "torch",
    env: MeantEnv = None,
    out_folder: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Write evals/ there, not into the run."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, max=256, help="Processes that play; one for each core.")
    ] = None,
    *,
    target: ConnectionOptions,
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
    number = None if model_id is None else str(model_id)
    word = only_one({"POLICY": policy, "--model-id": number})
    if sequential and against is None:
        raise BadInput("--sequential is about two policies", hint="Name the other: --against")
    if margin is not None and not sequential:
        raise BadInput("--margin is for --sequential", hint="Add --sequential --against POLICY.")
    request = EvaluateJob(
        policy=word,
        against=against,
        env=env,
        episodes=episodes,
        seed=seed,
        deterministic=None if sample is None else not sample,
        metrics=tuple(metric or ()),
        sequential=sequential,
        margin=margin or 0.0,
        processes=jobs,
        using=using,
        out=None if out_folder is None else str(out_folder.absolute()),
    )
    connected = target.workplace()
    runs = _runs_of_group(connected, word)
    if against is not None:
        _refuse_group(word, runs)
        _refuse_group(against, _runs_of_group(connected, against))
    if runs:
        _evaluate_group(connected, runs, request, json=json, quiet=quiet)
        return
    with watching(quiet=quiet) as watch:
        evaluated = connected.carry_out(request, watch)
    files, elsewhere = _files(evaluated), target.server if out_folder is None else None
    if elsewhere is None:
        files |= _drawn(connected, evaluated)
    if json:
        print_json(evaluations.document(evaluated, files, typed=(word, against)))
    else:
        evaluations.print_evaluation(evaluated, word, against)
    _tell_of(files, elsewhere)


def _runs_of_group(connected: Connected, word: str) -> Sequence[Run]:
    """The runs of a group, if the word means one."""
    if names_model(connected, word):
        return ()
    try:
        group = connected.group(word)
    except NotFound:
        return ()
    return () if group is None else subjects.of_group(connected, group.id).runs


def _refuse_group(word: str, runs: Sequence[Run]) -> None:
    if runs:
        raise BadInput(
            f"{word!r} is a group of {counted(len(runs), 'run')}; --against is about two policies",
            hint=f"`rlctl compare` puts groups side by side; or name one run: {runs[0].id}.",
        )


def _evaluate_group(
    connected: Connected, runs: Sequence[Run], request: EvaluateJob, *, json: bool, quiet: bool
) -> None:
    seed = secrets.randbits(evaluation.SEED_BITS) if request.seed is None else request.seed
    played: list[tuple[Run, PolicyEvaluation]] = []
    for run in _with_models(connected, runs):
        out = None if request.out is None else str(Path(request.out) / run.id)
        asked = request.model_copy(update={"policy": run.id, "out": out, "seed": seed})
        with watching(quiet=quiet) as watch:
            played.append((run, connected.carry_out(asked, partial(_told, watch, run.id))))
    means = [evaluated.result.eval.mean for _, evaluated in played]
    whole = summarize_runs(means, seed=seed)
    if json:
        documents = [evaluations.document(each, _files(each)) for _, each in played]
        print_json({"group": runs[0].group, "policies": documents, "eval": whole})
    else:
        evaluations.print_members(played, whole)
    for _, evaluated in played:
        note(f"wrote {evaluated.files['report']}; its episodes are beside it")


def _with_models(connected: Connected, runs: Sequence[Run]) -> list[Run]:
    """The runs of a group that have a model to play, before any is played."""
    with_models = []
    for run in runs:
        try:
            connected.models.get(run.id)
            with_models.append(run)
        except NotFound as error:
            warn(f"left out: {error.message}")
    if not with_models:
        raise NotFound(f"no run of group {runs[0].group} has a model")
    return with_models


def _told(watch: ProgressCallback, name: str, _doing: str, done: float) -> None:
    watch(name, done)


def _files(evaluated: PolicyEvaluation) -> dict[str, Path]:
    return {name: Path(path) for name, path in evaluated.files.items()}


def _drawn(connected: Connected, evaluated: PolicyEvaluation) -> dict[str, Path]:
    """The curve of the policy's run, in `evals/`, if there is one to draw."""
    if evaluated.run_id is None or "report" not in evaluated.files:
        return {}
    curve = curves.of_run(connected.history(evaluated.run_id), evaluated.run_id)
    if not curve.drawn:
        return {}
    path = Path(evaluated.files["report"]).with_name("curve.svg")
    figure.save(path, [curve], title=evaluated.env)
    return {"curve": path}


def _tell_of(files: Mapping[str, Path], server: str | None) -> None:
    for path in files.values():
        note(f"wrote {path}" + ("" if server is None else f" at {server}"))
    if not files:
        note("nothing was written: the policy belongs to no run; --out FOLDER says where to")
