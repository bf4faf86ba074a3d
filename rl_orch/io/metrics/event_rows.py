"""The numbers in an event file as plain rows, read many lines at a time.

Which rows count once the attempts of a run are folded into one history is `Lineage`; it agrees with
`events.fold`. Where they are kept is `io/metrics/database.py`.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from rl_orch.io.files import regular
from rl_orch.io.metrics import names
from rl_orch.io.run import events
from rl_orch.io.run.history import count_of, number_of
from rl_orch.records import Event, EventKind, Record

Floats = NDArray[np.float64]

WIDTH = 5
"""A row is step, value, ts, attempt and seq, all of which a float64 holds exactly."""

EPISODE_WIDTH = 6
WHOLE = frozenset({EventKind.STATE, EventKind.EVAL, EventKind.CHECKPOINT, EventKind.GUARDRAIL})
"""Kinds of events that are few and say more than a number: their lines are kept."""


class Lineage(Record):
    """The attempts whose events have been read so far, and what each continues.

    `starts` says what each continues; `newest` is the newest of them, `top` the newest that any
    event belongs to, and `lowest` the oldest that a number belongs to.
    """

    starts: dict[int, tuple[int, int] | None] = Field(default_factory=dict)
    newest: int = 0
    top: int = 0
    lowest: int | None = None

    def counted(self, attempts: Floats, seqs: Floats) -> NDArray[np.bool_]:
        """Whether each row is part of the one history, by its attempt and seq."""
        lasts = events.limits(self.top, self.starts)
        begins = np.flatnonzero(np.diff(attempts, prepend=np.nan))
        lengths = np.diff(begins, append=len(attempts))
        last = [lasts.get(int(attempt), 0) for attempt in attempts[begins]]
        counted: NDArray[np.bool_] = seqs <= np.repeat(np.array(last, np.float64), lengths)
        return counted

    @property
    def is_single(self) -> bool:
        """Whether all numbers are from one attempt, and nothing supersedes it."""
        return self.lowest is None or self.lowest == self.top


@dataclass(frozen=True, slots=True)
class EventRows:
    """Rows that a file gained, where to go on, and the lineage then.

    `curves` are rows by the name of their curve; `episodes` are rows of step, return, length, env,
    attempt and seq; `lines` are those of events of the kinds in WHOLE. What belongs to an attempt
    that was superseded before it was written is not among them.
    """

    offset: int
    lineage: Lineage
    curves: dict[str, Floats]
    episodes: Floats
    lines: bytes


def read(path: Path, offset: int, lineage: Lineage) -> EventRows:
    """The rows in the complete lines after a byte offset; as far as 4 MiB go: see `events.tail`."""
    chunk = regular.part(path, offset, events.TAIL_BYTES)
    end = chunk.rfind(b"\n") + 1
    if end == 0:
        after = events.after_endless(path, offset, len(chunk), longest=events.TAIL_BYTES)
        return _Sorter(lineage).rows(after)
    sorter = _Sorter(lineage)
    for line in chunk[:end].split(b"\n"):
        event = events.parse(line)
        if event is not None:
            sorter.take(event, line)
    return sorter.rows(offset + end)


class _Sorter:
    """Sorts rows by their curve, and leaves out those that come too late."""

    def __init__(self, lineage: Lineage) -> None:
        self._starts = dict(lineage.starts)
        self._newest, self._top = lineage.newest, lineage.top
        self._lowest = math.inf if lineage.lowest is None else lineage.lowest
        self._curves: defaultdict[str, list[float]] = defaultdict(list)
        self._episodes: list[float] = []
        self._lines: list[bytes] = []

    def take(self, event: Event, line: bytes) -> None:
        attempt, kind = event.attempt, event.kind
        if events.is_start(event):
            self._starts.setdefault(attempt, events.continued(event))
            self._newest = max(self._newest, attempt)
        if attempt < self._newest:
            return
        if attempt > self._top:
            self._top = attempt
        for name, number in names.of_event(event):
            self._curves[name].extend((event.step, number, event.ts, attempt, event.seq))
            if attempt < self._lowest:
                self._lowest = attempt
        if kind in WHOLE:
            self._lines.append(line)
        elif kind is EventKind.EPISODE and (ret := number_of(event.value)) is not None:
            length, env = (count_of(event.tags.get(name)) for name in ("length", "env"))
            self._episodes.extend((event.step, ret, length, env, attempt, event.seq))

    def rows(self, offset: int) -> EventRows:
        """All rows that were taken, in the order of the file; and what is known of the attempts
        then."""
        lowest = None if math.isinf(self._lowest) else int(self._lowest)
        return EventRows(
            offset,
            Lineage(starts=self._starts, newest=self._newest, top=self._top, lowest=lowest),
            {name: _table(flat, WIDTH) for name, flat in self._curves.items()},
            _table(self._episodes, EPISODE_WIDTH),
            b"".join(b"%b\n" % line for line in self._lines),
        )


def _table(flat: Sequence[float], width: int) -> Floats:
    return np.array(flat, np.float64).reshape(-1, width)
