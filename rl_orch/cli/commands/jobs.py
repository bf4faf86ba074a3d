"""`rlctl jobs`: the jobs of a service, listed, looked at, waited for, cancelled and repeated."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rl_orch.cli.arguments import Json, Quiet
from rl_orch.cli.connection import ConnectionOptions
from rl_orch.cli.live.bar import watching
from rl_orch.cli.output import note, out, print_json, safe
from rl_orch.cli.views.grid import grid_of
from rl_orch.cli.views.text import age_text
from rl_orch.errors import BadInput, error_of
from rl_orch.records.jobs import Job, JobState

if TYPE_CHECKING:
    from rl_orch.client.jobs import RemoteJobs

JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="Its id, as `rlctl jobs ls` lists it.")
]


def ls(
    state: Annotated[JobState | None, typer.Option(help="Only jobs in this state.")] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=1000)] = 50,
    *,
    target: ConnectionOptions,
    json: Json = False,
) -> None:
    """List jobs, newest first."""
    jobs = _jobs(target).ls(limit=limit, state=state)
    if json:
        print_json({"jobs": jobs})
        return
    grid = grid_of(("id", "kind", "state", "asked for", "by"))
    for job in jobs:
        grid.add_row(
            job.id, job.kind, _state(job), f"{age_text(job.created_at)} ago", safe(job.who)
        )
    out().print(grid if jobs else "no jobs; `rlctl eval --server URL` is one, for example")


def show(
    job: JobArgument,
    folder: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Bring the files that it made there."),
    ] = None,
    *,
    target: ConnectionOptions,
    json: Json = False,
) -> None:
    """Show one job: its state, how far it is, and its answer or error."""
    jobs = _jobs(target)
    found = jobs.get(job)
    if folder is not None:
        for path in jobs.fetch(job, folder):
            note(f"wrote {path}")
    _print(found, as_json=json)


def wait(
    job: JobArgument, *, target: ConnectionOptions, json: Json = False, quiet: Quiet = False
) -> int:
    """Wait until a job has ended, and exit with 0 if it has succeeded."""
    with watching(quiet=quiet) as watch:
        ended = _jobs(target).follow(job, watch)
    _print(ended, as_json=json)
    if ended.error is not None:
        return error_of(**ended.error).exit_code
    return 0 if ended.state is JobState.SUCCEEDED else 1


def cancel(job: JobArgument, *, target: ConnectionOptions, json: Json = False) -> None:
    """End a job, with all that it started. One that has ended stays as it is."""
    _print(_jobs(target).cancel(job), as_json=json)


def retry(job: JobArgument, *, target: ConnectionOptions, json: Json = False) -> None:
    """Queue a job again that was lost, failed or was cancelled."""
    _print(_jobs(target).retry(job), as_json=json)


commands = {"ls": ls, "show": show, "wait": wait, "cancel": cancel, "retry": retry}


def _jobs(target: ConnectionOptions) -> "RemoteJobs":
    connected = target.connect()
    if not connected.serves:
        raise BadInput(
            f"jobs are a service's, and none of {str(target.folder)!r} is up",
            hint="`rlctl up --detach` starts it; --server names another one.",
        )
    return connected.jobs


def _print(job: Job, *, as_json: bool) -> None:
    if as_json:
        print_json(job)
        return
    console = out()
    console.print(f"[bold]{job.id}[/]  {job.kind}  {_state(job)}  {safe(job.reason)}".rstrip())
    asked = ", ".join(
        f"{name}={value}" for name, value in job.arguments.items() if value is not None
    )
    console.print(f"  {safe(asked)}", style="dim", overflow="ellipsis", no_wrap=True)
    if job.error is not None and "hint" in job.error:
        console.print(f"  {safe(job.error['hint'])}", style="dim")
    if job.answer is not None:
        print_json(job.answer)


def _state(job: Job) -> str:
    return (
        f"{job.state} {job.done:.0%} {safe(job.doing)}" if job.doing and job.active else job.state
    )
