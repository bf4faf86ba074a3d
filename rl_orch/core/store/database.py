"""One database, SQLite or PostgreSQL: its connections, its transactions, its errors in sentences.

What the tables mean is in `runs.py`; nobody else asks which of the two it is.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa

from rl_orch.addresses import is_url
from rl_orch.core.store import snapshot
from rl_orch.errors import BadInput, Conflict, MissingExtra, RlctlError, Unavailable
from rl_orch.io.files import private

DATABASE = "rlctl.db"
"""The file in a home, unless another one is named."""

BUSY_TIMEOUT_S = 30.0
"""How long a write waits for another one."""

SAFE_WAL = (3, 51, 3)
"""Older SQLite can corrupt a write-ahead log under many writers."""

PASSING = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL)
"""What SQLite says of a state that others can end: they finish, or somebody makes room."""

SCHEMES = ("postgres", "postgresql", "postgresql+psycopg")
EXAMPLE = "postgresql://user:password@host:5432/name"
SECRETS = ("password", "sslpassword")
MISTAKES = (
    "authentication failed",
    "no password supplied",
    "does not exist",
    "no pg_hba.conf entry",
)
"""What PostgreSQL says to whoever it does not let in; it names no code before it has."""

LINK = {
    "connect_timeout": "5",
    "application_name": "rlctl",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
"""A server that is gone is noticed within half a minute, whatever the network says."""

POOL: dict[str, Any] = {"pool_size": 5, "max_overflow": 15, "pool_timeout": 10.0}
LIMITS = (
    f"SET lock_timeout = '{BUSY_TIMEOUT_S:.0f}s'; "
    f"SET statement_timeout = '{2 * BUSY_TIMEOUT_S:.0f}s'; "
    f"SET idle_in_transaction_session_timeout = '{10 * BUSY_TIMEOUT_S:.0f}s'"
)
CLASS = 0x726C6F72
"""Our name among the advisory locks of a PostgreSQL database."""


class Lock(IntEnum):
    """Locks, each for what one writer does at a time. In SQLite that is everything."""

    MIGRATE = 1
    ARRIVE = 2
    TOKENS = 3
    REGISTRY = 4


class Database:
    """A SQLite file, made where there is none, or a PostgreSQL database that others share.

    `location` is for messages: the path, or the URL with `***` for its password. A file that cannot
    be written is read from a copy in memory, as it was when this was made.
    """

    def __init__(self, location: Path | str) -> None:
        url = _postgres_url(location)
        if url is None:
            path = Path(location)
            self.location = str(path)
            self._snapshot = snapshot.of(path, timeout_s=BUSY_TIMEOUT_S)
            copy = self._snapshot and self._snapshot.copy
            self._engine = _sqlite(copy or _connections(path))
            self._reader = self._engine.execution_options(reading=True)
        else:
            self.location = _shown(url)
            self._snapshot = None
            self._engine = _postgres(url)
            self._reader = self._engine.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
        self._secrets = [] if url is None else _secrets(url)

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection that sees one consistent moment and blocks no writer for long."""
        with self._explained(), self._reader.connect() as connection:
            yield connection

    def read(self, query: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
        """The rows of one query."""
        with self.reading() as connection:
            return connection.execute(query).all()

    @contextmanager
    def writing(self, lock: Lock | None = None) -> Iterator[sa.Connection]:
        """A transaction, durable when it is left; with a lock, the only one to do that.

        In SQLite it is the only one from the start.
        """
        self.refuse_unwritable()
        with self._explained(), self._engine.begin() as connection:
            if lock is not None:
                self.lock(connection, lock)
            yield connection

    def write(self, statement: sa.UpdateBase) -> int:
        """Carry one statement out, durably; returns how many rows it was about."""
        with self.writing() as connection:
            return connection.execute(statement).rowcount

    @contextmanager
    def adapting(self) -> Iterator[sa.Connection]:
        """A transaction that brings the database, or the copy read instead, up to date."""
        if self._snapshot is None:
            with self.writing() as connection:
                yield connection
            return
        with self._explained(), _sqlite(self._snapshot.original).begin() as connection:
            yield connection
        self._engine.dispose()

    @property
    def obstacle(self) -> str | None:
        """Reason why nothing can be written, in words that follow the name of the file."""
        return None if self._snapshot is None else self._snapshot.obstacle

    @property
    def outdated(self) -> bool:
        """Whether what is read is a copy of what has changed since."""
        return self._snapshot is not None and self._snapshot.outdated

    def refuse_unwritable(self) -> None:
        """Raise if nothing can be written."""
        if self._snapshot is not None:
            raise self._snapshot.refusal()

    def lock(self, connection: sa.Connection, what: Lock) -> None:
        """Wait until no other transaction does that, and let none until this one has ended."""
        if self._engine.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(CLASS, int(what))))

    def close(self) -> None:
        """Let go of the connections that are kept for later use."""
        self._engine.dispose()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError as error:
            raise self._explanation(error) from error
        except sa.exc.TimeoutError as error:
            raise Unavailable(
                f"database {self.location!r}: every connection to it is in use",
                hint="Try again in a moment.",
            ) from error
        except (UnicodeEncodeError, OverflowError) as error:
            raise BadInput(f"database {self.location!r} cannot hold this: {error}") from None

    def _explanation(self, error: sa.exc.DBAPIError) -> RlctlError:
        """The error for what the database says, in a sentence with its location in it."""
        told = " ".join(str(error.orig).split())
        for secret in self._secrets:
            told = told.replace(secret, "***")
        message = f"database {self.location!r}: {told}"
        if isinstance(error, sa.exc.IntegrityError):
            return Conflict(message)
        if isinstance(error, sa.exc.DataError):
            return BadInput(f"database {self.location!r} cannot hold this: {told}")
        if self._engine.dialect.name == "postgresql":
            return _postgres_error(error, message)
        return _sqlite_error(error, message)


def hide_password(location: Path | str) -> str:
    """The location as it may be shown: of a URL, `***` stands for the password."""
    url = _postgres_url(location)
    return str(location) if url is None else _shown(url)


def _sqlite(connect: Callable[[], sqlite3.Connection]) -> sa.Engine:
    engine = sa.create_engine(
        "sqlite://",
        creator=connect,
        poolclass=sa.QueuePool,
        pool_size=8,
        max_overflow=-1,
        hide_parameters=True,
    )
    sa.event.listen(engine, "connect", _configure_sqlite)
    sa.event.listen(engine, "begin", _begin)
    return engine


def _connections(path: Path) -> Callable[[], sqlite3.Connection]:
    """Function that connects to a file, made now if there is none yet.

    The file is never made again later on.
    """
    try:
        private.home_folder(path.parent)
        with open(path, "ab", opener=private.own_file):
            pass
    except OSError as error:
        raise RlctlError(
            f"database {str(path)!r} cannot be made: {error.strerror}",
            hint="Set RLCTL_HOME to a folder that can be written to.",
        ) from None
    address = f"file:{quote(str(path.absolute()))}?mode=rw"
    return lambda: sqlite3.connect(
        address, uri=True, timeout=BUSY_TIMEOUT_S, check_same_thread=False
    )


def _configure_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None
    journal = "WAL" if sqlite3.sqlite_version_info >= SAFE_WAL else "DELETE"
    for pragma in (f"journal_mode={journal}", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin(connection: sa.Connection) -> None:
    reading = connection.get_execution_options().get("reading", False)
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


def _sqlite_error(error: sa.exc.DBAPIError, message: str) -> RlctlError:
    code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
    return (Unavailable if code in PASSING else RlctlError)(
        message,
        hint="Check that the disk has space and that the file is a writable rlctl database.",
    )


def _postgres_url(location: Path | str) -> sa.URL | None:
    """The URL of a PostgreSQL database, or None for the path of a SQLite file."""
    if isinstance(location, Path) or not is_url(location):
        return None
    scheme = location.partition("://")[0]
    if scheme not in SCHEMES:
        raise BadInput(f"database is a {scheme}:// URL; must be a path, or {EXAMPLE}")
    try:
        url = sa.make_url(location)
    except (sa.exc.ArgumentError, ValueError):
        # What was given is not repeated, for it may hold a password.
        raise BadInput(
            f"database URL cannot be read; must look like {EXAMPLE}",
            hint="In a password, write characters such as / @ : as %2F %40 %3A.",
        ) from None
    return url.set(drivername="postgresql+psycopg")


def _shown(url: sa.URL) -> str:
    hidden = {name: "***" for name in SECRETS if name in url.query}
    plain = url.set(drivername="postgresql").update_query_dict(hidden)
    return plain.render_as_string(hide_password=True).replace("%2A%2A%2A", "***")


def _secrets(url: sa.URL) -> list[str]:
    given = [url.password, *(url.query.get(name) for name in SECRETS)]
    return [str(secret) for secret in given if secret]


def _postgres(url: sa.URL) -> sa.Engine:
    try:
        engine = sa.create_engine(
            url,
            **POOL,
            pool_pre_ping=True,
            connect_args={name: value for name, value in LINK.items() if name not in url.query},
            hide_parameters=True,
        )
    except ImportError as error:
        raise MissingExtra(
            f"database {_shown(url)!r} needs psycopg, which is not installed: {error}",
            hint="Install it with `pip install 'rl-orch[postgres]'`.",
        ) from None
    sa.event.listen(engine, "connect", _configure_postgres)
    return engine


def _configure_postgres(connection: Any, _record: Any) -> None:
    connection.execute(LIMITS)
    connection.commit()


def _postgres_error(error: sa.exc.DBAPIError, message: str) -> RlctlError:
    if error.statement is None and any(words in message for words in MISTAKES):
        return BadInput(message, hint="Check the user, the password and the name in the URL.")
    gone = (sa.exc.OperationalError, sa.exc.InterfaceError)
    if error.connection_invalidated or isinstance(error, gone):
        return Unavailable(
            message, hint="Check that PostgreSQL runs there and can be reached from here."
        )
    return RlctlError(message, hint="Check that it is an rlctl database that this user may write.")
