"""Jobs over HTTP: what is local is sent, the job followed to its end, what it made brought here."""

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rl_orch.client.link import HttpLink
from rl_orch.core.policies import evaluation
from rl_orch.core.registry import references
from rl_orch.errors import BadInput, RlctlError, TooMany, Unavailable, error_of
from rl_orch.io.files import archives, sealed
from rl_orch.io.policies import bundles
from rl_orch.io.policies.requests import refuse_in_the_way
from rl_orch.io.processes.task_worker import ProgressCallback, unwatched
from rl_orch.io.run.directory import RunDir
from rl_orch.records import jobs
from rl_orch.records.jobs import Job, JobAnswer, JobRequest, JobState, request_of
from rl_orch.spec import code
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve

OUT = "out"
GONE_FOR_S = 60.0
"""For how long a job is asked after at a service that does not answer."""

TRY_EVERY_S = 0.5


class RemoteJobs:
    """The jobs of a service."""

    def __init__(
        self,
        link: HttpLink,
        tell: Callable[[Job], None] | None = None,
        module_path: Sequence[str] = (),
    ) -> None:
        """`tell` hears of each job that somebody here waits for: that it is queued, or cancelled
        because they no longer do. `module_path` is sent with specs that name modules."""
        self._module_path = tuple(module_path)
        self._link, self._tell = link, tell or (lambda _job: None)

    def carry_out(self, request: JobRequest[JobAnswer], watch: ProgressCallback) -> JobAnswer:
        """What a request is answered with; when this is interrupted, the job is cancelled."""
        job = self.submit(request)
        self._tell(job)
        try:
            return self.collect(request, job.id, watch)
        except KeyboardInterrupt:
            with suppress(RlctlError):
                job = self.cancel(job.id)
                ending = {"state": JobState.CANCELLED} if job.active else {}
                job = job.model_copy(update=ending)
            self._tell(job)  # That it goes on, if it could not be cancelled.
            raise

    def collect(
        self, request: JobRequest[JobAnswer], job_id: str, watch: ProgressCallback = unwatched
    ) -> JobAnswer:
        """What a request is answered with that was submitted, once its job has ended; and what it
        made, where `out` says."""
        job = self.follow(job_id, watch)
        if job.state is not JobState.SUCCEEDED:
            raise _failure(job)
        document: Any = job.answer
        if request.out is not None:
            document = self._brought(request, request.out, job)
        answer: Any = request.answers.model_validate(document)
        return answer  # type: ignore[no-any-return]

    def _brought(self, request: JobRequest[Any], path: str, job: Job) -> Any:
        """The answer of a job whose files are here now, at a path."""
        hint = (
            f"Job {job.id} has succeeded: `rlctl jobs show {job.id} --out FOLDER` brings its files."
        )
        name, target = Path(job.arguments[OUT]).name, Path(os.path.abspath(path))
        with _saying(hint), _beside(target, name) as (made, out):
            self.fetch(job.id, made.parent)
            document: Any = _moved(job.answer, f"/{job.id}/{name}", str(out))
            if isinstance(request, jobs.EvaluateJob):
                return document | {"files": _merged(made, out, document["files"])}
            _swap(made, out)
            return document

    def ask(self, kind: str, *, model: int, **arguments: Any) -> Any:
        """The answer to a job about a model."""
        return self.carry_out(request_of(kind, {"model": str(model), **arguments}), unwatched)

    def submit(self, request: JobRequest[Any], *, key: str | None = None) -> Job:
        """Queue a request as a job, after what it names of this machine was sent."""
        if isinstance(request, jobs.ExportJob) and request.out is not None:
            refuse_in_the_way(Path(request.out), request.format, replace=request.replace)
        if request.out is not None:
            _refuse_unwritable(request, Path(os.path.abspath(request.out)))
        changes: dict[str, Any] = {}
        document: dict[str, Any] = getattr(request, "spec", None) or {}
        if _is_local((document.get("start") or {}).get("from")):
            changes["spec"] = self.begun_there(resolve(document)).model_dump(mode="json")
        if (
            self._module_path
            and document
            and any(each.module for each in code.named_by(resolve(document)))
        ):
            changes["module_path"] = self._module_path
        for name in (*request.policies, *request.files):
            word = getattr(request, name)
            if _is_local(word) if name in request.policies else word is not None:
                changes[name] = self.upload(Path(word))
        if request.out is not None:
            changes[OUT] = f"{OUT}{Path(request.out).suffix}"
        arguments = request.model_copy(update=changes).model_dump(mode="json", exclude_none=True)
        body = {"kind": request.kind, "arguments": arguments}
        try:
            answer = self._link.post("/jobs", body, key=key or str(uuid.uuid4()))
        except Unavailable as error:
            with _saying("If the job was queued all the same, `rlctl jobs ls` lists it."):
                raise error from None
        return Job.model_validate(answer)

    def ls(self, *, limit: int = 50, state: JobState | None = None) -> tuple[Job, ...]:
        """Jobs, the newest first, without their answers."""
        answer = self._link.get("/jobs", {"limit": limit, "state": state})
        return tuple(Job.model_validate(row) for row in answer["jobs"])

    def get(self, job_id: str) -> Job:
        """A job as it really is."""
        return Job.model_validate(self._link.get(f"/jobs/{quote(job_id, safe='')}"))

    def cancel(self, job_id: str) -> Job:
        """End a job."""
        return Job.model_validate(self._link.post(f"/jobs/{quote(job_id, safe='')}/cancel", {}))

    def retry(self, job_id: str) -> Job:
        """Queue a job again that was lost, failed or was cancelled."""
        return Job.model_validate(self._link.post(f"/jobs/{quote(job_id, safe='')}/retry", {}))

    def follow(self, job_id: str, watch: ProgressCallback = unwatched) -> Job:
        """A job at its end; `watch` is told how far it is until then.

        It goes on though the service cannot be reached for a while, which begins when it first is
        not: how long a job has had no news before that says nothing.
        """
        gone_at: float | None = None
        with _saying(
            f"Job {job_id} may go on: `rlctl jobs wait {job_id}` follows it, "
            f"`rlctl jobs cancel {job_id}` ends it."
        ):
            while True:
                try:
                    for job in self._told(job_id):
                        gone_at = None
                        if not job.active:
                            return job
                        watch(job.doing or "waiting", job.done)
                    gone_at = None
                except (Unavailable, TooMany):
                    now = time.monotonic()
                    gone_at = now if gone_at is None else gone_at
                    if now - gone_at > GONE_FOR_S:
                        raise
                time.sleep(TRY_EVERY_S)

    def upload(self, path: Path) -> str:
        """Send a file or folder, and return the word that names it."""
        with tempfile.TemporaryFile() as archive:
            archives.pack(Path(os.path.abspath(path)), archive)
            size = archive.tell()
            archive.seek(0)
            return str(self._link.send("/uploads", archive, size)["upload"])

    def sent(self, word: str) -> str:
        """A word that the service understands: a bundle of this machine becomes an upload."""
        if bundles.is_bundle(Path(word)):
            return self.upload(Path(word))
        references.refuse_file(word)
        return word

    def begun_there(self, spec: Spec) -> Spec:
        """The spec as the service understands it: a bundle that it begins with becomes an upload,
        and is pinned."""
        if (word := spec.start.source) is None or (sent := self.sent(word)) == word:
            return spec
        digest = spec.start.digest or sealed.manifest_digest(Path(word))
        return spec.changed({"start.from": sent, "start.digest": digest})

    def _told(self, job_id: str) -> Iterator[Job]:
        """A job whenever it is further."""
        for event, data in self._link.stream(f"/jobs/{quote(job_id, safe='')}/events"):
            if event in ("progress", "end"):
                yield Job.model_validate_json(data)

    def fetch(self, job_id: str, folder: Path) -> list[Path]:
        """Bring the files that a job made into a folder here; where they are then."""
        root, targets = f"/jobs/{quote(job_id, safe='')}/artifacts", []
        for artifact in self._link.get(root)["artifacts"]:
            parts = artifact["path"].split("/")
            if ".." not in parts:
                targets.append(folder.joinpath(*parts))
                targets[-1].parent.mkdir(parents=True, exist_ok=True)
                self._link.fetch(f"{root}/{quote(artifact['path'])}", targets[-1])
        return targets


@contextmanager
def _saying(hint: str) -> Iterator[None]:
    """Whatever goes wrong says this besides."""
    try:
        yield
    except RlctlError as error:
        error.hint = hint if error.hint is None else f"{error.hint} {hint}"
        error.add_note(hint)
        raise


def _refuse_unwritable(request: JobRequest[Any], out: Path) -> None:
    """Raise if what a job makes could not be put at a path, before there is a job."""
    if isinstance(request, jobs.EvaluateJob):
        if out.exists() and not out.is_dir():
            raise BadInput(f"{str(out)!r} is a file; must be a folder", path=OUT)
    elif not isinstance(request, jobs.ExportJob) and out.is_dir():
        raise BadInput(f"{str(out)!r} is a folder; must be a file", path=OUT)
    with _beside(out, OUT):
        pass


@contextmanager
def _beside(out: Path, name: str) -> Iterator[tuple[Path, Path]]:
    """A place beside a path for what is to be there, which is gone in the end; and the path."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as scratch:
            yield Path(scratch) / name, out
    except OSError as error:
        raise RlctlError(f"{str(out)!r} cannot be written: {error.strerror}") from None


def _swap(made: Path, out: Path) -> None:
    """Put what was made in the place of what is there, which goes only then.

    A folder that is replaced waits outside of what is gone in the end: whatever fails or is
    interrupted, it is either back or still there.
    """
    if not made.exists():
        raise RlctlError(f"the job has made nothing for {str(out)!r}")
    if not out.is_dir():
        made.replace(out)
        return
    before = made.parent.with_name(f"{made.parent.name}-before")
    out.rename(before)
    try:
        made.replace(out)
    except BaseException:
        before.rename(out)
        raise
    if before.is_symlink():
        before.unlink()
    else:
        shutil.rmtree(before, ignore_errors=True)


def _merged(made: Path, out: Path, files: dict[str, str]) -> dict[str, str]:
    """Move an evaluation that was made elsewhere to the next free name in a folder."""
    with evaluation.new_files(RunDir(out)) as (_, places):
        for kind, path in files.items():
            (made / Path(path).relative_to(out)).replace(places[kind])
    return {kind: str(places[kind]) for kind in files}


def _is_local(word: str | None) -> bool:
    """Whether a word is the path of a bundle on this machine."""
    if word is None:
        return False
    path = Path(word)
    try:
        if bundles.is_bundle(path):
            return True
        references.refuse_file(word)
        there = references.is_path(word) or (os.sep in word and path.exists())
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
        f"job {job.id} was {job.state}: {job.reason}", hint=f"rlctl jobs retry {job.id}"
    )
