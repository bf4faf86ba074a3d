"""Jobs: requests that outlive the connection they came by, and uploads that they are about."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from anyio import to_thread
from fastapi import Header, Query, Request, Response
from fastapi import Path as Segment

from rl_orch.api.parts import Here, Parts
from rl_orch.api.routes.artifacts import IfNoneMatch, IfRange, Range, file_operation, listing, sent
from rl_orch.api.routes.experiments import IdempotencyKey, consent_needed
from rl_orch.api.routes.models import who
from rl_orch.api.routes.streams import RETRY, STILL_HERE, counted, frame, stream_operation
from rl_orch.api.schemas import ArtifactList, JobList, NewJob, Upload
from rl_orch.core import uploads
from rl_orch.core.jobs.kinds import named_code, refuse_paths, spec_of
from rl_orch.errors import BadInput, TooLarge
from rl_orch.http.access import require, require_code, require_owner
from rl_orch.http.operations import json_response, operation, router
from rl_orch.http.threads import ThreadLimiter, slow_reads
from rl_orch.io.files import private
from rl_orch.records.jobs import Job, JobRequest, JobState, VerifyResumeJob, request_of
from rl_orch.spec import consent
from rl_orch.spec.code import NamedCode
from rl_orch.spec.model import Spec

routes = router("jobs")
UPLOADS_AT_ONCE = 4
_uploading = ThreadLimiter(UPLOADS_AT_ONCE)
JobId = Annotated[str, Segment(pattern=r"^job-[0-9a-f]{12}$", examples=["job-0123456789ab"])]
AGAIN = {"model": Job, "description": "It was asked for before, with the same key"}


@routes.post(
    "/jobs",
    **operation("submitJob", Job, "operate", 404, 409, 413, status=202, also={200: AGAIN}),
)
async def submit_job(
    body: NewJob, request: Request, here: Here, idempotency_key: IdempotencyKey = None
) -> Response:
    """Queue a job of some kind: evaluate, export, validate, promote, profile, infer, film, doctor,
    import_run, import_policy or verify_resume. Durable when answered.

    Policies are named as in the home, or are uploads; paths of the service's machine are refused.
    Imports need the scope admin; code of the caller's choosing does, as for experiments.
    """
    asked = request_of(body.kind, body.arguments)
    spec = await _permitted(asked, request, here)
    if isinstance(asked, VerifyResumeJob) and spec is not None:
        _refuse_unagreed(asked, spec)
    job, repeated = await to_thread.run_sync(
        lambda: here.jobs.submit(asked, who=who(request), key=idempotency_key)
    )
    return json_response(job, 200 if repeated else 202)


@routes.get("/jobs", **operation("listJobs", JobList, "read"))
def list_jobs(
    here: Here,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    state: JobState | None = None,
) -> Response:
    """The newest jobs, all or those in a state, without their answers."""
    jobs = here.jobs.newest(limit, state) if here.orchestrator.exists else []
    return json_response(JobList(jobs=tuple(jobs)))


@routes.get("/jobs/{id}", **operation("getJob", Job, "read", 404))
def get_job(id: JobId, here: Here) -> Response:
    """A job: its state, how far it is, and its answer or error."""
    return json_response(here.jobs.get(id))


@routes.post("/jobs/{id}/cancel", **operation("cancelJob", Job, "operate", 404, 409))
def cancel_job(id: JobId, here: Here) -> Response:
    """End a job, with every process that it has started. One that has ended stays as it is."""
    return json_response(here.jobs.cancel(id))


@routes.post("/jobs/{id}/retry", **operation("retryJob", Job, "operate", 404, 409, status=202))
async def retry_job(id: JobId, request: Request, here: Here) -> Response:
    """Queue a job again that was lost, failed or was cancelled."""
    job = await to_thread.run_sync(here.jobs.get, id)
    await _permitted(request_of(job.kind, job.arguments), request, here)
    again = await to_thread.run_sync(lambda: here.jobs.retry(id, who=who(request)))
    return json_response(again, 202)


@routes.delete("/jobs/{id}", **operation("removeJob", Job, "admin", 404, 409))
def remove_job(id: JobId, here: Here) -> Response:
    """Forget a job that has ended, with what it made."""
    return json_response(here.jobs.remove(id))


@routes.get("/jobs/{id}/artifacts", **operation("listJobArtifacts", ArtifactList, "read", 404, 409))
async def list_job_artifacts(id: JobId, here: Here) -> Response:
    """The files that a job made."""
    folder = await slow_reads(here.jobs.files, id)
    nothing = ArtifactList(artifacts=[])  # It has yet to begin.
    return await slow_reads(lambda: json_response(listing(folder) if folder.is_dir() else nothing))


@routes.get("/jobs/{id}/artifacts/{path:path}", **file_operation("getJobArtifact", 409))
async def get_job_artifact(
    id: JobId,
    here: Here,
    path: Annotated[str, Segment(max_length=1000, examples=["policy.onnx"])],
    range: Range = None,
    if_range: IfRange = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """One file that a job made, or a single range of its bytes."""
    folder = await slow_reads(here.jobs.files, id)
    return await sent(folder, path, range, if_range, if_none_match)


@routes.get(
    "/jobs/{id}/events",
    **stream_operation("streamJob", "`event` is `progress`, at the end `end`; `data` is a Job."),
)
async def stream_job(id: JobId, request: Request, here: Here) -> Response:
    """Follow a job: `progress` whenever it is further, at last `end`; `data` is a Job."""
    await to_thread.run_sync(here.jobs.get, id)
    return counted(_told(id, request, here), request, here)


@routes.post("/uploads", **operation("upload", Upload, "operate", 413, 503, status=201))
async def upload(
    request: Request,
    here: Here,
    content_length: Annotated[int | None, Header(ge=0)] = None,
) -> Response:
    """A file or folder for a job, as a tar archive (ustar) of one entry; kept for a week.

    The header Content-Length says how large it is; what is too large, or finds no room on the disk
    beside other uploads under way, is refused before a byte is written. Links, devices and paths
    that lead out of it are refused.
    """
    most, home = here.settings.max_upload_bytes, here.orchestrator.home
    if content_length is None:
        raise BadInput("an upload says how large it is", path="Content-Length")
    if content_length > most:
        raise TooLarge(f"the upload has {content_length:,} bytes; at most {most:,} are taken")
    upload_id, path = await _uploading(here.upload_room.reserve, content_length)
    try:
        with uploads.told_of_full_disk():
            with open(path, "xb", opener=private.inner_file) as file:
                await _written(request, file, content_length)
            word = await _uploading(uploads.unpack, home, upload_id)
    except BaseException:
        uploads.discard(home, upload_id)
        raise
    finally:
        here.upload_room.give_back(upload_id)
    return json_response(Upload(upload=word), 201)


async def _permitted(asked: JobRequest[Any], request: Request, here: Parts) -> Spec | None:
    """The spec of a request, if it has one; refused unless the caller may ask for all of it."""
    require(request, asked.needs)
    spec, named = await slow_reads(_examined, here.orchestrator.home, asked)
    require_code(request, named)
    require_owner(request, getattr(asked, "module_path", ()))
    return spec


def _examined(home: Path, asked: JobRequest[Any]) -> tuple[Spec | None, list[NamedCode]]:
    """The spec of a request, resolved once, and the code that it names; paths are refused."""
    spec = spec_of(asked) if getattr(asked, "spec", None) is not None else None
    refuse_paths(asked, spec)
    return spec, named_code(home, asked, spec)


def _refuse_unagreed(asked: VerifyResumeJob, spec: Spec) -> None:
    if consent.is_needed(spec) and not asked.consent:
        raise consent_needed(spec)


async def _told(job_id: str, request: Request, here: Parts) -> AsyncIterator[bytes]:
    timer, told, number = asyncio.get_running_loop().time, "", 0
    said_at = asked_at = timer()
    yield RETRY
    while not here.hub.closing:
        job = await to_thread.run_sync(here.jobs.get, job_id)
        news = job.model_copy(update={"answer": None}).model_dump_json()
        if news != told or not job.active:
            told, said_at, number = news, timer(), number + 1
            yield frame(number, "progress" if job.active else "end", job)
        if not job.active:
            return
        if timer() - said_at >= here.settings.keep_alive_s:
            said_at = timer()
            yield STILL_HERE
        if timer() - asked_at >= here.settings.keep_alive_s:
            asked_at = timer()
            if not await request.state.still_welcome():
                return
        await asyncio.sleep(here.settings.poll_s)


async def _written(request: Request, file: BinaryIO, size: int) -> None:
    """Write a body of just so many bytes."""
    async for chunk in request.stream():
        size -= len(chunk)
        if size < 0:
            break
        await _uploading(file.write, chunk)
    if size != 0:
        raise BadInput("the upload has another size than its Content-Length", path="Content-Length")
