"""Where the rows of an index are kept: columns in files beside a note, or in memory.

A column is only ever added to, and the note says how much of it counts and what its checksum is: a
crash between the two costs nothing, and whatever else happens to the files is noticed.
"""

import errno
import fcntl
import os
import secrets
import shutil
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Literal, Protocol

import numpy as np
from pydantic import Field

from rl_orch.errors import Unavailable
from rl_orch.io.files import private, regular
from rl_orch.io.metrics.event_rows import EventRows, Floats, Lineage
from rl_orch.records import Record

VERSION: Literal[1] = 1
KEYS = 4096
"""Curves of one run that are kept; a program that names more of them names its points."""

FREE_BYTES = 64 << 20
"""Room that is left to the run: a disk that has no more is not written to."""

PATIENCE_S = 5.0
"""How long somebody who asks waits for another who is indexing."""

_LOOK_EVERY_S = 0.01

Natural = Annotated[int, Field(ge=0)]


class Stale(Exception):
    """What a book says is not what the files hold."""


class Column(Record):
    """One curve: the number in its files' names, how many rows count, and their checksums.

    `points` are step and value of each row; `origins` are ts, attempt and seq.
    """

    number: Natural
    count: Natural = 0
    points: Natural = 0
    origins: Natural = 0


class Book(Record):
    """What an index holds: how far it came in the event file, and every curve.

    `seal` is the checksum of the last bytes before the offset. A generation is one building of the
    index, from the beginning of the file on.
    """

    version: Literal[1]
    generation: Annotated[str, Field(pattern=r"^[0-9a-f]{8}$")]
    offset: Natural = 0
    seal: Natural = 0
    lineage: Lineage = Lineage()
    columns: dict[str, Column] = Field(default_factory=dict)


def empty_book() -> Book:
    """The book of a new generation."""
    return Book(version=VERSION, generation=secrets.token_hex(4))


class Shelf(Protocol):
    """Where the columns of a book are."""

    def add(self, book: Book, batch: EventRows, seal: int) -> Book:
        """Keep what the event file gained; the book that says so."""

    def points(self, book: Book, key: str) -> Floats:
        """Step and value of every row of a curve, shape (rows, 2)."""

    def origins(self, book: Book, key: str) -> Floats:
        """ts, attempt and seq of every row of a curve, shape (rows, 3)."""


class MemoryColumns:
    """Columns for as long as they are looked at, where no file can be written."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Floats]] = {}

    def add(self, book: Book, batch: EventRows, seal: int) -> Book:
        """Keep what the event file gained; the book that says so."""
        columns = _with_keys(book, batch)
        for key, rows in batch.rows.items():
            if key in columns:
                self._rows.setdefault(key, []).append(rows)
                columns[key] = _longer(columns[key], rows)
        return _after(book, batch, seal, columns)

    def points(self, book: Book, key: str) -> Floats:
        """Step and value of every row of a curve, shape (rows, 2)."""
        return np.concatenate(self._rows[key])[: book.columns[key].count, :2]

    def origins(self, book: Book, key: str) -> Floats:
        """ts, attempt and seq of every row of a curve, shape (rows, 3)."""
        return np.concatenate(self._rows[key])[: book.columns[key].count, 2:]


class Files:
    """Columns in a folder. One process at a time adds to them; anyone reads them meanwhile.

    Nothing is mapped into memory: a file that somebody cuts short must not end the process that
    looks at it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._note = folder / "note.json"

    def book(self) -> Book | None:
        """The book that was kept last; None if there is none that can be read."""
        try:
            return Book.model_validate_json(regular.read(self._note))
        except (OSError, ValueError):
            return None

    @contextmanager
    def locked(self, patience_s: float) -> Iterator[None]:
        """Be the one that adds. An OSError where nothing can be written."""
        if shutil.disk_usage(self._folder.parent).free < FREE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._folder))
        private.inner_folder(self._folder)
        deadline = time.monotonic() + patience_s
        fd = regular.opened(self._folder / "lock", os.O_WRONLY | os.O_CREAT)
        try:
            while not _locks(fd):
                if time.monotonic() >= deadline:
                    raise self._busy()
                time.sleep(_LOOK_EVERY_S)
            yield
        finally:
            os.close(fd)

    def begin(self) -> Book:
        """A book to begin with; what earlier generations left is removed."""
        for name in os.listdir(self._folder):
            if name.endswith((".points", ".origins")):
                (self._folder / name).unlink(missing_ok=True)
        return empty_book()

    def add(self, book: Book, batch: EventRows, seal: int) -> Book:
        """Keep what the event file gained: first the columns, then the book that says so."""
        columns = _with_keys(book, batch)
        for key, rows in batch.rows.items():
            if key not in columns:
                continue
            column = columns[key]
            points, origins = rows[:, :2].tobytes(), rows[:, 2:].tobytes()
            _write_at(self._file(book, column, "points"), column.count * 16, points)
            _write_at(self._file(book, column, "origins"), column.count * 24, origins)
            columns[key] = _longer(column, rows).model_copy(
                update={
                    "points": zlib.crc32(points, column.points),
                    "origins": zlib.crc32(origins, column.origins),
                }
            )
        kept = _after(book, batch, seal, columns)
        temporary = self._note.with_suffix(".new")
        regular.write(temporary, kept.model_dump_json().encode())
        temporary.replace(self._note)
        return kept

    def points(self, book: Book, key: str) -> Floats:
        """Step and value of every row of a curve, shape (rows, 2)."""
        column = book.columns[key]
        return _read(self._file(book, column, "points"), column.count, 2, column.points)

    def origins(self, book: Book, key: str) -> Floats:
        """ts, attempt and seq of every row of a curve, shape (rows, 3)."""
        column = book.columns[key]
        return _read(self._file(book, column, "origins"), column.count, 3, column.origins)

    def _busy(self) -> Unavailable:
        return Unavailable(
            f"another process is indexing the metrics in {str(self._folder.parent)!r}",
            hint="Ask again in a moment.",
        )

    def _file(self, book: Book, column: Column, kind: str) -> Path:
        return self._folder / f"{book.generation}-{column.number}.{kind}"


def _with_keys(book: Book, batch: EventRows) -> dict[str, Column]:
    """The columns of a book, and a new one for each key that is new, while there is room."""
    columns = dict(book.columns)
    for key in batch.rows:
        if key not in columns and len(columns) < KEYS:
            columns[key] = Column(number=len(columns))
    return columns


def _longer(column: Column, rows: Floats) -> Column:
    return column.model_copy(update={"count": column.count + len(rows)})


def _after(book: Book, batch: EventRows, seal: int, columns: dict[str, Column]) -> Book:
    return book.model_copy(
        update={
            "offset": batch.offset,
            "seal": seal,
            "lineage": batch.lineage,
            "columns": columns,
        }
    )


def _locks(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_at(path: Path, offset: int, data: bytes) -> None:
    """Write bytes into a file at an offset, over whatever a crash has left there."""
    fd = regular.opened(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW)
    try:
        while data:
            written = os.pwrite(fd, data, offset)
            data, offset = data[written:], offset + written
    finally:
        os.close(fd)


def _read(path: Path, count: int, width: int, checksum: int) -> Floats:
    """The first rows of a column, or `Stale` if they are not those that were written."""
    with suppress(OSError), regular.reader(path) as file:
        size = 8 * width * count
        if os.fstat(file.fileno()).st_size >= size:
            data = file.read(size)
            if zlib.crc32(data) == checksum:
                return np.frombuffer(data).reshape(count, width)
    raise Stale(path)
