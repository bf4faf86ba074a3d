"""The numbers in an event file as rows of plain numbers, read many lines at a time.

Which rows count once the attempts of a run are folded into one history is `Lineage`; it agrees with
`events.fold`. Where rows are kept is `io/metrics/columns.py`.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic_core import from_json

from rl_orch.io.files import regular
from rl_orch.io.metrics import names
from rl_orch.io.run import events
from rl_orch.records import Event, EventKind, Record

Floats = NDArray[np.float64]
Row: TypeAlias = tuple[Any, int, int, float, str, int, str, str, Any, dict[str, Any]]

WIDTH = 5
"""A row is step, value, ts, attempt and seq, all of which a float64 holds exactly."""

_SLICE = 128
"""Lines that are read at once: few enough for what they become to stay in the processor's cache."""

_FIELDS = ("v", "seq", "attempt", "ts", "run", "step", "kind", "key", "value", "tags")
_TYPES = ({int}, {int}, {int}, {int, float}, {str}, {int}, {str}, {str}, None, {dict})
_KINDS = frozenset(EventKind)
MOST_STEP = 1 << 53
"""What no step, attempt or seq comes to."""


class Lineage(Record):
    """What is known of the attempts whose events have been read so far.

    `starts` says what each continues; `newest` is the newest of them, `top` the newest that any
    event belongs to, and `lowest` the oldest that a number belongs to.
    """

    starts: dict[int, tuple[int, int] | None] = Field(default_factory=dict)
    newest: int = 0
    top: int = 0
    lowest: int | None = None

    def counted(self, attempts: Floats, seqs: Floats) -> NDArray[np.bool_]:
        """Which rows are part of the one history, by their attempt and seq."""
        lasts = events.limits(self.top, self.starts)
        begins = np.concatenate([[0], 1 + np.flatnonzero(attempts[1:] != attempts[:-1])])
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
    """What a file gained: rows by the name of their curve, where to go on, and the lineage then.

    Rows of an attempt that was superseded before they were written are not among them.
    """

    rows: dict[str, Floats]
    lineage: Lineage
    offset: int


def read(path: Path, offset: int, lineage: Lineage) -> EventRows:
    """The rows in the complete lines after a byte offset, as far as 4 MiB go: see `events.tail`."""
    chunk = regular.part(path, offset, events.TAIL_BYTES)
    end = chunk.rfind(b"\n") + 1
    if end == 0:
        after = events.after_endless(path, offset, len(chunk), longest=events.TAIL_BYTES)
        return EventRows({}, lineage, after)
    lines = chunk[:end].split(b"\n")
    sorter = _Sorter(lineage)
    for start in range(0, len(lines), _SLICE):
        sorter.take(_rows([line for line in lines[start : start + _SLICE] if line]))
    return EventRows(sorter.rows(), sorter.lineage(), offset + end)


def has_more(path: Path, offset: int) -> bool:
    """Whether there is anything to read after a byte offset."""
    chunk = regular.part(path, offset, events.TAIL_BYTES)
    return b"\n" in chunk or len(chunk) == events.TAIL_BYTES


class _Sorter:
    """Sorts rows by their curve, and leaves out those that come too late."""

    def __init__(self, lineage: Lineage) -> None:
        self._starts = dict(lineage.starts)
        self._newest, self._top = lineage.newest, lineage.top
        self._lowest = math.inf if lineage.lowest is None else lineage.lowest
        self._curves: defaultdict[str, list[float]] = defaultdict(list)

    def take(self, rows: Iterable[Row]) -> None:
        for _, seq, attempt, ts, _, step, kind, key, value, tags in rows:
            if kind == "state" and key == "started":
                self._start(attempt, tags)
            if attempt < self._newest:
                continue
            if attempt > self._top:
                self._top = attempt
            for name, number in _numbers(kind, key, value, tags):
                self._curves[name].extend((step, number, ts, attempt, seq))
                self._lowest = min(self._lowest, attempt)

    def rows(self) -> dict[str, Floats]:
        """The rows of each curve, in the order of the file."""
        return {
            name: np.array(flat, np.float64).reshape(-1, WIDTH)
            for name, flat in self._curves.items()
        }

    def lineage(self) -> Lineage:
        """What is known of the attempts after all that was taken."""
        lowest = None if math.isinf(self._lowest) else int(self._lowest)
        return Lineage(starts=self._starts, newest=self._newest, top=self._top, lowest=lowest)

    def _start(self, attempt: int, tags: dict[str, Any]) -> None:
        if attempt not in self._starts:
            start = Event(
                seq=1,
                attempt=attempt,
                ts=0.0,
                run="",
                step=0,
                kind="state",
                key="started",
                tags=tags,
            )
            self._starts[attempt] = events.continued(start)
        self._newest = max(self._newest, attempt)


def _numbers(kind: str, key: str, value: Any, tags: dict[str, Any]) -> Iterable[tuple[str, float]]:
    """As `scalars.of_fields`, but quick for what nearly every event is."""
    if type(value) is not float or kind == "episode":
        return names.of_fields(kind, key, value, tags).items()
    name = names.name_of(kind, key)
    return () if name is None else ((name, value),)


def _rows(lines: Sequence[bytes]) -> Iterable[Row]:
    """The rows of some lines: all at once where they are as we write them, else one by one."""
    try:
        return _read_together(lines)
    except (ValueError, KeyError, TypeError, OverflowError):
        known = (events.parse(line) for line in lines)
        return [_row(event) for event in known if event is not None]


def _read_together(lines: Sequence[bytes]) -> Iterable[Row]:
    """The rows of lines that are one JSON array when put together; an error where one is odd."""
    text = b"\n".join(lines)
    if not lines or not text.startswith(b"{") or not text.endswith(b"}"):
        raise ValueError("not an object on every line")
    documents = from_json(b"[%b]" % text.replace(b"\n", b","))
    if len(documents) != len(lines) or text.count(b"}\n{") != len(lines) - 1:
        raise ValueError("not an object on every line")
    rows = list(map(itemgetter(*_FIELDS), documents))
    columns = list(zip(*rows, strict=True))
    for column, types in zip(columns, _TYPES, strict=True):
        if types is not None and not set(map(type, column)) <= types:
            raise TypeError("a field is of another type than it is written with")
    _refuse_odd(*columns[:7])
    return rows


def _refuse_odd(
    versions: Sequence[int],
    seqs: Sequence[int],
    attempts: Sequence[int],
    times: Sequence[float],
    _runs: Sequence[str],
    steps: Sequence[int],
    kinds: Sequence[str],
) -> None:
    """Raise where a field is out of the bounds that a reader of events sets."""
    is_odd = (
        set(versions) != {1}
        or min(seqs) < 1
        or min(*attempts, *steps) < 0
        or max(*seqs, *attempts, *steps) >= MOST_STEP
        or not math.isfinite(sum(times))
        or not _KINDS.issuperset(kinds)
    )
    if is_odd:
        raise ValueError("a field is out of its bounds")


def _row(event: Event) -> Row:
    return (
        event.v,
        event.seq,
        event.attempt,
        event.ts,
        event.run,
        event.step,
        event.kind,
        event.key,
        event.value,
        event.tags,
    )
