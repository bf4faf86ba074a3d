"""`rlctl rm`: delete runs that have ended."""

from typing import Annotated

import typer

from rl_orch.cli.arguments import Json
from rl_orch.cli.connection import ConnectionOptions
from rl_orch.cli.output import out, print_json, safe
from rl_orch.cli.views import subjects
from rl_orch.core.runs.groups import RunOrGroup
from rl_orch.errors import BadInput, Conflict
from rl_orch.records import Run


def command(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="The runs or groups to delete.")
    ],
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask; needs ids.")] = False,
    *,
    target: ConnectionOptions,
    json: Json = False,
) -> None:
    """Delete runs that have ended: directory, checkpoints and models.

    Of a group, all runs are deleted, and none while any of them has yet to end.
    """
    connected = target.connect()
    targets = [
        subjects.find_only(connected, reference, ask=not (yes or json)) for reference in runs
    ]
    doomed = {run.id: run for subject in targets for run in subject.runs}
    _refuse_active(targets)
    if yes:
        _refuse_unless_ids(runs, targets)
    else:
        if json:
            raise BadInput("rm deletes for good", hint="With --json, say --yes as well.")
        for run in doomed.values():
            out().print(_line(run))
        typer.confirm("Delete for good?", abort=True)
    removed = [connected.remove(run_id).id for run_id in doomed]
    if json:
        print_json({"removed": removed})
    else:
        for run_id in removed:
            out().print(f"removed {safe(run_id)}")


def _refuse_unless_ids(references: list[str], targets: list[RunOrGroup]) -> None:
    """Raise if nobody is asked, and a word may mean something else than whoever typed it thinks."""
    for reference, subject in zip(references, targets, strict=True):
        if reference != subject.id:
            noun = "run" if subject.group is None else "group"
            raise BadInput(
                f"--yes needs an id, and {reference!r} is none; it means {noun} {subject.id} now",
                path="runs",
                hint=f"rlctl rm {subject.id} --yes",
            )


def _refuse_active(targets: list[RunOrGroup]) -> None:
    """Delete all or nothing."""
    for subject in targets:
        for run in subject.runs:
            if run.active:
                raise Conflict(
                    f"run {run.id} is {run.state}; a run must end before it can be removed",
                    hint=f"rlctl stop {subject.id}",
                )


def _line(run: Run) -> str:
    validated = run.model_id is not None and run.verdict == "passed"
    warning = f", with validated model #{run.model_id}" if validated else ""
    return f"{safe(run.id)} ({run.state}{warning})"
