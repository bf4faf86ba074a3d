"""Runs and groups: listing, looking, stopping, resuming, commands, tags, notes, removing."""

from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import Query as Parameter
from fastapi import Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from rl_orch.api.parts import Here
from rl_orch.api.schemas import (
    CheckpointList,
    Command,
    EventPage,
    GroupView,
    HistoryView,
    LogText,
    Resume,
    Row,
    RowPage,
    RunDetails,
    RunNote,
    RunPage,
    Stop,
    Tagging,
)
from rl_orch.core.runs.groups import fold
from rl_orch.errors import NotFound
from rl_orch.http.access import require_code
from rl_orch.http.operations import Reference, json_response, operation, router
from rl_orch.http.problems import LINE
from rl_orch.http.threads import commands, slow_reads, stops
from rl_orch.records import Run, State, Submission
from rl_orch.records.queries import LARGEST_PAGE, LONGEST_CURSOR, SORTS, Query
from rl_orch.spec import code

FARTHEST = (1 << 40) - 1
"""Larger than any file; farther than some file systems can seek."""

LONGEST_HISTORY = 20_000
"""Episodes, and evaluations, that one answer holds."""


routes = router("runs")

Limit = Annotated[int, Parameter(ge=1, le=LARGEST_PAGE)]
Cursor = Annotated[
    str | None,
    Parameter(
        description="The `next` of the page before.", max_length=LONGEST_CURSOR, pattern=LINE
    ),
]
Word = Annotated[str | None, Parameter(max_length=200, pattern=LINE)]
Sort = Annotated[
    str,
    Parameter(
        description=f"{', '.join(SORTS)}; with a leading - the largest comes first.",
        max_length=20,
        examples=["-created_at"],
    ),
]
Tags = Annotated[
    list[Annotated[str, Field(max_length=300, pattern=LINE)]],
    Parameter(description="`name=value`; may be repeated.", max_length=50),
]
Moment = Annotated[
    float | None,
    Parameter(
        description="When it was made, in seconds since the epoch.", ge=0, le=1e11, examples=[1.7e9]
    ),
]
Offset = Annotated[int, Parameter(description="A byte offset of the file.", ge=0, le=FARTHEST)]


@routes.get("/runs", **operation("listRuns", RunPage, "read"))
def list_runs(
    here: Here,
    limit: Limit = 50,
    after: Cursor = None,
    state: Annotated[list[State], Parameter(max_length=len(State))] = [],  # noqa: B006
    group: Word = None,
    queue: Word = None,
    env: Word = None,
    algo: Word = None,
    name: Word = None,
    sort: Sort = "-created_at",
    parent: Word = None,
    role: Word = None,
    tag: Tags = [],  # noqa: B006
    since: Moment = None,
    until: Moment = None,
) -> Response:
    """Runs that match all that is given, a page at a time."""
    asked = Query(limit, after, tuple(state), group, queue, env, algo, name, sort)
    asked = replace(asked, parent=parent, role=role, tags=tuple(tag), since=since, until=until)
    page = here.orchestrator.ls(asked)
    return json_response(RunPage(runs=page.runs, next=page.next))


@routes.get("/rows", **operation("listRows", RowPage, "read"))
def list_rows(
    here: Here,
    limit: Limit = 50,
    after: Cursor = None,
    env: Word = None,
    algo: Word = None,
    name: Word = None,
    tag: Tags = [],  # noqa: B006
    since: Moment = None,
    until: Moment = None,
) -> Response:
    """Runs that match all that is given, newest first, those of a group in one row if all of them
    match."""
    where = Query(env=env, algo=algo, name=name, tags=tuple(tag), since=since, until=until)
    page = here.orchestrator.rows(limit=limit, after=after, where=where)
    rows = [Row(group=fold(r) if page.is_group(r) else None, runs=r) for r in page.rows]
    return json_response(RowPage(rows=tuple(rows), next=page.next))


@routes.get("/runs/{ref}", **operation("getRun", Run, "read", 404))
def get_run(ref: Reference, here: Here) -> Response:
    """A run as it is now."""
    return json_response(here.orchestrator.get(ref))


@routes.get("/runs/{ref}/view", **operation("viewRun", RunDetails, "read", 404))
async def view_run(ref: Reference, here: Here, checkpoints: bool = True) -> Response:
    """A run with its spec, attempts, checkpoints, models and final report."""
    return await slow_reads(
        lambda: json_response(here.orchestrator.show(ref, checkpoints=checkpoints))
    )


@routes.get("/runs/{ref}/history", **operation("getHistory", HistoryView, "read", 404))
async def get_history(ref: Reference, here: Here) -> Response:
    """The episodes and evaluations of a run; of very many, as many as show the whole course."""

    def history() -> Response:
        past = here.orchestrator.history(ref)
        view = HistoryView(
            episodes=tuple(past.episodes[place] for place in spread(len(past.episodes))),
            evaluations=tuple(past.evaluations[place] for place in spread(len(past.evaluations))),
            thinned=max(len(past.episodes), len(past.evaluations)) > LONGEST_HISTORY,
        )
        return json_response(view)

    return await slow_reads(history)


@routes.get("/groups/{ref}", **operation("getGroup", GroupView, "read", 404))
def get_group(ref: Reference, here: Here) -> Response:
    """A group and its runs."""
    group = here.orchestrator.group(ref)
    if group is None:
        raise NotFound(f"no group {ref!r}", hint="GET /rows lists them.")
    runs = here.orchestrator.group_runs(group.id)
    return json_response(GroupView(group=group, runs=runs))


@routes.post("/runs/{ref}/stop", **operation("stopRun", Run, "operate", 404, 409, 413, status=202))
async def stop_run(ref: Reference, here: Here, body: Stop | None = None) -> Response:
    """Ask a run to end. It may take a while to; this does not wait for it."""
    force = body is not None and body.force
    run = await stops(lambda: here.orchestrator.ask_to_stop(ref, force=force))
    here.wake()
    return json_response(run, 202)


@routes.post(
    "/runs/{ref}/resume", **operation("resumeRun", Submission, "operate", 404, 409, 413, status=202)
)
async def resume_run(
    ref: Reference, request: Request, here: Here, body: Resume | None = None
) -> Response:
    """Queue a stopped, failed or lost run again, or all such runs of a group; with a larger budget,
    one that has succeeded or was rejected.

    Overrides that name code of their own need the scope admin.
    """
    asked = body or Resume()

    def requeue() -> Submission:
        require_code(request, code.named_by_overrides(asked.overrides))
        return here.orchestrator.requeue(ref, **asked.model_dump())

    submission = await slow_reads(requeue)
    here.wake()
    return json_response(submission, 202)


@routes.post(
    "/runs/{ref}/command", **operation("commandRun", dict[str, Any], "operate", 404, 409, 413)
)
async def command_run(ref: Reference, here: Here, body: Command) -> Response:
    """Send a command to a run that is at work, and answer what it replies."""
    reply = await commands(here.orchestrator.command, ref, body.name, body.arguments)
    return JSONResponse(reply)


@routes.patch("/runs/{ref}/tags", **operation("tagRun", Run, "operate", 404, 413))
async def tag_run(ref: Reference, here: Here, body: Tagging) -> Response:
    """Set tags of a run and remove others."""
    tag = partial(here.orchestrator.tag, ref, body.set, remove=body.remove)
    return json_response(await slow_reads(tag))


@routes.patch("/runs/{ref}/note", **operation("noteRun", Run, "operate", 404, 413))
async def note_run(ref: Reference, here: Here, body: RunNote) -> Response:
    """Note something on a run."""
    return json_response(await slow_reads(partial(here.orchestrator.note, ref, body.text)))


@routes.delete("/runs/{ref}", **operation("removeRun", Run, "admin", 404, 409))
async def remove_run(ref: Reference, here: Here) -> Response:
    """Delete a run that has ended, with its directory, checkpoints and models."""
    return await slow_reads(lambda: json_response(here.orchestrator.remove(ref)))


@routes.get("/runs/{ref}/events", **operation("getEvents", EventPage, "read", 404))
async def get_events(
    ref: Reference,
    here: Here,
    offset: Offset = 0,
    count: Annotated[int | None, Parameter(ge=1, le=100_000)] = None,
) -> Response:
    """The events after a byte offset of the event file, as far as 4 MiB and `count` go."""

    def events() -> Response:
        tail = here.orchestrator.events(ref, offset, count)
        page = EventPage(events=tail.events, offset=tail.offset, skipped=tail.skipped)
        return json_response(page)

    return await slow_reads(events)


@routes.get("/runs/{ref}/log", **operation("getLog", LogText, "read", 404))
async def get_log(ref: Reference, here: Here, offset: Offset = 0) -> Response:
    """Whole lines of the log after a byte offset, as far as 256 KiB go."""
    return await slow_reads(lambda: json_response(here.orchestrator.log(ref, offset)))


@routes.get("/runs/{ref}/checkpoints", **operation("listCheckpoints", CheckpointList, "read", 404))
async def list_checkpoints(ref: Reference, here: Here) -> Response:
    """The checkpoints of a run, each with whether it is intact."""
    view = await slow_reads(here.orchestrator.show, ref)
    return json_response(CheckpointList(checkpoints=view.checkpoints))


def spread(count: int) -> list[int]:
    """The places of as many of some entries as one answer holds, evenly from first to last."""
    stride = max(1.0, (count - 1) / (LONGEST_HISTORY - 1))
    return [round(place * stride) for place in range(min(count, LONGEST_HISTORY))]
