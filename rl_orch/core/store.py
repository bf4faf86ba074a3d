"""The database: runs and attempts, and the guarded writes that keep two supervisors apart.

SQLite with a rollback journal: every write is one immediate transaction, durable when it returns.
"""

import difflib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from rl_orch.core.tables import ATTEMPTS, HEAD, META, MODELS, RUNS
from rl_orch.errors import BadInput, LeaseLost, NotFound, RlctlError
from rl_orch.records import Attempt, Evaluation, Run, State

BUSY_TIMEOUT_S = 30.0
SAFE_WAL = (3, 51, 3)
"""Older SQLite can corrupt a write-ahead log under many writers."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some runs, newest first, and the cursor that continues after them."""

    runs: tuple[Run, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a listing, newest first, and the cursor that continues after them.

    The runs of a group are one row, by seed; any other run is a row by itself.
    """

    rows: tuple[tuple[Run, ...], ...]
    next: str | None


class Store:
    """The runs and attempts of one home."""

    def __init__(self, path: Path) -> None:
        """Open the database, made or brought up to date where needed."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RlctlError(
                f"folder {str(path.parent)!r} cannot be made: {error.strerror}",
                hint="Set RLCTL_HOME to a folder that can be written to.",
            ) from None
        self._engine = sa.create_engine(
            sa.URL.create("sqlite", database=str(path)),
            poolclass=sa.NullPool,
            connect_args={"timeout": BUSY_TIMEOUT_S},
        )
        sa.event.listen(self._engine, "connect", _configure)
        sa.event.listen(self._engine, "begin", _begin)
        self._migrate()

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection that sees one consistent moment and blocks no writer for long."""
        with _explained(self.path), self._engine.connect() as connection:
            yield connection.execution_options(reading=True)

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction that holds the write lock from its first moment."""
        with _explained(self.path), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def holding(self, run_id: str, lease: str) -> Iterator[sa.Connection]:
        """A transaction of the run's supervisor, refused if somebody else is that by now."""
        with self.writing() as connection:
            query = sa.select(RUNS.c.lease).where(RUNS.c.id == run_id)
            if connection.execute(query).scalar_one_or_none() != lease:
                raise LeaseLost(f"run {run_id} is supervised by another process now")
            yield connection

    def add(self, run: Run, *, lease: str | None = None) -> None:
        """Record a new run."""
        with self.writing() as connection:
            connection.execute(RUNS.insert().values(**_run_row(run), lease=lease))

    def __contains__(self, run_id: str) -> bool:
        """Whether there is a run of exactly that id."""
        query = sa.select(RUNS.c.id).where(RUNS.c.id == run_id)
        with self.reading() as connection:
            return connection.execute(query).first() is not None

    def get(self, run_id: str) -> Run:
        """The run of exactly that id."""
        with self.reading() as connection:
            row = connection.execute(sa.select(RUNS).where(RUNS.c.id == run_id)).one_or_none()
        if row is None:
            raise NotFound(f"no run {run_id!r}")
        return _run(row)

    def find(self, reference: str) -> Run:
        """The run meant by an id, a unique beginning of one, a name (its newest), or `last`."""
        with self.reading() as connection:
            newest = sa.select(RUNS).order_by(RUNS.c.created_at.desc(), RUNS.c.id.desc())
            if reference == "last":
                matches = connection.execute(newest.limit(1)).all()
            else:
                matches = connection.execute(newest.where(RUNS.c.id == reference)).all() or list(
                    connection.execute(newest.where(RUNS.c.name == reference).limit(1))
                )
            if not matches:
                starts = RUNS.c.id.startswith(reference, autoescape=True)
                matches = connection.execute(newest.where(starts).limit(6)).all()
            known = [] if matches else list(connection.execute(sa.select(RUNS.c.id)).scalars())
        if len(matches) > 1:
            ids = ", ".join(row.id for row in matches[:5])
            raise BadInput(f"{reference!r} could be any of: {ids}", hint="Type more of the id.")
        if not matches:
            near = difflib.get_close_matches(reference, known, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else "`rlctl ls` lists the runs."
            raise NotFound(f"no run {reference!r} in {str(self.path)!r}", hint=hint)
        return _run(matches[0])

    def page(
        self,
        *,
        limit: int = 50,
        after: str | None = None,
        states: Sequence[State] = (),
    ) -> Page:
        """Runs, newest first, from a cursor on."""
        query = sa.select(RUNS).order_by(RUNS.c.created_at.desc(), RUNS.c.id.desc())
        if states:
            query = query.where(RUNS.c.state.in_([state.value for state in states]))
        if after is not None:
            query = query.where(sa.tuple_(RUNS.c.created_at, RUNS.c.id) < _cursor(after))
        with self.reading() as connection:
            rows = connection.execute(query.limit(limit + 1)).all()
        runs = tuple(_run(row) for row in rows[:limit])
        more = len(rows) > limit
        return Page(runs, f"{runs[-1].created_at!r}/{runs[-1].id}" if more else None)

    def rows(self, *, limit: int = 50, after: str | None = None) -> Rows:
        """Groups, each with all of its runs, and runs that are in none, from a cursor on.

        A group is as old as the first of its runs.
        """
        key = sa.func.coalesce(RUNS.c.group, RUNS.c.id)
        made = sa.func.min(RUNS.c.created_at)
        keys = sa.select(key, made).group_by(key).order_by(made.desc(), key.desc())
        if after is not None:
            keys = keys.having(sa.tuple_(made, key) < _cursor(after))
        with self.reading() as connection:
            found = connection.execute(keys.limit(limit + 1)).all()
            rows: dict[str, list[Run]] = {name: [] for name, _ in found[:limit]}
            query = sa.select(RUNS).where(key.in_(rows)).order_by(RUNS.c.seed, RUNS.c.id)
            for row in connection.execute(query):
                run = _run(row)
                rows[run.group or run.id].append(run)
        last = f"{found[limit - 1][1]!r}/{found[limit - 1][0]}" if len(found) > limit else None
        return Rows(tuple(tuple(members) for members in rows.values()), last)

    def group_runs(self, group: str) -> list[Run]:
        """The runs of a group, by seed."""
        query = sa.select(RUNS).where(RUNS.c.group == group).order_by(RUNS.c.seed, RUNS.c.id)
        with self.reading() as connection:
            return [_run(row) for row in connection.execute(query)]

    def find_group(self, reference: str) -> str | None:
        """The group meant by an id, a name whose newest run is in one, or a unique beginning.

        None where no group is meant; what is exactly the id of a run is that run.
        """
        if reference == "last":
            return None
        with self.reading() as connection:
            exact = sa.select(RUNS.c.id).where(RUNS.c.id == reference)
            if connection.execute(exact).first() is not None:
                return None
            inside = sa.select(RUNS.c.group).where(RUNS.c.group == reference)
            if connection.execute(inside).first() is not None:
                return reference
            newest = sa.select(RUNS.c.group).where(RUNS.c.name == reference)
            newest = newest.order_by(RUNS.c.created_at.desc(), RUNS.c.id.desc())
            if (named := connection.execute(newest).first()) is not None:
                group: str | None = named[0]
                return group
            key = sa.func.coalesce(RUNS.c.group, RUNS.c.id)
            starts = sa.select(key, RUNS.c.group).distinct().order_by(key)
            starts = starts.where(key.startswith(reference, autoescape=True))
            matches = {row[0]: row[1] for row in connection.execute(starts.limit(6))}
        return _only_group(reference, matches)

    def lease_of(self, run_id: str) -> str | None:
        """Who supervises the run, if anyone."""
        with self.reading() as connection:
            query = sa.select(RUNS.c.lease).where(RUNS.c.id == run_id)
            lease: str | None = connection.execute(query).scalar_one_or_none()
            return lease

    def take_lease(self, run_id: str, *, held_by: str | None, lease: str) -> bool:
        """Become the supervisor, if the lease is still what it was seen to be."""
        seen = RUNS.c.lease.is_(None) if held_by is None else RUNS.c.lease == held_by
        with self.writing() as connection:
            statement = sa.update(RUNS).where(RUNS.c.id == run_id, seen).values(lease=lease)
            return connection.execute(statement).rowcount == 1

    def save(self, run: Run, *, lease: str) -> None:
        """Write a run that this process supervises."""
        with self.holding(run.id, lease) as connection:
            statement = sa.update(RUNS).where(RUNS.c.id == run.id)
            connection.execute(statement.values(**_run_row(run)))

    def release(self, run_id: str, *, lease: str) -> None:
        """Give the lease back."""
        held = sa.update(RUNS).where(RUNS.c.id == run_id, RUNS.c.lease == lease)
        with self.writing() as connection:
            connection.execute(held.values(lease=None))

    def remove(self, run_id: str) -> None:
        """Forget a run and its attempts."""
        with self.writing() as connection:
            connection.execute(RUNS.delete().where(RUNS.c.id == run_id))

    def put_attempt(self, attempt: Attempt, *, lease: str) -> None:
        """Record an attempt at a run that this process supervises, or what has become of it."""
        values = attempt.model_dump()
        with self.holding(attempt.run_id, lease) as connection:
            found = sa.and_(
                ATTEMPTS.c.run_id == attempt.run_id, ATTEMPTS.c.number == attempt.number
            )
            if connection.execute(sa.update(ATTEMPTS).where(found).values(**values)).rowcount == 0:
                connection.execute(ATTEMPTS.insert().values(**values))

    def attempts(self, run_id: str) -> list[Attempt]:
        """The attempts at a run, oldest first."""
        with self.reading() as connection:
            query = sa.select(ATTEMPTS).where(ATTEMPTS.c.run_id == run_id)
            rows = connection.execute(query.order_by(ATTEMPTS.c.number))
            return [Attempt.model_validate(dict(row._mapping)) for row in rows]

    def relocate(self, home: Path) -> None:
        """Follow a home that was moved or copied: paths inside the old one are inside this one."""
        with self.reading() as connection:
            known = connection.execute(sa.select(META.c.value).where(META.c.key == "home"))
            old: str | None = known.scalar_one_or_none()
        if old == str(home):
            return
        with self.writing() as connection:
            connection.execute(META.delete().where(META.c.key == "home"))
            connection.execute(META.insert().values(key="home", value=str(home)))
            for column in (RUNS.c.path, MODELS.c.model_path) if old is not None else ():
                inside = column.startswith(f"{old}/", autoescape=True)
                moved = sa.literal(str(home)) + sa.func.substr(column, len(old or "") + 1)
                connection.execute(sa.update(column.table).where(inside).values({column: moved}))

    def _migrate(self) -> None:
        with _explained(self.path), self._engine.connect() as connection:
            connection = connection.execution_options(reading=True)
            known = sa.inspect(connection).has_table("alembic_version")
            query = sa.text("SELECT version_num FROM alembic_version")
            version = connection.execute(query).scalar_one_or_none() if known else None
        if version == HEAD:
            return
        if version is not None and version > HEAD:
            raise BadInput(
                f"database {str(self.path)!r} is at schema {version}, this rlctl knows {HEAD}",
                hint="Use the newer rlctl that wrote it.",
            )
        # Alembic takes half a second to load and is needed once per database.
        from alembic import command
        from alembic.config import Config

        config = Config()
        config.set_main_option("script_location", "rl_orch.core:migrations")
        with self.writing() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")


def _configure(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None
    journal = "WAL" if sqlite3.sqlite_version_info >= SAFE_WAL else "DELETE"
    for pragma in (f"journal_mode={journal}", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin(connection: sa.Connection) -> None:
    reading = connection.get_execution_options().get("reading", False)
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what SQLite says into a sentence with the file in it."""
    try:
        yield
    except (sa.exc.OperationalError, sa.exc.DatabaseError) as error:
        if isinstance(error, sa.exc.IntegrityError):
            raise
        raise RlctlError(
            f"database {str(path)!r}: {error.orig}",
            hint="Check that the disk has space and that the file is a writable rlctl database.",
        ) from error


def _run_row(run: Run) -> dict[str, Any]:
    row = run.model_dump(mode="json")
    row["eval"] = None if run.eval is None else run.eval.model_dump_json()
    return row


def _run(row: sa.Row[Any]) -> Run:
    values = {column.key: row._mapping[column] for column in RUNS.c}
    if values["eval"] is not None:
        values["eval"] = Evaluation.model_validate(json.loads(values["eval"]))
    return Run.model_validate(values)


def _only_group(reference: str, matches: Mapping[str, str | None]) -> str | None:
    """The group among the rows that begin so (id → group), if there is no other."""
    groups = [group for group in matches.values() if group is not None]
    if groups and len(matches) > 1:
        ids = ", ".join(list(matches)[:5])
        raise BadInput(f"{reference!r} could be any of: {ids}", hint="Type more of the id.")
    return groups[0] if groups else None


def _cursor(text: str) -> sa.Tuple:
    created_at, _, run_id = text.partition("/")
    try:
        return sa.tuple_(sa.literal(float(created_at)), sa.literal(run_id))
    except ValueError:
        raise BadInput(
            f"cursor {text!r} is not one of ours", hint="Use the `next` of the page before."
        ) from None
