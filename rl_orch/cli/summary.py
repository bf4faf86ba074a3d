"""The end of a run, and a run as it stands: curve, evaluation, verdict, where things are."""

import shlex
from pathlib import Path

from rich.console import Console
from rich.text import Text

from rl_orch.cli.chart import Curve, draw
from rl_orch.cli.output import safe
from rl_orch.cli.words import figure, interval_text, short, state_text
from rl_orch.core.orchestrator import RunView
from rl_orch.io import history
from rl_orch.io.rundir import RunDir
from rl_orch.records import Evaluation, Run, State, Verdict


def print_summary(
    console: Console, shown: RunView, verdict: Verdict | None, *, flags: str = ""
) -> None:
    """Everything one wants to know when a run has ended, or when one asks for it.

    `flags` are what the next commands need to find the run: see `place_flags`.
    """
    run = shown.run
    console.print()
    print_curves(console, [run], target=shown.spec.gates.min_return)
    _row(console, "run", f"[bold]{safe(run.id)}[/]  {state_text(run)}: {safe(run.reason)}")
    chosen = f"{run.algo} on {safe(run.env)}, seed {run.seed}, config {run.config_hash[:12]}"
    _row(console, "spec", chosen)
    speed = "" if run.sps is None else f", {run.sps:,.0f} steps/s"
    budget = f"{run.env_steps:,} steps (budget {run.total_timesteps:,}){speed}"
    _row(console, "trained", budget)
    if run.eval is not None:
        source = "final" if shown.report is not None else "during training"
        _row(console, "evaluated", f"{evaluation_sentence(run.eval)} ({source})")
    if verdict is not None:
        colour = "green" if verdict.passed else "red"
        _row(console, "gate", f"[{colour}]{verdict.word}[/]")
        for check in verdict.checks:
            mark = "[green]✓[/]" if check.passed else "[red]✗[/]"
            mark = "[dim]–[/]" if check.limit is None else mark
            _row(console, "", f"{mark} {check.rule}: {safe(check.sentence)}")
    for model in shown.models:
        if model.id == run.model_id:
            word = "[green]validated[/]" if model.validated else "not validated"
            _row(console, "model", f"#{model.id} {word}: {safe(short(model.model_path))}")
    _row(console, "folder", safe(short(run.path)))
    _row(console, "next", safe("\n".join(_next_commands(run, flags))))


def place_flags(home: Path | None, database: Path | str | None) -> str:
    """The flags that lead another command to the same home and database, as a shell reads them."""
    given = {"--home": home, "--registry-db": database}
    return "".join(f" {flag} {shlex.quote(str(at))}" for flag, at in given.items() if at)


def evaluation_sentence(evaluation: Evaluation) -> str:
    """An evaluation with its interval, unit and n."""
    return (
        f"mean return {figure(evaluation.mean)}, 95 % interval {interval_text(evaluation)}, "
        f"IQM {figure(evaluation.iqm)}, std {figure(evaluation.std)}, "
        f"n = {evaluation.n} {evaluation.unit}"
    )


def print_curves(console: Console, runs: list[Run], *, target: float | None = None) -> None:
    """The training curves of some runs in one picture."""
    curves = [_curve(run, label="return" if len(runs) == 1 else run.id) for run in runs]
    drawn = draw(
        curves, target=target, colour=console.color_system is not None, width=console.width - 2
    )
    if drawn:
        console.print(Text.from_ansi(drawn))
        console.print()


def _curve(run: Run, label: str) -> Curve:
    seen = history.of_run(RunDir(Path(run.path)).events)
    steps, returns = seen.returns()
    return Curve(
        label,
        steps,
        returns,
        [step for step, _ in seen.evaluations],
        [evaluation.mean for _, evaluation in seen.evaluations],
    )


def _next_commands(run: Run, flags: str) -> list[str]:
    scalars = shlex.quote(f"{short(run.path)}/tensorboard")
    commands = [f"rlctl show {run.id}{flags}", f"tensorboard --logdir {scalars}"]
    if run.state in (State.FAILED, State.LOST):
        commands.insert(0, f"rlctl logs {run.id}{flags}")
    return commands


def _row(console: Console, name: str, text: str) -> None:
    for index, line in enumerate(text.splitlines()):
        label = name if index == 0 else ""
        console.print(f"[dim]{label:>10}[/]  {line}", soft_wrap=True)
