"""The index of a run's numbers: what a curve of a million points is answered from.

It is derived from the event file and kept in `index/` of the run directory. Whatever is wrong with
it, it is built anew; where it cannot be written, answers come from the event file itself.
"""

import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rl_orch.errors import BadInput, Damaged, RlctlError, Unavailable
from rl_orch.io.files import regular
from rl_orch.io.metrics import event_rows as points
from rl_orch.io.metrics.columns import (
    PATIENCE_S,
    Book,
    Files,
    MemoryColumns,
    Shelf,
    Stale,
    empty_book,
)
from rl_orch.io.metrics.decimate import LEAST_POINTS, decimate
from rl_orch.io.metrics.event_rows import Floats
from rl_orch.io.metrics.series import POINTS, Key, Series
from rl_orch.io.run.directory import RunDir

MOST_POINTS = 1_000_000
"""Points that one answer holds at most."""

_SEAL_BYTES = 512
_TRIES = 3
_Stamp = tuple[int, int, int]
T = TypeVar("T")


class Index:
    """The numbers of one run, folded into one history as `events.fold` does.

    Any number of threads and processes may each have an Index of one run; one Index is for one
    thread. A file that has not changed costs an Index that has seen it one look at its size.
    """

    def __init__(self, run_dir: Path) -> None:
        self._events = RunDir(run_dir).events
        self._files = Files(run_dir / "index")
        self._shelf: Shelf = self._files
        self._book = empty_book()
        self._stamp: _Stamp | None = None

    def catch_up(self, most_bytes: int | None = None) -> bool:
        """Take in what the event file gained, as far as so many bytes go; whether that was all.

        Work ahead of need: where nothing can be written, or while another is at it, nothing is
        done.
        """
        try:
            return self._catch_up(most_bytes, patience_s=0.0)
        except (OSError, Unavailable, Damaged):
            return False

    def query(
        self,
        keys: Sequence[str] = (),
        points: int = POINTS,
        from_step: int | None = None,
        to_step: int | None = None,
    ) -> tuple[Series, ...]:
        """The curves that are named, or all of them by name, each with at most so many points.

        A curve that the run has told nothing of is empty.
        """
        if points < LEAST_POINTS:
            raise BadInput(f"points is {points}; must be at least {LEAST_POINTS}", path="points")
        return self._answer(lambda: self._query(keys, points, from_step, to_step))

    def keys(self) -> tuple[Key, ...]:
        """Every curve with its number of points and the last of them, by name."""
        return self._answer(self._keys)

    def newest(self, count: int, keys: Sequence[str] = ()) -> list[tuple[str, int, float, float]]:
        """Key, step, value and ts of the newest points of some curves, or of all, oldest first."""
        return self._answer(lambda: self._newest(count, keys))

    def _answer(self, ask: Callable[[], T]) -> T:
        """What a question comes to, once the index is up to date and found undamaged."""
        try:
            self._catch_up(None, PATIENCE_S)
            for _ in range(_TRIES):
                try:
                    return ask()
                except Stale:
                    self._recover()
        except OSError:
            pass
        self._read_all()
        return ask()

    def _catch_up(self, most_bytes: int | None, patience_s: float) -> bool:
        stamp = _stamp(self._events)
        if stamp is not None and stamp == self._stamp:
            return True
        book = self._files.book()
        if book is None or not self._continues(book):
            book = empty_book()
        self._shelf, self._book, whole = self._files, book, True
        if points.has_more(self._events, book.offset):
            with self._files.locked(patience_s):
                whole = self._advance(self._sound_book(), most_bytes)
        self._stamp = stamp if whole else None
        return whole

    def _recover(self) -> None:
        """Leave what is damaged, unless somebody else has already built the index anew."""
        damaged = self._book.generation
        with self._files.locked(PATIENCE_S):
            book = self._sound_book()
            self._advance(self._files.begin() if book.generation == damaged else book, None)

    def _sound_book(self) -> Book:
        """The book on the disk, if it is about this event file, or else an empty one."""
        book = self._files.book()
        return book if book is not None and self._continues(book) else self._files.begin()

    def _advance(self, book: Book, most_bytes: int | None) -> bool:
        """Take in chunk after chunk; whether the end was reached."""
        until = None if most_bytes is None else book.offset + most_bytes
        while True:
            batch = points.read(self._events, book.offset, book.lineage)
            if batch.offset == book.offset:
                break
            book = self._shelf.add(book, batch, _seal(self._events, batch.offset))
            if until is not None and batch.offset >= until:
                break
        self._book = book
        return not points.has_more(self._events, book.offset)

    def _read_all(self) -> None:
        """Answer from the event file alone."""
        try:
            stamp = _stamp(self._events)
            self._shelf = MemoryColumns()
            self._advance(empty_book(), None)
            self._stamp = stamp
        except OSError as error:
            raise RlctlError(
                f"cannot read the event file {self._events}: {error.strerror}",
                path=str(self._events),
            ) from error

    def _continues(self, book: Book) -> bool:
        """Whether the event file is the one that the book is about, only longer."""
        return _seal(self._events, book.offset) == book.seal

    def _query(
        self, keys: Sequence[str], most: int, from_step: int | None, to_step: int | None
    ) -> tuple[Series, ...]:
        wanted = tuple(dict.fromkeys(keys)) or tuple(sorted(self._book.columns))
        self._refuse_more_than_an_answer_holds(wanted, most)
        found = ((key, _between(self._curve(key), from_step, to_step)) for key in wanted)
        return tuple(_series(key, curve, most) for key, curve in found if keys or len(curve))

    def _refuse_more_than_an_answer_holds(self, keys: Sequence[str], most: int) -> None:
        columns = [self._book.columns[key] for key in keys if key in self._book.columns]
        total = sum(min(column.count, most) for column in columns)
        if total > MOST_POINTS:
            raise BadInput(
                f"that is up to {total} points of {len(columns)} curves; "
                f"an answer holds at most {MOST_POINTS}",
                path="points",
                hint="Name the keys that you want, or ask for fewer points of each.",
            )

    def _keys(self) -> tuple[Key, ...]:
        curves = ((key, self._curve(key)) for key in sorted(self._book.columns))
        return tuple(
            Key(key=key, count=len(curve), last_step=int(curve[-1, 0]), last_value=curve[-1, 1])
            for key, curve in curves
            if len(curve)
        )

    def _curve(self, key: str) -> Floats:
        """Step and value of every row of a curve that counts."""
        if key not in self._book.columns:
            return np.empty((0, 2))
        curve = self._shelf.points(self._book, key)
        if self._book.lineage.is_single:
            return curve
        return np.compress(self._counted(self._shelf.origins(self._book, key)), curve, axis=0)

    def _newest(self, count: int, keys: Sequence[str]) -> list[tuple[str, int, float, float]]:
        known = [key for key in self._book.columns if not keys or key in keys]
        newest = np.empty((0, points.WIDTH + 1))
        for place, key in enumerate(known):
            rows = self._last_rows(key, count)
            both = np.concatenate([newest, np.insert(rows, points.WIDTH, place, axis=1)])
            newest = both[np.lexsort((both[:, 4], both[:, 3]))][-count:]
        return [
            (known[int(place)], int(step), value, ts)
            for step, value, ts, _, _, place in newest.tolist()
        ]

    def _last_rows(self, key: str, count: int) -> Floats:
        """Step, value, ts, attempt and seq of the last rows of a curve that count."""
        curve, origins = self._shelf.points(self._book, key), self._shelf.origins(self._book, key)
        last = np.arange(len(curve))[-count:]
        if not self._book.lineage.is_single:
            last = np.flatnonzero(self._counted(origins))[-count:]
        return np.hstack([curve[last], origins[last]])

    def _counted(self, origins: Floats) -> NDArray[np.bool_]:
        """Which rows of a curve no later attempt has superseded."""
        return self._book.lineage.counted(origins[:, 1], origins[:, 2])


def _between(curve: Floats, from_step: int | None, to_step: int | None) -> Floats:
    """The points from one step to another, whatever numbers these are."""
    if from_step is not None:
        curve = np.compress(curve[:, 0] >= _in_reach(from_step), curve, axis=0)
    return (
        curve if to_step is None else np.compress(curve[:, 0] <= _in_reach(to_step), curve, axis=0)
    )


def _in_reach(step: int) -> float:
    """A number that is to all steps what the step is, and that a float holds."""
    return float(max(-1, min(step, points.MOST_STEP)))


def _series(key: str, curve: Floats, most: int) -> Series:
    shown = curve[decimate(curve[:, 0], curve[:, 1], most)]
    return Series(
        key=key,
        steps=tuple(shown[:, 0].astype(np.int64).tolist()),
        values=tuple(shown[:, 1].tolist()),
        count=len(curve),
    )


def _stamp(path: Path) -> _Stamp | None:
    """What changes whenever a file does; None if there is none."""
    with suppress(FileNotFoundError):
        status = path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns
    return None


def _seal(path: Path, offset: int) -> int:
    """A checksum of what is before an offset, which no other event file has there."""
    before = max(0, offset - _SEAL_BYTES)
    return zlib.crc32(regular.part(path, before, offset - before))
