"""The jobs of a service: queued, carried out a few at a time, cancelled, kept, and swept.

Each is a process of its own, which ends with its service. One whose service has died is `lost`, and
says so; one that still waited is taken over by the next service of the home.
"""

import hashlib
import logging
import secrets
import shlex
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rl_orch.core import uploads
from rl_orch.core.store.jobs import Jobs, StoredJob
from rl_orch.core.verbs import Verbs
from rl_orch.errors import Conflict, NotFound, RlctlError, TooMany
from rl_orch.io import service_note
from rl_orch.io.files import private
from rl_orch.io.processes import pids
from rl_orch.io.processes.task_worker import ProgressCallback, TaskWorker
from rl_orch.io.run.directory import RunDir
from rl_orch.records.jobs import JOB_TAG, Job, JobDone, JobRequest, JobState, JobTask
from rl_orch.records.queries import LARGEST_PAGE, Query

LOG = logging.getLogger(__name__)
FOLDER = "jobs"
MOST_WAITING = 100
SAVE_EVERY_S = 1.0
SWEEP_EVERY_S = 3600.0
KEPT_S = 30 * 86400.0
LOST = "its service ended before it did; ask for it again"


class JobProcess(Protocol):
    """Execution of one job."""

    def answer(self, request: JobTask, watch: ProgressCallback) -> JobDone:
        """What came of it; raises what it was refused with."""

    def ask_to_end(self) -> None:
        """Have it ended soon, with all that it started."""


def job_process() -> JobProcess:
    """A contained process of its own."""
    return TaskWorker(JobDone, ("job",), doing="the job", hint=None)


@dataclass(slots=True)
class AtWork:
    """A job that is carried out here, its process once it has one, and whether it was cancelled."""

    job: Job
    process: JobProcess | None = None
    cancelled: bool = False


@dataclass(slots=True)
class JobQueue:
    """The jobs of a home, as one service carries them out, so many `at_once`.

    Who hands it a lease lets go of that; it is to be held until the queue is closed.
    """

    verbs: Verbs
    start: Callable[[], JobProcess] = job_process
    at_once: int = 2
    lease: str = field(default_factory=pids.lease)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _at_work: dict[str, AtWork] = field(default_factory=dict)
    _threads: list[threading.Thread] = field(default_factory=list)
    _closing: bool = False
    _sweep_at: float = 0.0

    def submit(
        self, request: JobRequest[Any], *, who: str, key: str | None = None
    ) -> tuple[Job, bool]:
        """Queue a job, durable before this returns; the same with the same key is one job.

        Returns it, and whether it was there. One that was lost is asked for again by that.
        """
        arguments = request.model_dump(mode="json", exclude=set(request.local))
        digest = hashlib.sha256(f"{request.kind} {request.model_dump_json()}".encode()).hexdigest()
        job_id, now = f"job-{secrets.token_hex(6)}", time.time()
        job = None if key is None else self._jobs.submitted(key, digest)
        if job is None:
            self._refuse_crowd()
            new = Job(id=job_id, kind=request.kind, arguments=arguments, who=who, created_at=now)
            job = self._jobs.add(
                new, key=key, digest=digest, lease=self.lease, home=str(self.verbs.home)
            )
        self._begin()
        known = self.get(job.id)
        again = self.retry(job.id, who=who) if known.state is JobState.LOST else known
        return again, job.id != job_id

    def get(self, job_id: str) -> Job:
        """A job as it really is."""
        if (working := self._at_work.get(job_id)) is not None:
            return working.job
        return self._stored(job_id).job

    def newest(self, limit: int, state: JobState | None = None) -> list[Job]:
        """So many jobs, all or those in a state, the newest first, each as it really is, but for
        its answer."""
        self.look()
        return [self._live(job) for job in self._jobs.newest(limit, state)]

    def cancel(self, job_id: str) -> Job:
        """End a job that is queued or carried out; returns it as it is then."""
        job = self.get(job_id)
        if not job.active:
            return job
        ended = _ended(job, JobState.CANCELLED, "it was cancelled")
        stored = self._stored(job_id)
        if stored.lease != self.lease:
            waits = stored.job.state is JobState.QUEUED
            if not waits or self.verbs.services.alive(stored.lease):
                raise Conflict(f"job {job_id} is carried out by another service")
            self._jobs.take(ended, was=stored, lease=self.lease, home=stored.home)
            return self.get(job_id)
        with self._changed:
            waited = self._jobs.save(ended, lease=self.lease, was=JobState.QUEUED)
            if not waited and (working := self._at_work.get(job_id)) is not None:
                working.cancelled = True
                if working.process is not None:
                    working.process.ask_to_end()
        return self.get(job_id)

    def retry(self, job_id: str, *, who: str) -> Job:
        """Queue a job again that was lost, failed or was cancelled, for whoever asks now.

        Where somebody else was first with that, it is as they have left it. It is of our home then:
        its files are made there.
        """
        stored = self._stored(job_id)
        job = self._live(stored.job)
        if job.active or job.state is JobState.SUCCEEDED:
            raise Conflict(f"job {job_id} is {job.state}; only what has not succeeded is repeated")
        again = Job(
            **job.model_dump(include={"id", "kind", "arguments", "created_at"}),
            who=who,
            reason="asked for again",
        )
        self._jobs.take(again, was=stored, lease=self.lease, home=str(self.verbs.home))
        self._begin()
        return self.get(job_id)

    def remove(self, job_id: str) -> Job:
        """Forget a job that has ended, with what it made."""
        job = self.get(job_id)
        if job.active:
            raise Conflict(f"job {job_id} is {job.state}; cancel it first")
        stored = self._jobs.get(job_id)
        self._refuse_elsewhere(stored)
        if not self._jobs.remove(job_id, home=stored.home):
            raise Conflict(f"job {job_id} was asked for again, or removed, by somebody else")
        shutil.rmtree(self.folder(job_id), ignore_errors=True)
        return job

    def files(self, job_id: str) -> Path:
        """Where the files are that a job made; there are none yet where it has not begun."""
        self._refuse_elsewhere(self._stored(job_id))
        return self.folder(job_id)

    def folder(self, job_id: str) -> Path:
        """Where the files are that a job of this home made."""
        return self.verbs.home / FOLDER / job_id

    def look(self) -> None:
        """Tell of jobs whose service has died, and take over those of this home that wait."""
        if not self.verbs.exists:
            return
        for stored in self._jobs.active():
            job, lease = stored.job, stored.lease
            if job.id in self._at_work or (
                lease != self.lease and self.verbs.services.alive(lease)
            ):
                continue
            if job.state is JobState.RUNNING:
                self._lose(stored)
            elif lease != self.lease and stored.home == str(self.verbs.home):
                self._jobs.take(job, was=stored, lease=self.lease, home=stored.home)
                self._begin()

    def tend(self) -> None:
        """Look, and sweep now and then; to be called for as long as a service lives."""
        self.look()
        if time.monotonic() >= self._sweep_at:
            self._sweep_at = time.monotonic() + SWEEP_EVERY_S
            self.sweep()

    def sweep(self) -> None:
        """Let go of jobs and uploads that are old, but for uploads that a job or a run has yet to
        read; and of what jobs made that nobody knows any more."""
        if not self.verbs.exists:
            return
        for job_id in self._jobs.ended_before(time.time() - KEPT_S, str(self.verbs.home)):
            with suppress(Conflict, NotFound):  # It is not old any more, or gone.
                self.remove(job_id)
        waiting = [stored.job.arguments for stored in self._jobs.active()]
        wanted = uploads.named_in([*waiting, *self._starts()])
        uploads.sweep(self.verbs.home, wanted=wanted)
        self._sweep_folders()

    def close(self) -> None:
        """End what is at work, and take no more."""
        with self._changed:
            self._closing = True
            for working in self._at_work.values():
                if working.process is not None:
                    working.process.ask_to_end()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _sweep_folders(self) -> None:
        """Let go of old folders whose jobs are gone. A job is known before its folder is made; and
        where the database is another one than it was, no files go that the other still tells of."""
        for folder in (self.verbs.home / FOLDER).glob("job-*"):
            with suppress(FileNotFoundError):  # Somebody else has let go of it.
                old = time.time() - folder.stat().st_mtime > KEPT_S
                if old and not self._jobs.knows(folder.name):
                    shutil.rmtree(folder, ignore_errors=True)

    def _refuse_elsewhere(self, stored: StoredJob) -> None:
        """Raise if the files of a job are those of another home, or of another machine."""
        if self._is_here(stored):
            return
        service = service_note.living(Path(stored.home))
        start = f"On its machine, `rlctl up --detach --home {shlex.quote(stored.home)}`; ask there."
        raise Conflict(
            f"job {stored.job.id} is of the home {stored.home!r}, and its files are there",
            hint=start if service is None else f"Ask the service of that home: {service.url}",
        )

    def _is_here(self, stored: StoredJob) -> bool:
        """Whether a job is of this home, under whatever path; one that was moved has its files."""
        here, there, machine = self.verbs.home, Path(stored.home), pids.holder_of(stored.lease)[0]
        has_files, is_near = self.folder(stored.job.id).is_dir(), pids.same_machine(machine)
        if there == here:
            return is_near or has_files or stored.job.started_at is None
        if is_near and there.is_dir():
            return here.is_dir() and there.samefile(here)
        return is_near and has_files

    def _starts(self) -> Iterator[dict[str, Any] | None]:
        """What the runs that have yet to end began or will begin with."""
        for run, _ in self.verbs.store.active():
            with suppress(RlctlError):  # A run without a manifest begins with nothing.
                yield RunDir.of(run).start()

    def _lose(self, stored: StoredJob) -> None:
        """End a job that is carried out no more, after the runs that it has launched.

        It is ours meanwhile: whoever looks next has it to end if we die, and until it has ended it
        cannot be asked for again, with runs that would end too.
        """
        job = stored.job
        with self._changed:
            if job.id in self._at_work or not self._reclaimed(stored):
                return
            self._at_work[job.id] = AtWork(job)
        try:
            self._end_runs(job.id)
            lost = _ended(job, JobState.LOST, LOST)
            self._jobs.save(lost, lease=self.lease, was=JobState.RUNNING)
        finally:
            with self._changed:
                del self._at_work[job.id]

    def _reclaimed(self, stored: StoredJob) -> bool:
        """Whether a job that was being carried out is ours now, and still is where it was."""
        if stored.lease != self.lease:
            return self._jobs.take(stored.job, was=stored, lease=self.lease, home=stored.home)
        # An earlier look has not brought it to its end; or it has ended while we looked.
        now = self._jobs.get(stored.job.id)
        return now.lease == self.lease and now.job.state is JobState.RUNNING

    @property
    def _jobs(self) -> Jobs:
        return Jobs(self.verbs.store)

    def _live(self, job: Job) -> Job:
        """A job as it really is, where it is carried out here."""
        working = self._at_work.get(job.id)
        return job if working is None else working.job

    def _stored(self, job_id: str) -> StoredJob:
        """A job in the database, after a look whether its service lives."""
        if not self.verbs.exists:
            raise NotFound(f"no job {job_id!r}")
        stored = self._jobs.get(job_id)
        if stored.job.active and stored.lease != self.lease:
            self.look()
            stored = self._jobs.get(job_id)
        return stored

    def _refuse_crowd(self) -> None:
        states = [stored.job.state for stored in self._jobs.active()]
        if (waiting := states.count(JobState.QUEUED)) >= MOST_WAITING:
            raise TooMany(f"{waiting} jobs wait already", hint="Try again later.")

    def _begin(self) -> None:
        """Wake the threads that carry jobs out, started with the first."""
        with self._changed:
            while len(self._threads) < self.at_once and not self._closing:
                name = f"jobs {len(self._threads)}"
                self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
                self._threads[-1].start()
            self._changed.notify_all()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                self._carry_out(job)
            except Exception:
                LOG.exception("job not brought to its end: %s", job.id)

    def _next(self) -> Job | None:
        """The next job, carried out from now on; None when there is no more to do."""
        with self._changed:
            while not self._closing:
                pause_s = None
                try:
                    if (job := self._claimed()) is not None:
                        return job
                except RlctlError as error:
                    LOG.warning("jobs not looked at: %s", error)
                    pause_s = SAVE_EVERY_S
                self._changed.wait(pause_s)
        return None

    def _claimed(self) -> Job | None:
        """The oldest of our jobs that waits, which is carried out from now on."""
        for stored in self._jobs.active():
            job, mine = stored.job, stored.lease == self.lease
            begun = job.model_copy(update={"state": JobState.RUNNING, "started_at": time.time()})
            waits = mine and job.state is JobState.QUEUED
            if waits and self._jobs.save(begun, lease=self.lease, was=job.state):
                self._at_work[job.id] = AtWork(begun)
                return begun
        return None

    def _carry_out(self, job: Job) -> None:
        task = JobTask(
            home=str(self.verbs.home),
            database=str(self.verbs.location),
            folder=str(self.folder(job.id)),
            who=job.who,
            kind=job.kind,
            arguments=job.arguments,
        )
        try:
            ended = self._answered(job, task)
            # First, for a job whose end is known can be asked for again, with runs of its own.
            if ended.state is not JobState.SUCCEEDED:
                self._end_runs(job.id)
            self._keep_end(ended)
        finally:
            with self._changed:
                del self._at_work[job.id]

    def _keep_end(self, ended: Job) -> None:
        """Save how a job has ended, however often that takes while the database is away.

        What cannot be saved whatever is tried becomes a failure that can.
        """
        while True:
            try:
                if self._saved(ended) or self._closing:
                    return
            except Exception as error:
                LOG.exception("end of a job not saved: %s", ended.id)
                problem = RlctlError(f"what came of it cannot be kept: {type(error).__name__}")
                ended = _failed(ended, problem)
                if self._closing:
                    return
            time.sleep(SAVE_EVERY_S)

    def _saved(self, job: Job) -> bool:
        """Whether the database could be told of a job."""
        try:
            self._jobs.save(job, lease=self.lease, was=JobState.RUNNING)
        except RlctlError as error:
            LOG.warning("job not saved: %s: %s", job.id, error)
            return False
        return True

    def _started(self, job_id: str) -> JobProcess | None:
        """The process of a job, unless it is not wanted any more."""
        with self._changed:
            working = self._at_work[job_id]
            if self._closing or working.cancelled:
                return None
            working.process = self.start()
            return working.process

    def _answered(self, job: Job, task: JobTask) -> Job:
        """The job at its end."""
        error: RlctlError | None = None
        try:
            shutil.rmtree(self.folder(job.id), ignore_errors=True)  # Left by an earlier attempt.
            private.own_folder(self.folder(job.id).parent)
            private.inner_folder(self.folder(job.id))
            process = self._started(job.id)
            if process is not None:
                answer = process.answer(task, self._watch(job.id)).answer
                return _ended(job, JobState.SUCCEEDED, "", answer=answer, done=1.0)
        except RlctlError as raised:
            error = raised
        except Exception as raised:
            LOG.exception("job failed: %s", job.id)
            error = RlctlError(f"{type(raised).__name__}: {raised}")
        if self._at_work[job.id].cancelled:
            return _ended(job, JobState.CANCELLED, "it was cancelled")
        if self._closing or error is None:
            return _ended(job, JobState.LOST, LOST)
        return _failed(job, error)

    def _end_runs(self, job_id: str) -> None:
        """End the runs that a job has launched: what it wanted of them, nobody gets any more."""
        try:
            runs = self.verbs.ls(Query(limit=LARGEST_PAGE, tags=(f"{JOB_TAG}={job_id}",))).runs
        except Exception as error:
            LOG.warning("runs of a job not ended: %s: %s", job_id, error)
            return
        for run in runs:
            try:
                if run.active:
                    self.verbs.ask_to_stop(run.id, force=True)
            except Exception as error:  # The others, and the job itself, end all the same.
                surprise = not isinstance(error, RlctlError)
                LOG.warning("run not ended: %s: %s", run.id, error, exc_info=surprise)

    def _watch(self, job_id: str) -> ProgressCallback:
        """Notes how far a job is; for other services now and then."""
        saved_at = time.monotonic()

        def watch(doing: str, done: float) -> None:
            nonlocal saved_at
            working = self._at_work[job_id]
            job = working.job.model_copy(update={"doing": doing, "done": done})
            working.job = job
            if time.monotonic() - saved_at >= SAVE_EVERY_S:
                saved_at = time.monotonic()
                self._saved(job)

        return watch


def _ended(job: Job, state: JobState, reason: str, **more: Any) -> Job:
    return job.model_copy(
        update={"state": state, "reason": reason, "ended_at": time.time(), **more}
    )


def _failed(job: Job, error: RlctlError) -> Job:
    return _ended(job, JobState.FAILED, error.message, answer=None, error=error.document()["error"])
