"""The newest numbers of runs: a ring in memory for each run at work, and the files for the rest.

A ring answers only where it holds all that is asked for, so that both give the same answer.
"""

import threading
from collections import deque
from collections.abc import Collection, Sequence
from itertools import islice
from pathlib import Path

from rl_orch import plugins
from rl_orch.errors import BadInput
from rl_orch.io.metrics import names
from rl_orch.io.run import events
from rl_orch.records import Event, Record

HELD = 5_000
"""Numbers that are held in memory of one run, whatever they are called."""

MOST = 10_000
"""Numbers that can be asked for at once."""

Row = tuple[str, int, float, float]
"""Key, step, value and ts."""


class TrainingStep(Record):
    """One number of a run: the curve it is on, its step, and its time."""

    step: int
    key: str
    value: float
    ts: float


class Recent:
    """The newest numbers of runs at work. Any thread may call."""

    def __init__(self, held: int = HELD) -> None:
        self._held = held
        self._rings: dict[str, _Ring] = {}
        self._lock = threading.Lock()

    def take(self, run_id: str, news: Sequence[Event]) -> None:
        """Take in the events of a run since the last ones."""
        with self._lock:
            ring = self._rings.setdefault(run_id, _Ring(self._held))
            for event in news:
                ring.take(event)

    def forget(self, run_id: str) -> None:
        """Let go of a run."""
        with self._lock:
            self._rings.pop(run_id, None)

    def recent(
        self, run_id: str, count: int, keys: Sequence[str] = ()
    ) -> list[TrainingStep] | None:
        """The newest numbers of a run, oldest first; None where the files must be asked."""
        refuse_count(count)
        with self._lock:
            ring = self._rings.get(run_id)
            rows = [] if ring is None else ring.newest(count, keys)
        return list(map(_training_step, rows)) if len(rows) == count else None


def of_run(path: Path, count: int, keys: Sequence[str] = ()) -> list[TrainingStep]:
    """The newest numbers of the run in a directory, oldest first: all curves, or those named."""
    refuse_count(count)
    index = plugins.part("metric index").Index(path)
    return [_training_step(row) for row in index.newest(count, keys)]


def refuse_count(count: int) -> None:
    """Raise unless so many numbers can be asked for."""
    if not 1 <= count <= MOST:
        raise BadInput(f"count is {count}; must be from 1 to {MOST}", path="count")


class _Ring:
    """The newest numbers of one run; all of the newest attempt that has been seen to start."""

    def __init__(self, held: int) -> None:
        self._rows: deque[Row] = deque(maxlen=held)
        self._attempt = 0

    def take(self, event: Event) -> None:
        """Take in one event. A new attempt may supersede anything, so nothing before it stays."""
        is_newer = event.attempt > self._attempt
        if is_newer or (events.is_start(event) and event.attempt == self._attempt):
            self._rows.clear()
        self._attempt = max(self._attempt, event.attempt)
        if event.attempt == self._attempt:
            for key, value in names.of_event(event):
                self._rows.append((key, event.step, value, event.ts))

    def newest(self, count: int, keys: Collection[str]) -> list[Row]:
        """The newest rows of some curves, or of all, oldest first."""
        rows = (row for row in reversed(self._rows) if not keys or row[0] in keys)
        return list(islice(rows, count))[::-1]


def _training_step(row: Row) -> TrainingStep:
    key, step, value, ts = row
    return TrainingStep(step=step, key=key, value=value, ts=ts)
