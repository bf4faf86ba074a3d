"""The jobs of a database, and guarded writes: a job is changed by the service that has it."""

import json
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from rl_orch.core.store.runs import Store
from rl_orch.core.store.tables import JOBS
from rl_orch.errors import Conflict, NotFound
from rl_orch.records.jobs import Job, JobState

ACTIVE = (JobState.QUEUED, JobState.RUNNING)


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job as the database has it: the lease of its service, and its home."""

    job: Job
    lease: str
    home: str


class Jobs:
    """The jobs in a store's database."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, job: Job, *, key: str | None, digest: str, lease: str, home: str) -> Job:
        """Record a new job, and return it; one that was asked for with the same key is that one."""
        row = _row(job) | {"key": key, "digest": digest, "lease": lease, "home": home}
        try:
            with self._store.writing() as connection:
                connection.execute(JOBS.insert().values(**row))
        except sa.exc.IntegrityError:  # Somebody was faster with the same key.
            if key is None or (earlier := self.submitted(key, digest)) is None:
                raise
            return earlier
        return job

    def submitted(self, key: str, digest: str) -> Job | None:
        """The job that was asked for with a key, if one was."""
        rows = self._store.read(sa.select(JOBS).where(JOBS.c.key == key))
        if rows and rows[0].digest != digest:
            raise Conflict(
                f"the key {key!r} was used for another job", hint="Use a new Idempotency-Key."
            )
        return _job(rows[0]) if rows else None

    def get(self, job_id: str) -> StoredJob:
        """The job of that id."""
        rows = self._store.read(sa.select(JOBS).where(JOBS.c.id == job_id))
        if not rows:
            raise NotFound(f"no job {job_id!r}", hint="`rlctl jobs` lists them.")
        return _stored(rows[0])

    def newest(self, limit: int, state: JobState | None = None) -> list[Job]:
        """So many jobs, all or those in a state, the newest first, without their answers."""
        query = (
            sa.select(JOBS.c.document)
            .order_by(JOBS.c.created_at.desc(), JOBS.c.id.desc())
            .limit(limit)
        )
        query = query if state is None else query.where(JOBS.c.state == state)
        return [_document(row.document) for row in self._store.read(query)]

    def active(self) -> list[StoredJob]:
        """The jobs that have yet to end, the oldest first."""
        query = sa.select(JOBS).where(JOBS.c.state.in_(ACTIVE)).order_by(JOBS.c.created_at)
        return [_stored(row) for row in self._store.read(query)]

    def ended_before(self, moment: float, home: str) -> list[str]:
        """The ids of a home's jobs that ended before a moment."""
        query = sa.select(JOBS.c.id).where(JOBS.c.ended_at < moment, JOBS.c.home == home)
        return [row.id for row in self._store.read(query)]

    def save(self, job: Job, *, lease: str, was: JobState) -> bool:
        """Write a job, unless another service has it, or it is in another state than it was."""
        guarded = JOBS.update().where(
            JOBS.c.id == job.id, JOBS.c.lease == lease, JOBS.c.state == was
        )
        return self._store.write(guarded.values(**_row(job))) == 1

    def take(self, job: Job, *, was: StoredJob, lease: str, home: str) -> bool:
        """Have a job, for a home, and write it, if nobody has taken it or gone on with it since."""
        taken = JOBS.update().where(
            JOBS.c.id == job.id, JOBS.c.lease == was.lease, JOBS.c.state == was.job.state
        )
        return self._store.write(taken.values(**_row(job), lease=lease, home=home)) == 1

    def knows(self, job_id: str) -> bool:
        """Whether there is a job of that id."""
        return bool(self._store.read(sa.select(JOBS.c.id).where(JOBS.c.id == job_id)))

    def remove(self, job_id: str, *, home: str) -> bool:
        """Forget a job, if it has ended and is there, of that home."""
        ended = JOBS.c.state.not_in(ACTIVE)
        gone = JOBS.delete().where(JOBS.c.id == job_id, JOBS.c.home == home, ended)
        return self._store.write(gone) == 1


def _row(job: Job) -> dict[str, Any]:
    row = {name: getattr(job, name) for name in ("id", "state", "created_at", "ended_at")}
    document = job.model_dump(mode="json", exclude={"answer"})
    answer = None if job.answer is None else json.dumps(job.answer)
    return row | {"document": json.dumps(document), "answer": answer}


def _stored(row: sa.Row[Any]) -> StoredJob:
    return StoredJob(_job(row), row.lease, row.home)


def _job(row: sa.Row[Any]) -> Job:
    answer = None if row.answer is None else json.loads(row.answer)
    return _document(row.document).model_copy(update={"answer": answer})


def _document(text: str) -> Job:
    return Job.model_validate(json.loads(text))
