"""The index of a run's events: what a curve of a million points is answered from.

It is derived from the event file and kept in one SQLite file of the run directory. Whatever is
wrong with that, it is built anew; where it cannot be written, answers come from the event file.
"""

import os
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

import numpy as np

from rl_orch.errors import BadInput, RlctlError
from rl_orch.io.files import regular
from rl_orch.io.metrics import database, event_rows
from rl_orch.io.metrics.database import IndexCorrupt, IndexHead, MetricDatabase
from rl_orch.io.metrics.decimate import LEAST_POINTS, decimate
from rl_orch.io.metrics.event_rows import Floats
from rl_orch.io.metrics.series import POINTS, Key, Series
from rl_orch.io.metrics.snapshot import IndexSnapshot, chunks
from rl_orch.io.run import history
from rl_orch.io.run.directory import RunDir
from rl_orch.records import Event, EventKind, History
from rl_orch.records.events import MOST

MOST_POINTS = 1_000_000
"""Points that one answer holds at most."""

_SEAL_BYTES = 512
_TRIES = 3
T = TypeVar("T")


class Index:
    """The numbers of one run, folded into one history as `events.fold` does.

    Any number of threads and processes may ask and add at once: who is overtaken goes on from
    where the other came.
    """

    def __init__(self, run_dir: Path) -> None:
        self._folder = run_dir
        self._events = RunDir(run_dir).events

    def catch_up(self, most_bytes: int | None = None) -> bool:
        """Take in what the event file gained, as far as so many bytes go; whether the end was seen.

        Work ahead of need: where nothing can be written, or while another is at it, nothing is
        done.
        """
        try:
            with closing(self._database(patience_s=0.0)) as stored:
                return self._advance(stored, most_bytes)
        except IndexCorrupt:
            with suppress(OSError):
                database.discard(self._folder)
            return False
        except (OSError, RlctlError):
            return False

    def query(
        self,
        keys: Sequence[str] = (),
        points: int = POINTS,
        from_step: int | None = None,
        to_step: int | None = None,
    ) -> tuple[Series, ...]:
        """The curves that are named, or all of them by name; each with at most so many points.

        A curve that the run has told nothing of is empty.
        """
        if points < LEAST_POINTS:
            raise BadInput(f"points is {points}; must be at least {LEAST_POINTS}", path="points")

        def ask(snapshot: IndexSnapshot) -> tuple[Series, ...]:
            wanted = tuple(dict.fromkeys(keys)) or tuple(sorted(snapshot.counts))
            _refuse_more_than_an_answer_holds(snapshot, wanted, points)
            curves = ((key, _between(snapshot.curve(key), from_step, to_step)) for key in wanted)
            return tuple(_series(key, curve, points) for key, curve in curves if keys or len(curve))

        return self._answer(ask)

    def keys(self) -> tuple[Key, ...]:
        """Every curve with its number of points and the last of them, by name."""

        def ask(snapshot: IndexSnapshot) -> tuple[Key, ...]:
            curves = ((key, snapshot.curve(key)) for key in sorted(snapshot.counts))
            return tuple(
                Key(key=key, count=len(curve), last_step=int(curve[-1, 0]), last_value=curve[-1, 1])
                for key, curve in curves
                if len(curve)
            )

        return self._answer(ask)

    def newest(self, count: int, keys: Sequence[str] = ()) -> list[tuple[str, int, float, float]]:
        """The newest points of some curves, or of all: key, step, value and ts, oldest first."""

        def ask(snapshot: IndexSnapshot) -> list[tuple[str, int, float, float]]:
            asked = [key for key in snapshot.counts if not keys or key in keys]
            newest = np.empty((0, event_rows.WIDTH + 1))
            for place, key in enumerate(asked):
                rows = np.insert(snapshot.rows(key)[-count:], event_rows.WIDTH, place, axis=1)
                both = np.concatenate([newest, rows])
                newest = both[np.lexsort((both[:, 4], both[:, 3]))][-count:]
            return [
                (asked[int(place)], int(step), value, ts)
                for step, value, ts, _, _, place in newest.tolist()
            ]

        return self._answer(ask)

    def events(self, *kinds: EventKind) -> list[Event]:
        """The events of some kinds, of those that are kept whole, in their order."""
        return self._answer(lambda snapshot: snapshot.events(kinds))

    def history(self) -> History:
        """The episodes and evaluations of the run."""

        def ask(snapshot: IndexSnapshot) -> History:
            evaluations = history.of_events(snapshot.events((EventKind.EVAL,))).evaluations
            return History(snapshot.episodes(), evaluations)

        return self._answer(ask)

    def _answer(self, ask: Callable[[IndexSnapshot], T]) -> T:
        """The answer to a question, once the index is up to date and undamaged."""
        try:
            for _ in range(_TRIES):
                try:
                    with closing(self._database(database.PATIENCE_S)) as stored:
                        return self._asked(stored, ask)
                except IndexCorrupt:
                    database.discard(self._folder)
        except OSError:
            pass
        try:
            with closing(MetricDatabase()) as in_memory:
                return self._asked(in_memory, ask)
        except (OSError, IndexCorrupt) as error:
            raise RlctlError(
                f"cannot read the event file {self._events}: {error}",
                path=str(self._events),
            ) from error

    def _asked(self, stored: MetricDatabase, ask: Callable[[IndexSnapshot], T]) -> T:
        self._advance(stored)
        with stored.snapshot():
            return ask(IndexSnapshot(stored))

    def _database(self, patience_s: float) -> MetricDatabase:
        """The index that is kept; a run that has told nothing gets none."""
        kept = regular.size(self._events) > 0 or os.path.lexists(self._folder / database.FILE)
        return MetricDatabase.of_run(self._folder, patience_s) if kept else MetricDatabase()

    def _advance(self, stored: MetricDatabase, most_bytes: int | None = None) -> bool:
        """Take in chunk after chunk; whether the end was seen."""
        head = stored.head()
        until = None if most_bytes is None else head.offset + most_bytes
        while until is None or head.offset < until:
            if _seal(self._events, head.offset) != head.seal:
                raise IndexCorrupt("it is about another event file")
            batch = event_rows.read(self._events, head.offset, head.lineage)
            if batch.offset == head.offset:
                return True
            seal = _seal(self._events, batch.offset)
            after = IndexHead(offset=batch.offset, seal=seal, lineage=batch.lineage)
            stored.add(head, after, chunks(batch, stored))
            head = stored.head()
        return False


def _refuse_more_than_an_answer_holds(
    snapshot: IndexSnapshot, keys: Sequence[str], most: int
) -> None:
    counts = [snapshot.counts[key] for key in keys if key in snapshot.counts]
    total = sum(min(count, most) for count in counts)
    if total > MOST_POINTS:
        raise BadInput(
            f"that is up to {total} points of {len(counts)} curves; "
            f"an answer holds at most {MOST_POINTS}",
            path="points",
            hint="Name the keys that you want, or ask for fewer points of each.",
        )


def _between(curve: Floats, from_step: int | None, to_step: int | None) -> Floats:
    """The points from one step to another, whatever numbers these are."""
    if from_step is not None:
        curve = np.compress(curve[:, 0] >= _in_reach(from_step), curve, axis=0)
    return (
        curve if to_step is None else np.compress(curve[:, 0] <= _in_reach(to_step), curve, axis=0)
    )


def _in_reach(step: int) -> float:
    """A number that is to all steps what the step is; and that a float holds."""
    return float(max(-1, min(step, MOST)))


def _series(key: str, curve: Floats, most: int) -> Series:
    shown = curve[decimate(curve[:, 0], curve[:, 1], most)]
    return Series(
        key=key,
        steps=tuple(shown[:, 0].astype(np.int64).tolist()),
        values=tuple(shown[:, 1].tolist()),
        count=len(curve),
    )


def _seal(path: Path, offset: int) -> int:
    """A checksum of what is before an offset, which no other event file has there."""
    before = max(0, offset - _SEAL_BYTES)
    return zlib.crc32(regular.part(path, before, offset - before))
