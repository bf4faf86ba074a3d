"""A SQLite file that cannot be written, read from a copy of it in memory.

So it is read on a disk that is mounted read-only, wherever the home was when it was written, and
whichever release wrote it: the copy can be brought up to date.
"""

import os
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from rl_orch.errors import RlctlError, Unavailable
from rl_orch.io.machine import filesystem

LOGS = ("-journal", "-wal")
"""What SQLite keeps beside a file while it is written."""


@dataclass(frozen=True, slots=True)
class DatabaseSnapshot:
    """A copy of a database, and why nothing can be written to the file itself."""

    path: Path
    obstacle: str
    _stamp: tuple[object, ...]
    _whole: sqlite3.Connection = field(repr=False)

    @property
    def outdated(self) -> bool:
        """Whether the file has changed since."""
        return _stamp(self.path) != self._stamp

    def original(self) -> sqlite3.Connection:
        """The copy itself, which further ones are made of."""
        return self._whole

    def copy(self) -> sqlite3.Connection:
        """A copy of the copy, as many as are asked for."""
        made = _memory()
        self._whole.backup(made)
        return made

    def refusal(self) -> RlctlError:
        """The error that nothing can be written."""
        return filesystem.refusal(self.path.parent, self.obstacle)


def of(path: Path, *, timeout_s: float) -> DatabaseSnapshot | None:
    """A copy of a file that is there and cannot be written; None of any other."""
    try:
        if path.stat().st_size == 0:
            return None
        obstacle = filesystem.obstacle(path.parent) or filesystem.obstacle(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise RlctlError(f"database {str(path)!r} cannot be read: {error.strerror}") from None
    if obstacle is None:
        return None
    if not os.access(path, os.R_OK):
        raise RlctlError(f"database {str(path)!r} cannot be read, and {obstacle}", path=str(path))
    stamp, made = _stamp(path), _memory()
    try:
        _copy(path, made, timeout_s)
    except sqlite3.Error as error:
        raise _explained(path, obstacle, error) from None
    return DatabaseSnapshot(path, obstacle, stamp, made)


def _copy(path: Path, target: sqlite3.Connection, timeout_s: float) -> None:
    """Copy the file, as it is at one moment."""
    address = f"file:{quote(str(path.absolute()))}?mode=ro"
    try:
        _copy_from(address, target, timeout_s)
    except sqlite3.OperationalError as error:
        # A write-ahead log cannot be made there, and where there is none, nobody writes.
        closed = not any(map(os.path.exists, _logs(path)))
        mounted = bool(os.statvfs(path).f_flag & os.ST_RDONLY)
        if not (_wants_to_write(error) and closed and mounted):
            raise
        _copy_from(f"{address}&immutable=1", target, timeout_s)


def _copy_from(address: str, target: sqlite3.Connection, timeout_s: float) -> None:
    with closing(sqlite3.connect(address, uri=True, timeout=timeout_s)) as source:
        # From the first read on, no writer can come in between.
        source.isolation_level = None
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()
        source.backup(target)


def _memory() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", check_same_thread=False)


def _logs(path: Path) -> list[str]:
    return [f"{path}{ending}" for ending in LOGS]


def _stamp(path: Path) -> tuple[object, ...]:
    """Stamp that differs once a file, or the log beside it, has changed."""
    facts: list[object] = []
    for each in (str(path), *_logs(path)):
        with suppress(OSError):
            info = os.stat(each)
            facts += [each, info.st_ino, info.st_size, info.st_mtime_ns]
    return tuple(facts)


def _wants_to_write(error: sqlite3.Error) -> bool:
    """Whether SQLite would have to write before it could read."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)


def _explained(path: Path, obstacle: str, error: sqlite3.Error) -> RlctlError:
    name, place = repr(str(path)), repr(str(path.parent))
    if not _wants_to_write(error):
        kind = Unavailable if "locked" in str(error) else RlctlError
        return kind(f"database {name}: {error}")
    left = [log for log in _logs(path) if os.path.exists(log)]
    why = (
        f"{left[0]!r} is left of a writer that died, and has to be worked in first"
        if left
        else "it has a write-ahead log, which who reads has to make where there is none"
    )
    return RlctlError(
        f"database {name} cannot be read here: {why}, but {place} {obstacle}",
        path=str(path),
        hint="Run `rlctl ls` where it can be written, or copy the home to such a place.",
    )
