"""Jobs over HTTP: what is local is sent, the job followed to its end, what it made brought here."""

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rl_orch.client.link import HttpLink
from rl_orch.errors import BadInput, RlctlError, Unavailable, error_of
from rl_orch.io.files import archives
from rl_orch.io.policies import bundles
from rl_orch.io.policies.requests import refuse_in_the_way
from rl_orch.io.processes.task_worker import ProgressCallback, unwatched
from rl_orch.records import jobs
from rl_orch.records.jobs import JOBS, Job, JobAnswer, JobRequest, JobState

OUT = "out"
GONE_FOR_S = 60.0
"""For how long a job is asked after at a service that does not answer."""

TRY_EVERY_S = 0.5


class RemoteJobs:
    """The jobs of a service."""

    def __init__(self, link: HttpLink) -> None:
        self._link = link

    def carry_out(self, request: JobRequest[JobAnswer], watch: ProgressCallback) -> JobAnswer:
        """What a request is answered with; when this is interrupted, the job is cancelled."""
        if request.out is not None:
            _refuse_in_the_way(request, Path(request.out))
        job = self.submit(request)
        try:
            job = self.follow(job.id, watch)
        except KeyboardInterrupt:
            with suppress(RlctlError):
                self.cancel(job.id)
            raise
        if job.state is not JobState.SUCCEEDED:
            raise _failure(job)
        document: Any = job.answer
        if request.out is not None:
            out = Path(os.path.abspath(request.out))
            if isinstance(request, jobs.ExportJob) and out.is_dir():
                shutil.rmtree(out)  # It is to be replaced, or `submit` would have been refused.
            document = self._fetched(job, out)
        answer: Any = request.answers.model_validate(document)
        return answer  # type: ignore[no-any-return]

    def ask(self, kind: str, *, model: int, **arguments: Any) -> Any:
        """The answer to a job about a model."""
        request = JOBS[kind].model_validate({"model": str(model), **arguments})
        return self.carry_out(request, unwatched)

    def submit(self, request: JobRequest[Any], *, key: str | None = None) -> Job:
        """Queue a request as a job, after what it names of this machine was sent."""
        changes: dict[str, str] = {}
        for name in (*request.policies, *request.files):
            word = getattr(request, name)
            if word is not None and (name in request.files or _is_local(word)):
                changes[name] = self.upload(Path(word))
        if request.out is not None:
            changes[OUT] = f"{OUT}{Path(request.out).suffix}"
        arguments = request.model_copy(update=changes).model_dump(mode="json", exclude_none=True)
        body = {"kind": request.kind, "arguments": arguments}
        return Job.model_validate(self._link.post("/jobs", body, key=key or str(uuid.uuid4())))

    def get(self, job_id: str) -> Job:
        """A job as it really is."""
        return Job.model_validate(self._link.get(f"/jobs/{quote(job_id, safe='')}"))

    def cancel(self, job_id: str) -> Job:
        """End a job."""
        return Job.model_validate(self._link.post(f"/jobs/{quote(job_id, safe='')}/cancel", {}))

    def retry(self, job_id: str) -> Job:
        """Queue a job again that was lost, failed or was cancelled."""
        return Job.model_validate(self._link.post(f"/jobs/{quote(job_id, safe='')}/retry", {}))

    def follow(self, job_id: str, watch: ProgressCallback) -> Job:
        """A job at its end; `watch` is told how far it is until then.

        It goes on though the service cannot be reached for a while.
        """
        heard_at = time.monotonic()
        while True:
            try:
                for job in self._told(job_id):
                    heard_at = time.monotonic()
                    if not job.active:
                        return job
                    watch(job.doing or "waiting", job.done)
            except Unavailable as error:
                if time.monotonic() - heard_at > GONE_FOR_S:
                    hint = f"The job may go on: GET /jobs/{job_id} says what became of it."
                    raise Unavailable(error.message, hint=hint) from None
            time.sleep(TRY_EVERY_S)

    def upload(self, path: Path) -> str:
        """Send a file or folder, and return the word that names it."""
        with tempfile.TemporaryFile() as archive:
            archives.pack(Path(os.path.abspath(path)), archive)
            size = archive.tell()
            archive.seek(0)
            return str(self._link.send("/uploads", archive, size)["upload"])

    def _told(self, job_id: str) -> Iterator[Job]:
        """A job whenever it is further."""
        for event, data in self._link.stream(f"/jobs/{quote(job_id, safe='')}/events"):
            if event in ("progress", "end"):
                yield Job.model_validate_json(data)

    def _fetched(self, job: Job, out: Path) -> Any:
        """The answer of a job whose files were brought here, with the paths that they have here."""
        root, name = f"/jobs/{job.id}/artifacts", str(job.arguments["out"])
        for artifact in self._link.get(root)["artifacts"]:
            first, *rest = artifact["path"].split("/")
            if first == name and ".." not in rest:
                target = out.joinpath(*rest)
                target.parent.mkdir(parents=True, exist_ok=True)
                self._link.fetch(f"{root}/{quote(artifact['path'])}", target)
        return _moved(job.answer, f"/{job.id}/{name}", str(out))


def _refuse_in_the_way(request: JobRequest[Any], out: Path) -> None:
    """Raise if what a job makes would take the place of something here, as it would there."""
    if isinstance(request, jobs.ExportJob):
        refuse_in_the_way(out, request.format, replace=request.replace)
    if isinstance(request, jobs.EvaluateJob) and (out / "evals").exists():
        raise BadInput(
            f"there are evaluations in {str(out)!r} already",
            path=str(out),
            hint="Name another folder with --out.",
        )


def _is_local(word: str) -> bool:
    """Whether a word is the path of a bundle on this machine."""
    path = Path(word)
    try:
        if bundles.is_bundle(path):
            return True
        there = word.startswith(("/", "./", "../", "~")) or (os.sep in word and path.exists())
    except OSError:
        return False
    if there:
        raise BadInput(
            f"{word!r} is no bundle, and only bundles can be sent to a service",
            path=word,
            hint="`rlctl export` makes one of a checkpoint; `rlctl import-run` sends a whole run.",
        )
    return False


def _moved(document: Any, there: str, here: str) -> Any:
    """A document whose paths in the folder of a job are those of a folder here."""
    if isinstance(document, dict):
        return {name: _moved(value, there, here) for name, value in document.items()}
    if isinstance(document, list):
        return [_moved(value, there, here) for value in document]
    if isinstance(document, str) and there in document:
        return here + document.partition(there)[2]
    return document


def _failure(job: Job) -> RlctlError:
    if job.error is not None:
        return error_of(**job.error)
    return RlctlError(
        f"job {job.id} was {job.state}: {job.reason}", hint=f"POST /jobs/{job.id}/retry"
    )
