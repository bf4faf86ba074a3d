"""The SQLite file of a metric index: streams of bytes, and how far into the event file they go.

A stream is only ever added to, chunk after chunk, and has one checksum: a file that a crash or
somebody else has damaged is noticed. What the bytes mean is decided in `io/metrics/index.py`.
"""

import errno
import os
import shutil
import sqlite3
import stat
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field

from rl_orch.io.files import private
from rl_orch.io.metrics.event_rows import Lineage
from rl_orch.records import Record

FILE = "metrics.db"
JOURNAL = f"{FILE}-journal"
FORMER_FOLDER = "index"
"""Where the columns of older releases are."""

FREE_BYTES = 64 << 20
"""Room that is left to the run: a disk that has no more is not written to."""

PATIENCE_S = 5.0
"""How long a question waits for another process that is writing."""

_DAMAGE = {
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_NOTADB,
}
"""Codes by which SQLite says that a file is not what was written; others say that it cannot be
used, or not now."""

_SCHEMA = """
    PRAGMA synchronous = OFF; PRAGMA trusted_schema = OFF;
    CREATE TABLE IF NOT EXISTS head (document TEXT, crc INTEGER);
    CREATE TABLE IF NOT EXISTS streams
        (number INTEGER PRIMARY KEY, name TEXT, size INTEGER, crc INTEGER);
    CREATE TABLE IF NOT EXISTS chunks (number INTEGER PRIMARY KEY, stream INTEGER, data BLOB);
    CREATE INDEX IF NOT EXISTS chunks_of_streams ON chunks (stream);
"""
"""What a crash of the machine leaves is noticed, so that no write waits for the disk."""

_KINDS = "SELECT DISTINCT type FROM sqlite_master"
"""A view or a trigger could make a question last for ever."""


class IndexCorrupt(Exception):
    """A metric index that is damaged, of another version, or about another event file."""


class StoredStream(NamedTuple):
    """The note on a stream: its number, how many bytes it has, and their checksum."""

    number: int | None = None
    size: int = 0
    crc: int = 0


class IndexHead(Record):
    """The progress of an index in the event file.

    `seal` is the checksum of the last bytes before the offset.
    """

    version: Literal[2] = 2
    offset: Annotated[int, Field(ge=0)] = 0
    seal: int = 0
    lineage: Lineage = Lineage()


class MetricDatabase:
    """The streams of one index, in a file or, without a path, in memory. One thread uses it.

    Its errors are an OSError where the file cannot be used, as while another process holds it for
    longer than patience goes, and `IndexCorrupt`.
    """

    def __init__(self, path: Path | None = None, patience_s: float = 0.0) -> None:
        self._path = path
        with self._errors():
            name = ":memory:" if path is None else path
            self._sql = sqlite3.connect(name, timeout=patience_s, isolation_level=None)
            self._sql.executescript(_SCHEMA)
            if {kind for (kind,) in self._sql.execute(_KINDS)} != {"table", "index"}:
                raise IndexCorrupt("it has something other than tables")

    @classmethod
    def of_run(cls, folder: Path, patience_s: float) -> Self:
        """The database in a run directory, made if there is none."""
        path = folder / FILE
        if not os.path.lexists(path):
            _refuse_full_disk(folder)
            with suppress(FileExistsError):
                os.close(private.inner_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
            shutil.rmtree(folder / FORMER_FOLDER, ignore_errors=True)
        for file in (path, path.with_name(JOURNAL)):
            if os.path.lexists(file) and not stat.S_ISREG(file.lstat().st_mode):
                raise OSError(errno.EINVAL, "not a file", str(file))
        return cls(path, patience_s)

    def close(self) -> None:
        """Let go of the file."""
        self._sql.close()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """One state of the database for all that is read meanwhile."""
        if self._sql.in_transaction:
            yield
            return
        self._sql.execute("BEGIN")
        try:
            yield
        finally:
            self._sql.rollback()

    def head(self) -> IndexHead:
        """The progress of the index; at the beginning where there is nothing in it."""
        with self._errors(), self.snapshot():
            row = self._sql.execute("SELECT document, crc FROM head").fetchone()
            if row is None and not self.streams():
                return IndexHead()
            if row is None or self._checksum(row[0]) != row[1]:
                raise IndexCorrupt("its list of streams is not as it was written")
            return IndexHead.model_validate_json(row[0])

    def streams(self) -> dict[str, StoredStream]:
        """The streams there are by name, in the order in which they came."""
        with self._errors():
            rows = self._sql.execute("SELECT name, number, size, crc FROM streams ORDER BY number")
            return {name: StoredStream(*row) for name, *row in rows}

    def read(self, stream: StoredStream) -> bytes:
        """The bytes of a stream."""
        with self._errors():
            chunks = "SELECT data FROM chunks WHERE stream = ? ORDER BY number"
            data = b"".join(chunk for (chunk,) in self._sql.execute(chunks, [stream.number]))
        if len(data) != stream.size or zlib.crc32(data) != stream.crc:
            raise IndexCorrupt(f"stream {stream.number} is not as it was written")
        return data

    def add(self, before: IndexHead, after: IndexHead, chunks: Mapping[str, bytes]) -> None:
        """Add to streams, all or nothing; nothing if another has come further in the meantime."""
        if self._path is not None:
            _refuse_full_disk(self._path.parent)
        with self._errors(), self._sql:
            self._sql.execute("BEGIN IMMEDIATE")
            if self.head() == before:
                streams = self.streams()
                for name, data in chunks.items():
                    self._append(name, streams.get(name, StoredStream()), data)
                self._sql.execute("DELETE FROM head")
                document = after.model_dump_json()
                row = [document, self._checksum(document)]
                self._sql.execute("INSERT INTO head VALUES (?, ?)", row)

    def _append(self, name: str, stream: StoredStream, data: bytes) -> None:
        row = [stream.number, name, stream.size + len(data), zlib.crc32(data, stream.crc)]
        added = self._sql.execute("INSERT OR REPLACE INTO streams VALUES (?, ?, ?, ?)", row)
        chunk = [added.lastrowid, data]
        self._sql.execute("INSERT INTO chunks (stream, data) VALUES (?, ?)", chunk)

    def _checksum(self, document: str) -> int:
        """A checksum of a head and of all that is noted of the streams."""
        return zlib.crc32(repr((document, self.streams())).encode())

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (TypeError, ValueError) as error:  # A value of another type than was written.
            raise IndexCorrupt(str(error)) from None
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
            if code & 0xFF in _DAMAGE:
                raise IndexCorrupt(str(error)) from None
            raise OSError(errno.EIO, str(error), str(self._path)) from None


def discard(folder: Path) -> None:
    """Remove the database in a run directory."""
    for name in (FILE, JOURNAL):
        (folder / name).unlink(missing_ok=True)


def _refuse_full_disk(folder: Path) -> None:
    if shutil.disk_usage(folder).free < FREE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
