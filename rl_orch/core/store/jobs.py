"""The jobs of a database, and guarded writes: a job is changed by the service that has it."""

import json
from typing import Any

import sqlalchemy as sa

from rl_orch.core.store.runs import Store
from rl_orch.core.store.tables import JOBS
from rl_orch.errors import Conflict, NotFound
from rl_orch.records.jobs import Job, JobState

ACTIVE = (JobState.QUEUED, JobState.RUNNING)


class Jobs:
    """The jobs in a store's database."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, job: Job, *, key: str | None, digest: str, lease: str, home: str) -> Job:
        """Record a new job, and return it; one that was asked for with the same key is that one."""
        row = _row(job) | {"key": key, "digest": digest, "lease": lease, "home": home}
        same = sa.select(JOBS).where(JOBS.c.key == key)
        try:
            with self._store.writing() as connection:
                known = None if key is None else connection.execute(same).one_or_none()
                if known is None:
                    connection.execute(JOBS.insert().values(**row))
        except sa.exc.IntegrityError:  # Somebody was faster with the same key.
            known = next(iter(self._store.read(same)), None)
        if known is None:
            return job
        if known.digest != digest:
            raise Conflict(
                f"the key {key!r} was used for another job", hint="Use a new Idempotency-Key."
            )
        return _job(known)

    def get(self, job_id: str) -> Job:
        """The job of that id."""
        rows = self._store.read(sa.select(JOBS).where(JOBS.c.id == job_id))
        if not rows:
            raise NotFound(f"no job {job_id!r}")
        return _job(rows[0])

    def newest(self, limit: int) -> list[Job]:
        """So many jobs, the newest first."""
        query = sa.select(JOBS).order_by(JOBS.c.created_at.desc(), JOBS.c.id.desc()).limit(limit)
        return [_job(row) for row in self._store.read(query)]

    def active(self) -> list[tuple[Job, str, str]]:
        """The jobs that have yet to end, each with its lease and its home."""
        query = sa.select(JOBS).where(JOBS.c.state.in_(ACTIVE)).order_by(JOBS.c.created_at)
        return [(_job(row), row.lease, row.home) for row in self._store.read(query)]

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

    def take(self, job: Job, *, held_by: str, lease: str) -> bool:
        """Have a job that another service had, as it is then."""
        taken = JOBS.update().where(JOBS.c.id == job.id, JOBS.c.lease == held_by)
        return self._store.write(taken.values(**_row(job), lease=lease)) == 1

    def lease_of(self, job_id: str) -> str:
        """The lease of a job."""
        rows = self._store.read(sa.select(JOBS.c.lease).where(JOBS.c.id == job_id))
        return str(rows[0].lease) if rows else ""

    def remove(self, job_id: str) -> None:
        """Forget a job that has ended."""
        gone = JOBS.delete().where(JOBS.c.id == job_id, JOBS.c.state.not_in(ACTIVE))
        self._store.write(gone)


def _row(job: Job) -> dict[str, Any]:
    row = {name: getattr(job, name) for name in ("id", "state", "created_at", "ended_at")}
    return row | {"document": json.dumps(job.model_dump(mode="json"))}


def _job(row: sa.Row[Any]) -> Job:
    return Job.model_validate(json.loads(row.document))
