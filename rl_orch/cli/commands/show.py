"""`rlctl show`: runs and groups, whole."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from rl_orch.cli.arguments import Json
from rl_orch.cli.connection import Connected, ConnectionOptions
from rl_orch.cli.output import out, print_json, safe
from rl_orch.cli.views import subjects
from rl_orch.cli.views.grid import grid_of
from rl_orch.cli.views.group_summary import print_group
from rl_orch.cli.views.run_summary import print_summary
from rl_orch.cli.views.subjects import SubjectsArgument
from rl_orch.cli.views.text import plain
from rl_orch.core.runs.groups import RunOrGroup
from rl_orch.records import Checkpoint, RunView
from rl_orch.stats.text import figure


def command(
    runs: SubjectsArgument,
    target: ConnectionOptions,
    json: Json = False,
) -> None:
    """Show runs: result, curve, checkpoints, models.

    A group is shown folded: the mean curve with its band, the statistics over its runs, and a row
    for each of them.
    """
    connected = target.connect(reading=True)
    shown = subjects.find_all(connected, runs)
    if json:
        found = [_subject_document(connected, subject) for subject in shown]
        print_json(subjects.documents(found))
        return
    for number, subject in enumerate(shown):
        if number:
            out().print()
        if subject.group is None:
            _show_run(connected, subject.id, target.flags)
        else:
            print_group(out(), connected, subject, flags=target.flags)


def _subject_document(connected: Connected, subject: RunOrGroup) -> dict[str, Any]:
    if subject.group is None:
        return _document(connected.show(subject.id))
    return subjects.document(subject)


def _show_run(connected: Connected, run_id: str, flags: str) -> None:
    shown, console = connected.show(run_id), out()
    print_summary(console, shown, connected.history(run_id), shown.verdict, flags=flags)
    if shown.checkpoints:
        console.print()
        console.print(_checkpoints(shown))


def _checkpoints(shown: RunView) -> Table:
    grid = grid_of(("checkpoint", "model", "evaluated", "validated", "integrity"))
    models = {Path(model.model_path).name: model for model in shown.models}
    for entry in shown.checkpoints:
        model = models.get(entry.name)
        measured = "–" if model is None or model.mean_reward is None else figure(model.mean_reward)
        grid.add_row(
            entry.name,
            "–" if model is None else f"#{model.id}",
            measured,
            "yes" if model is not None and model.validated else "no",
            _integrity(entry),
        )
    return grid


def _integrity(entry: Checkpoint) -> str:
    if not entry.intact:
        return f"[red]{safe(entry.problem)}[/]"
    return "[green]intact[/], replay let go of" if entry.replay_let_go else "[green]intact[/]"


def _document(shown: RunView) -> dict[str, Any]:
    verdict = shown.verdict
    return plain(shown.run) | {
        "spec": shown.spec,
        "attempts": shown.attempts,
        "checkpoints": shown.checkpoints,
        "models": shown.models,
        "exactness": None if shown.exactness is None else asdict(shown.exactness),
        "passed_over": shown.passed_over,
        "watched": shown.watched,
        "forecast": shown.forecast,
        "quiet_s": shown.quiet_s,
        "certificate": shown.certificate,
        "changes": shown.changes,
        "let_go": shown.let_go,
        "trackers": shown.trackers,
        "start": shown.start,
        "taken": shown.taken,
        "children": shown.children,
        "checks": [] if verdict is None else verdict.checks,
    }
