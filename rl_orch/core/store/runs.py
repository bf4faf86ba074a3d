"""The runs and their attempts, and the guarded writes that keep two supervisors apart.

The same statements for SQLite and PostgreSQL; `database.py` knows the difference.
"""

import difflib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from rl_orch.core.store.database import Database, Lock
from rl_orch.core.store.schema_upgrade import migrate
from rl_orch.core.store.tables import (
    ACTIVE,
    ATTEMPTS,
    JOBS,
    META,
    MODELS,
    RUNS,
    SUBMISSIONS,
    VERDICTS,
)
from rl_orch.errors import Ambiguous, Conflict, LeaseLost, NotFound
from rl_orch.records import Attempt, Run, queries
from rl_orch.records.queries import NEWEST, Page, Query, QueryRows
from rl_orch.spec.groups import LAST
from rl_orch.spec.tags import pair, validated

COLUMNS = tuple(column.key for column in RUNS.c)
LEASE = COLUMNS.index("lease")


NEAR = 200
"""How many of the newest runs a mistyped id is compared with."""


def nothing() -> None:
    """Done where nothing is to be done."""


class Store(Database):
    """A database of runs: the path of a SQLite file, or a `postgresql://` URL."""

    def __init__(self, location: Path | str) -> None:
        """Open the database, made or brought up to date where needed."""
        super().__init__(location)
        migrate(self)

    @contextmanager
    def holding(self, run_id: str, lease: str) -> Iterator[sa.Connection]:
        """A transaction of the run's supervisor, refused if somebody else is that by now.

        Nobody becomes that before it has ended.
        """
        with self.writing() as connection:
            query = sa.select(RUNS.c.lease).where(RUNS.c.id == run_id).with_for_update()
            if connection.execute(query).scalar_one_or_none() != lease:
                raise LeaseLost(f"run {run_id} is supervised by another process now")
            yield connection

    def add(
        self, run: Run, *, lease: str | None = None, ready: Callable[[], None] = nothing
    ) -> None:
        """Record a new run. `ready` is as for `submit`."""
        with self.writing() as connection:
            connection.execute(RUNS.insert().values(**_run_row(run), lease=lease))
            ready()

    def submit(
        self,
        runs: Sequence[Run],
        *,
        key: str | None,
        digest: str,
        lease: str | None = None,
        ready: Callable[[], None] = nothing,
    ) -> list[str]:
        """Record new runs, at least one, as the last to arrive, all or none; returns their ids.

        A key that was used for the same digest gives the ids of then, and no run is added. `ready`
        is called when nothing but the commit is left; if it raises, there are no new runs. It must
        not write to this store.
        """
        with self.writing(Lock.ARRIVE) as connection:
            earlier = None if key is None else _submitted(connection, key, digest)
            if earlier is not None:
                return earlier
            ids = [run.id for run in runs]
            first = _next_arrival(connection)
            rows = [
                _run_row(run) | {"arrival": place, "lease": lease}
                for place, run in enumerate(runs, start=first)
            ]
            connection.execute(RUNS.insert(), rows)
            if key is not None:
                asked = {"key": key, "digest": digest, "created_at": runs[0].created_at}
                connection.execute(SUBMISSIONS.insert().values(**asked, runs=json.dumps(ids)))
            ready()
        return ids

    def await_arrivals(self) -> None:
        """Wait until every submission that had begun by now is recorded, or is not to be."""
        with self.writing(Lock.ARRIVE):
            pass

    def submitted(self, key: str, digest: str) -> list[str] | None:
        """Ids of the runs that a key was used for; None if it is new."""
        with self.reading() as connection:
            return _submitted(connection, key, digest)

    def __contains__(self, run_id: str) -> bool:
        """Whether there is a run of exactly that id."""
        return bool(self.read(sa.select(RUNS.c.id).where(RUNS.c.id == run_id)))

    def get(self, run_id: str) -> Run:
        """The run of exactly that id."""
        with self.reading() as connection:
            row = connection.execute(sa.select(RUNS).where(RUNS.c.id == run_id)).one_or_none()
        if row is None:
            raise NotFound(f"no run {run_id!r}")
        return _run(row)

    def find(self, reference: str) -> Run:
        """The run meant by a reference: an id, a unique beginning of one, a name (its newest), or
        `last`."""
        with self.reading() as connection:
            newest = sa.select(RUNS).order_by(RUNS.c.created_at.desc(), RUNS.c.id.desc())
            if reference == LAST:
                matches = connection.execute(newest.limit(1)).all()
            else:
                matches = connection.execute(newest.where(RUNS.c.id == reference)).all() or list(
                    connection.execute(newest.where(RUNS.c.name == reference).limit(1))
                )
            if not matches:
                starts = RUNS.c.id.istartswith(reference, autoescape=True)
                matches = connection.execute(newest.where(starts).limit(6)).all()
            newest_rows = [] if matches else connection.execute(newest.limit(NEAR)).all()
        if len(matches) > 1:
            ids = ", ".join(row.id for row in matches[:5])
            raise Ambiguous(f"{reference!r} could be any of: {ids}", hint="Type more of the id.")
        if not matches:
            words = [word for row in newest_rows for word in (row.name, row.id)]
            near = difflib.get_close_matches(reference, dict.fromkeys(words), n=1)
            hint = f"Did you mean {near[0]!r}?" if near else "`rlctl ls` lists the runs."
            raise NotFound(f"no run {reference!r}", hint=hint)
        return _run(matches[0])

    def page(self, query: Query = NEWEST) -> Page:
        """The runs that a query asks for, from its cursor on."""
        queries.refuse(query)
        column = RUNS.c[query.column]
        order = (column.desc(), RUNS.c.id.desc()) if query.descending else (column, RUNS.c.id)
        statement = sa.select(RUNS).where(*_conditions(query)).order_by(*order)
        rows = self.read(statement.limit(query.limit + 1))
        runs = tuple(_run(row) for row in rows[: query.limit])
        if len(rows) <= query.limit:
            return Page(runs, None)
        return Page(runs, queries.cursor(query.sort, getattr(runs[-1], query.column), runs[-1].id))

    def active(self) -> list[tuple[Run, str | None]]:
        """Runs that have yet to end, in the order of arrival, with their leases."""
        pairs = [(_run(row), row[LEASE]) for row in self.read(sa.select(RUNS).where(ACTIVE))]
        # Sorted here: asked to sort, SQLite would rather walk through all runs in that order.
        return sorted(pairs, key=lambda row: (row[0].arrival, row[0].id))

    def rows(
        self, *, limit: int = 50, after: str | None = None, where: Query = NEWEST
    ) -> QueryRows:
        """Groups with all of their runs, and runs in none, from a cursor on.

        A group is as old as the first of its runs. `where` says which runs, not in which order; of
        a group that it does not hold all runs of, each that it does hold is a row.
        """
        queries.refuse_limit(limit)
        wanted = _conditions(replace(where, after=None))
        keyed = sa.select(RUNS.c.id, RUNS.c.created_at, _row_key(wanted).label("row_key"))
        placed = keyed.where(*wanted).subquery()
        key, made = placed.c.row_key, sa.func.min(placed.c.created_at)
        keys = sa.select(key, made).group_by(key).order_by(made.desc(), key.desc())
        if after is not None:
            keys = keys.having(sa.tuple_(made, key) < _position(after, NEWEST.sort))
        with self.reading() as connection:
            page = connection.execute(keys.limit(limit + 1)).all()
            rows: dict[str, list[Run]] = {name: [] for name, _ in page[:limit]}
            query = sa.select(RUNS).join(placed, placed.c.id == RUNS.c.id).where(key.in_(rows))
            query = query.order_by(RUNS.c.seed, RUNS.c.id)
            single = set()
            for row in connection.execute(query):
                run = _run(row)
                if run.group is not None and run.group not in rows:
                    single.add(run.id)
                rows[run.id if run.id in single else run.group or run.id].append(run)
        whole = tuple(tuple(members) for members in rows.values())
        if len(page) <= limit:
            return QueryRows(whole, None, frozenset(single))
        key_of_last, made_of_last = page[limit - 1]
        last = queries.cursor(NEWEST.sort, made_of_last, key_of_last)
        return QueryRows(whole, last, frozenset(single))

    def group_runs(self, group: str) -> list[Run]:
        """The runs of a group, by seed."""
        query = sa.select(RUNS).where(RUNS.c.group == group).order_by(RUNS.c.seed, RUNS.c.id)
        return [_run(row) for row in self.read(query)]

    def find_group(self, reference: str) -> str | None:
        """The group meant by a reference.

        That is an id, a name whose newest run is in one, or a unique beginning. None where no group
        is meant; what is exactly the id of a run is that run.
        """
        if reference == LAST:
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
            starts = starts.where(key.istartswith(reference, autoescape=True))
            matches = {row[0]: row[1] for row in connection.execute(starts.limit(6))}
        return _only_group(reference, matches)

    def lease_of(self, run_id: str) -> str | None:
        """Lease of who supervises the run, if anyone."""
        rows = self.read(sa.select(RUNS.c.lease).where(RUNS.c.id == run_id))
        lease: str | None = rows[0].lease if rows else None
        return lease

    def take_lease(self, run_id: str, *, held_by: str | None, lease: str) -> bool:
        """Become the supervisor, if the lease is still what it was seen to be."""
        seen = RUNS.c.lease.is_(None) if held_by is None else RUNS.c.lease == held_by
        return self.write(sa.update(RUNS).where(RUNS.c.id == run_id, seen).values(lease=lease)) == 1

    def save(self, run: Run, *, lease: str) -> None:
        """Write a run that this process supervises."""
        with self.holding(run.id, lease) as connection:
            statement = sa.update(RUNS).where(RUNS.c.id == run.id)
            connection.execute(statement.values(**_supervised_row(run)))

    def requeue(self, run: Run, *, lease: str) -> Run:
        """Write a run as the last to arrive, and let go of it.

        This process supervises the run until then.
        """
        with self.holding(run.id, lease) as connection:
            self.lock(connection, Lock.ARRIVE)
            run = run.model_copy(update={"arrival": _next_arrival(connection)})
            statement = sa.update(RUNS).where(RUNS.c.id == run.id)
            connection.execute(statement.values(**_supervised_row(run), lease=None))
        return run

    def tag(
        self,
        run_id: str,
        tags: Mapping[str, str],
        remove: Collection[str],
        *,
        write: Callable[[Mapping[str, str]], None],
    ) -> Run:
        """Set and remove tags of a run, whoever supervises it. `write` keeps all of them in its
        directory, in the order of the changes; if it raises, they are as they were."""
        with self.writing() as connection:
            query = sa.select(RUNS).where(RUNS.c.id == run_id).with_for_update()
            run = _run(connection.execute(query).one())
            kept = {name: value for name, value in run.tags.items() if name not in remove}
            run = run.model_copy(update={"tags": validated(kept | dict(tags))})
            tagged = sa.update(RUNS).where(RUNS.c.id == run_id)
            connection.execute(tagged.values(tags=_tags_text(run.tags)))
            write(run.tags)
        return run

    def note(self, run_id: str, text: str, *, write: Callable[[str], None]) -> Run:
        """Note something on a run, whoever supervises it. `write` keeps it in its directory, in the
        order of the changes; if it raises, the note is as it was."""
        with self.writing() as connection:
            query = sa.select(RUNS).where(RUNS.c.id == run_id).with_for_update()
            run = _run(connection.execute(query).one()).model_copy(update={"note": text})
            connection.execute(sa.update(RUNS).where(RUNS.c.id == run_id).values(note=text))
            write(text)
        return run

    def release(self, run_id: str, *, lease: str) -> None:
        """Give the lease back."""
        held = sa.update(RUNS).where(RUNS.c.id == run_id, RUNS.c.lease == lease)
        self.write(held.values(lease=None))

    def remove(self, run_id: str) -> None:
        """Forget a run and its attempts."""
        self.write(RUNS.delete().where(RUNS.c.id == run_id))

    def put_attempt(self, attempt: Attempt, *, lease: str) -> None:
        """Record an attempt, or what has become of it.

        This process supervises the run.
        """
        values = attempt.model_dump()
        with self.holding(attempt.run_id, lease) as connection:
            same = sa.and_(ATTEMPTS.c.run_id == attempt.run_id, ATTEMPTS.c.number == attempt.number)
            if connection.execute(sa.update(ATTEMPTS).where(same).values(**values)).rowcount == 0:
                connection.execute(ATTEMPTS.insert().values(**values))

    def attempts(self, run_id: str) -> list[Attempt]:
        """The attempts at a run, oldest first."""
        query = sa.select(ATTEMPTS).where(ATTEMPTS.c.run_id == run_id).order_by(ATTEMPTS.c.number)
        return [Attempt.model_validate(dict(row._mapping)) for row in self.read(query)]

    def relocate(self, home: Path) -> None:
        """Follow a home that was moved or copied: the old one, and paths in it, are in this one."""
        noted = self.read(sa.select(META.c.value).where(META.c.key == "home"))
        old: str | None = noted[0].value if noted else None
        if old == str(home):
            return
        with self.adapting() as connection:
            connection.execute(META.delete().where(META.c.key == "home"))
            connection.execute(META.insert().values(key="home", value=str(home)))
            columns = (RUNS.c.path, MODELS.c.model_path, VERDICTS.c.report_path, JOBS.c.home)
            for column in columns if old is not None else ():
                inside = sa.or_(column == old, column.startswith(f"{old}/", autoescape=True))
                moved = sa.literal(str(home)) + sa.func.substr(column, len(old or "") + 1)
                connection.execute(sa.update(column.table).where(inside).values({column: moved}))


def _run_row(run: Run) -> dict[str, Any]:
    row = run.model_dump(mode="json")
    row["eval"] = None if run.eval is None else run.eval.model_dump_json()
    row["after"] = json.dumps(row["after"])
    row["tags"] = _tags_text(run.tags)
    return row


def _supervised_row(run: Run) -> dict[str, Any]:
    """What a supervisor writes of a run: tags and the note are changed by others meanwhile."""
    row = _run_row(run)
    del row["tags"], row["note"]
    return row


def _tags_text(tags: Mapping[str, str]) -> str:
    """Tags as JSON, in which `"name": "value"` stands for that tag and for nothing else."""
    return json.dumps(tags, ensure_ascii=False)


def _run(row: sa.Row[Any]) -> Run:
    values = dict(zip(COLUMNS, row, strict=True))
    if values["eval"] is not None:
        values["eval"] = json.loads(values["eval"])
    values["after"] = () if values["after"] == "[]" else json.loads(values["after"])
    values["tags"] = json.loads(values["tags"])
    return Run.model_validate(values)


def _next_arrival(connection: sa.Connection) -> int:
    """One more than the last; only who holds `Lock.ARRIVE` may use it, so that no two are alike."""
    last = connection.execute(sa.select(sa.func.max(RUNS.c.arrival))).scalar_one()
    return (last or 0) + 1


def _submitted(connection: sa.Connection, key: str, digest: str) -> list[str] | None:
    query = sa.select(SUBMISSIONS.c.digest, SUBMISSIONS.c.runs).where(SUBMISSIONS.c.key == key)
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    if row.digest != digest:
        raise Conflict(
            f"idempotency key {key!r} was used for another submission",
            hint="Use a new key for what is new; repeat the very same request with the old one.",
        )
    ids: list[str] = json.loads(row.runs)
    return ids


def _conditions(query: Query) -> list[sa.ColumnElement[bool]]:
    columns = ("group", "queue", "algo", "name", "parent", "role")
    wanted = {name: getattr(query, name) for name in columns}
    conditions = [RUNS.c[name] == value for name, value in wanted.items() if value is not None]
    if query.env is not None:
        conditions.append(_of_env(query.env))
    if query.states:
        conditions.append(RUNS.c.state.in_([state.value for state in query.states]))
    if query.since is not None:
        conditions.append(RUNS.c.created_at >= query.since)
    if query.until is not None:
        conditions.append(RUNS.c.created_at < query.until)
    for name, value in map(pair, query.tags):
        # Not LIKE, which takes capitals for small letters in SQLite.
        tag = _tags_text({name: value})[1:-1]
        conditions.append(sa.func.replace(RUNS.c.tags, tag, "") != RUNS.c.tags)
    if query.after is not None:
        key, here = sa.tuple_(RUNS.c[query.column], RUNS.c.id), _position(query.after, query.sort)
        conditions.append(key < here if query.descending else key > here)
    return conditions


def _of_env(env: str) -> sa.ColumnElement[bool]:
    """Whether a run is on an environment; without a version, on any version of it."""
    versions = f"{env}-v"  # Not LIKE, here too.
    other = sa.func.substr(RUNS.c.env, 1, len(versions)) == versions
    return sa.or_(RUNS.c.env == env, other)


def _row_key(wanted: Sequence[sa.ColumnElement[bool]]) -> sa.ColumnElement[str]:
    """The row that a run is in: that of its group if all runs of it are wanted, or its own."""
    if not wanted:
        return sa.func.coalesce(RUNS.c.group, RUNS.c.id)
    unwanted = sa.and_(*wanted).is_not(sa.true())
    parted = sa.select(RUNS.c.group).where(RUNS.c.group.is_not(None), unwanted)
    own = sa.or_(RUNS.c.group.is_(None), RUNS.c.group.in_(parted.correlate(None)))
    return sa.case((own, RUNS.c.id), else_=RUNS.c.group)


def _position(after: str, sort: str) -> sa.Tuple:
    value, key = queries.position(after, sort)
    return sa.tuple_(sa.literal(value), sa.literal(key))


def _only_group(reference: str, matches: Mapping[str, str | None]) -> str | None:
    """The group among the rows that begin so (id → group), if only one.

    Raises `Ambiguous` if there is another row.
    """
    groups = [group for group in matches.values() if group is not None]
    if groups and len(matches) > 1:
        ids = ", ".join(list(matches)[:5])
        raise Ambiguous(f"{reference!r} could be any of: {ids}", hint="Type more of the id.")
    return groups[0] if groups else None
