"""The end of a run, and a run as it stands: curve, evaluation, verdict, where things are."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from rl_orch import stats
from rl_orch.cli.output import safe
from rl_orch.cli.views.chart import draw
from rl_orch.cli.views.text import (
    changes_text,
    compared_text,
    counted,
    interval_text,
    short,
    span_text,
    state_text,
    tags_text,
)
from rl_orch.core.runs import curves
from rl_orch.core.runs.curves import Curve
from rl_orch.core.runs.state import RESUMABLE
from rl_orch.errors import shortened
from rl_orch.records import (
    Certificate,
    EvalReport,
    Evaluation,
    History,
    LetGo,
    RunView,
    State,
    Verdict,
)
from rl_orch.stats.text import bounds_text, figure

ATTEMPTS_SHOWN = 5
METRICS_SHOWN = 20
REWARD_TERM = "reward_"


def print_summary(
    console: Console, shown: RunView, past: History, verdict: Verdict | None, *, flags: str = ""
) -> None:
    """Everything one wants to know when a run has ended, or when one asks for it.

    `flags` are what the next commands need to find the run: see `ConnectionOptions.flags`.
    """
    run = shown.run
    console.print()
    print_chart(console, [curves.of_run(past, "return")], target=shown.spec.gates.min_return)
    row(
        console, "run", f"[bold]{safe(run.id)}[/]  {state_text(run)}: {safe(shortened(run.reason))}"
    )
    if run.group is not None:
        row(console, "group", safe(f"{run.group}: rlctl show {run.group}{flags}"))
    if run.parent not in (None, run.group):
        row(console, "parent", safe(f"{run.parent}, as {run.role or 'a run of it'}"))
    if run.tags:
        row(console, "tags", safe(tags_text(run)))
    if run.note:
        row(console, "note", safe(run.note))
    chosen = f"{safe(run.algo)} on {safe(run.env)}, seed {run.seed}, config {run.config_hash[:12]}"
    row(console, "spec", chosen)
    speed = "" if run.sps is None else f", {run.sps:,.0f} {run.trained.words}/s"
    budget = f"{run.trained} (budget {run.total_timesteps:,}){speed}"
    row(console, "trained", budget)
    if shown.quiet_s is not None:
        row(console, "quiet", safe(_quiet_sentence(shown, flags)))
    if run.eval is not None:
        source = "final" if shown.report is not None else "during training"
        row(console, "evaluated", f"{evaluation_sentence(run.eval)} ({source})")
        for sentence in [] if shown.report is None else metric_sentences(shown.report):
            row(console, "metric", safe(sentence))
        if shown.report is not None and shown.report.cut_sentence is not None:
            row(console, "cut", f"{shown.report.cut_sentence} (eval.max_episode_steps)")
    if verdict is not None:
        colour = "green" if verdict.passed else "red"
        row(console, "gate", f"[{colour}]{verdict.word}[/]")
        for check in verdict.checks:
            mark = "[green]✓[/]" if check.passed else "[red]✗[/]"
            mark = "[dim]–[/]" if check.limit is None else mark
            row(console, "", f"{mark} {check.rule}: {safe(check.sentence)}")
    for model in shown.models:
        if model.id == run.model_id:
            word = "[green]validated[/]" if model.validated else "not validated"
            row(console, "model", f"#{model.id} {word}: {safe(short(model.model_path))}")
    for name, text in _history_rows(shown):
        row(console, name, safe(text))
    row(console, "folder", safe(short(run.path)))
    row(console, "next", safe("\n".join(_next_commands(shown, flags))))


def _quiet_sentence(shown: RunView, flags: str) -> str:
    return (
        f"its process lives, but has told nothing for {span_text(shown.quiet_s or 0.0)}; if its "
        f"environment hangs: rlctl stop {shown.run.id}{flags}"
    )


def evaluation_sentence(evaluation: Evaluation) -> str:
    """An evaluation with its interval, unit and n."""
    return (
        f"mean return {figure(evaluation.mean)}, 95 % interval {interval_text(evaluation)}, "
        f"IQM {figure(evaluation.iqm)}, std {figure(evaluation.std)}, "
        f"n = {counted(evaluation.n, evaluation.unit)}"
    )


def metric_sentences(report: EvalReport) -> list[str]:
    """The metrics of a report with their intervals, and why others are missing.

    Of many, some are shown, terms of the reward last.
    """
    names = sorted(report.metrics, key=lambda name: name.startswith(REWARD_TERM))
    shown = {name: report.metrics[name] for name in names[:METRICS_SHOWN]}
    estimates = stats.metric_estimates(shown, shares=report.shares, seed=report.seed)
    n = counted(len(report.returns), "episode")
    sentences = [
        f"{name} {figure(each.value)}, 95 % interval {bounds_text(each.ci95)}, n = {n}"
        for name, each in estimates.items()
    ]
    if len(names) > len(shown):
        sentences.append(f"and {len(names) - len(shown):,} more; --json has all of them")
    return [*sentences, *(f"{name}: {why}" for name, why in report.missing.items())]


def print_chart(console: Console, drawn: Sequence[Curve], *, target: float | None = None) -> None:
    """Some curves in one picture, if there is anything to draw."""
    colour, width = console.color_system is not None, console.width - 2
    text = draw(drawn, target=target, colour=colour, width=width)
    if text:
        console.print(Text.from_ansi(text))
        console.print()


def _history_rows(shown: RunView) -> Iterator[tuple[str, str]]:
    """What came of the attempts, what they changed, and how exactly they go on from each other."""
    ended = [attempt for attempt in shown.attempts[:-1] if attempt.reason]
    for attempt in ended[-ATTEMPTS_SHOWN:]:
        yield "attempt", f"{attempt.number}: {shortened(attempt.reason)}"
    for problem in shown.passed_over:
        yield "damaged", f"{problem}; the one before it was used"
    if shown.start is not None:
        yield "started", f"from {_origin(shown.start, shown.taken)}"
    for note in shown.changes:
        yield "changed", f"{_moment(note)}: {_changed(note)}"
    if shown.children:
        yield "children", f"{', '.join(shown.children)} began with its weights"
    if shown.exactness is not None:
        why = shown.exactness.reason or f"environment state {shown.exactness.method}"
        yield "resume", f"{shown.exactness.level}: {why}"
    if shown.let_go is not None:
        yield "let go", let_go_sentence(shown.let_go)
    if shown.certificate is not None:
        yield "certificate", certificate_sentence(shown.certificate)
    for tracker in shown.trackers:
        if tracker.error or (tracker.is_behind and not shown.run.active):
            why = tracker.error or "whoever delivered is gone; `rlctl up` goes on"
            yield "tracker", f"{tracker.name} lacks {tracker.behind_bytes:,} bytes of events: {why}"


def _origin(start: Mapping[str, Any], told: Mapping[str, Any] | None) -> str:
    """The weights that a run began with."""
    whose = {name: start.get(name) for name in ("model", "run", "checkpoint")}
    named = " ".join(f"{name} {value}" for name, value in whose.items() if value is not None)
    kept = [] if told is None else told.get("kept", [])
    left = f"; not taken: {', '.join(kept)}" if kept else ""
    return f"{start.get('parts')} of {named or start.get('path')}{left}"


def _moment(note: Mapping[str, Any]) -> str:
    """When a change counted from."""
    if "step" not in note:
        return f"at attempt {note['attempt']}"
    if note["step"] is None:
        return "asked for, at no step yet"
    return f"at step {note['step']:,} of attempt {note['attempt']}"


def _changed(note: Mapping[str, Any]) -> str:
    loaded = note.get("load")
    what = "" if loaded is None else f"{' and '.join(loaded['parts'])} of {loaded['from']}"
    return ", ".join(filter(None, (changes_text(note["set"]), what)))


def certificate_sentence(certificate: Certificate) -> str:
    """What a certificate says."""
    difference = certificate.first_difference
    compared = compared_text(certificate)
    said = f"{certificate.level} over {counted(certificate.kills, 'kill')}, {compared}"
    if difference is None:
        return said
    return f"{said}; first difference: {difference.at}, {difference.part}"


def let_go_sentence(let_go: LetGo) -> str:
    """What a run has let go of, and how much that freed."""
    parts = [counted(len(let_go.checkpoints), "checkpoint")] if let_go.checkpoints else []
    parts += ["the replay buffer"] if let_go.segments else []
    return f"{' and '.join(parts)}; {let_go.bytes / 1e6:,.1f} MB freed"


def _next_commands(shown: RunView, flags: str) -> list[str]:
    """What can help: no resume, where a further attempt would fail as the last one did."""
    run = shown.run
    commands = [f"rlctl show {run.id}{flags}"]
    if Path(run.path).is_dir():
        commands.append(f"tensorboard --logdir {shlex.quote(f'{short(run.path)}/tensorboard')}")
    if shown.fails_again:
        if Path(run.path, "spec.yaml").is_file():  # It may be on the machine of a service.
            spec = shlex.quote(f"{short(run.path)}/spec.yaml")
            commands.insert(0, f"rlctl launch -f {spec}{flags}")
    elif run.state in RESUMABLE:
        commands.insert(0, f"rlctl resume {run.id}{flags}")
    if run.state in (State.FAILED, State.LOST):
        commands.insert(0, f"rlctl logs {run.id}{flags}")
    return commands


def row(console: Console, name: str, text: str) -> None:
    """A line of a summary: what it is about, and what there is to say."""
    for index, line in enumerate(text.splitlines()):
        label = name if index == 0 else ""
        console.print(f"[dim]{label:>10}[/]  {line}", soft_wrap=True)
