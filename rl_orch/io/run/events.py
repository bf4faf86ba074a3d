"""The event file of a run: one JSON object a line, appended by one writer, read by anyone.

Writing, reading, following a file as it grows, and folding the attempts of a run into one history.
What the events mean is not decided here.
"""

import json
import math
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self

from rl_orch.errors import RlctlError
from rl_orch.io.files import regular
from rl_orch.records import Event, EventKind

LINE_BYTES = 1 << 20
TAIL_BYTES = 4 << 20
_BUFFER_BYTES = 1 << 16
_DEPTH = 100


class EventWriter:
    """Appends the events of one attempt; `seq` counts them from 1. Any thread may emit.

    What was emitted reaches the file in whole lines, with one append for each flush, so that a
    superseded attempt that is still alive cannot write into the middle of another's line.
    """

    def __init__(
        self,
        path: Path,
        *,
        run: str,
        attempt: int,
        seq: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`seq` is the number of the attempt's last event so far."""
        self._path = path
        self._run = run
        self._attempt = attempt
        self._pid = os.getpid()
        self._clock = clock
        self._seq = seq
        self._pending = bytearray()
        self._lock = threading.RLock()
        self._fd: int | None = regular.appendable(path)
        if _is_torn(self._fd):
            self._pending += b"\n"

    def emit(
        self,
        kind: EventKind | str,
        key: str,
        value: Any = None,
        *,
        step: int,
        tags: Mapping[str, Any] | None = None,
    ) -> Event:
        """The event as a reader will see it. It is buffered until `flush`, or until 64 KiB wait.

        A negative step, a value JSON cannot hold or a line over 1 MiB is a ValueError or a
        TypeError, and leaves no trace.
        """
        if step < 0:
            raise ValueError(f"event {key!r} has step {step}; a step is 0 or more")
        with self._lock:
            event = Event(
                seq=self._seq + 1,
                attempt=self._attempt,
                ts=self._clock(),
                run=self._run,
                step=int(step),
                kind=EventKind(kind),
                key=key,
                value=_plain(value),
                tags=_plain(tags) if tags else {},
            )
            self._append(event)
            return event

    @property
    def seq(self) -> int:
        """The number of the newest event; 0 before the first."""
        return self._seq

    def flush(self) -> None:
        """Hand what is buffered to the operating system: it survives the death of this process."""
        with self._lock:
            self._write_pending()

    def sync(self) -> None:
        """Flush, then wait until the file is on the disk: it survives a power cut."""
        with self._lock:
            self._write_pending()
            try:
                os.fsync(self._open_fd())
            except OSError as error:
                raise self._unwritable(error) from error

    def close(self) -> None:
        """Flush and close. Closing again does nothing."""
        with self._lock:
            if self._fd is None:
                return
            try:
                self._write_pending()
            finally:
                os.close(self._fd)
                self._fd = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _append(self, event: Event) -> None:
        line = event.model_dump_json().encode() + b"\n"
        if len(line) > LINE_BYTES:
            raise ValueError(
                f"event {event.key!r} takes {len(line)} bytes; an event holds at most {LINE_BYTES}"
            )
        self._open_fd()
        self._seq = event.seq
        self._pending += line
        if len(self._pending) >= _BUFFER_BYTES:
            self._write_pending()

    def _write_pending(self) -> None:
        """Write all that waits. What a full disk refuses stays, and goes with the next flush.

        A copy of this process, as an environment that forks makes one, writes nothing.
        """
        if os.getpid() != self._pid:
            self._pending.clear()
        try:
            while self._pending:
                written = os.write(self._open_fd(), self._pending)
                del self._pending[:written]
        except OSError as error:
            raise self._unwritable(error) from error

    def _open_fd(self) -> int:
        if self._fd is None:
            raise ValueError(f"the event file {self._path} is closed")
        return self._fd

    def _unwritable(self, error: OSError) -> RlctlError:
        return RlctlError(
            f"cannot write the event file {self._path}: {error.strerror}",
            path=str(self._path),
            hint="Free space on that disk or correct its permissions, then resume the run.",
        )


@dataclass(frozen=True, slots=True)
class Tail:
    """New events of a file; where to go on, and how many lines were no events."""

    events: tuple[Event, ...]
    offset: int
    skipped: int = 0


def tail(
    path: Path, offset: int, *, count: int | None = None, words: Collection[bytes] = ()
) -> Tail:
    """The complete lines after a byte offset; as far as 4 MiB and `count` events go.

    A line that is still being written is left for later. A line without an end in 4 MiB is no
    event, and is passed over, at once if it is a hole. A file that does not exist is empty. Where
    `words` are given, lines that have none of them are passed over unread.
    """
    chunk = regular.part(path, offset, TAIL_BYTES)
    end = chunk.rfind(b"\n") + 1
    if end == 0:
        return Tail((), after_endless(path, offset, len(chunk), longest=TAIL_BYTES))
    events: list[Event] = []
    skipped = 0
    start = 0
    while start < end and (count is None or len(events) < count):
        stop = chunk.index(b"\n", start)
        line = chunk[start:stop]
        if words and not any(word in line for word in words):
            start = stop + 1
            continue
        event = parse(line)
        if event is not None:
            events.append(event)
        elif stop > start:
            skipped += 1
        start = stop + 1
    return Tail(tuple(events), offset + start, skipped)


def after_endless(path: Path, offset: int, seen: int, *, longest: int) -> int:
    """The offset to read on from after `seen` bytes without the end of a line: here, if that may
    still come, or after them, where that is more than a line can have; holes in the file have no
    line ends."""
    if seen < longest:
        return offset
    # The byte before the data stays: what follows a hole is the rest of a line, and no event.
    return max(offset + seen, regular.next_data(path, offset + seen) - 1)


class Reader(Iterator[Event]):
    """The events of a file in their order; `skipped` counts the lines so far that were none."""

    def __init__(self, path: Path, words: Collection[bytes] = ()) -> None:
        self._path = path
        self._words = words
        self._offset = 0
        self._batch: Iterator[Event] = iter(())
        self.skipped = 0

    def __next__(self) -> Event:
        while (event := next(self._batch, None)) is None:
            new = tail(self._path, self._offset, words=self._words)
            if new.offset == self._offset:
                raise StopIteration
            self._batch, self._offset = iter(new.events), new.offset
            self.skipped += new.skipped
        return event


def read(path: Path) -> Reader:
    """The events of a file, from its beginning to the last complete line."""
    return Reader(path)


def fold(events: Iterable[Event]) -> list[Event]:
    """One history from the attempts of a run: what a later attempt superseded is left out.

    The newest attempt says in its first event (`state`, `started`, tag `after`) which position of
    which attempt it continues, that attempt says the same of an earlier one, and so on: the events
    up to those positions stay. An event that comes after the start of a newer attempt is late, and
    is left out too. An attempt that names no position continues nothing.
    """
    told = list(events)
    starts: dict[int, tuple[int, int] | None] = {}
    for event in filter(is_start, told):
        starts.setdefault(event.attempt, continued(event))
    _, timely = in_time(told, 0)
    if not timely:
        return []
    lasts = limits(max(event.attempt for event in timely), starts)
    return [event for event in timely if event.seq <= lasts.get(event.attempt, 0)]


def in_time(events: Iterable[Event], newest: int) -> tuple[int, list[Event]]:
    """The newest attempt after some events, and those that did not come after the start of a newer
    one than theirs."""
    timely = []
    for event in events:
        if is_start(event):
            newest = max(newest, event.attempt)
        if event.attempt >= newest:
            timely.append(event)
    return newest, timely


def folded(path: Path, kinds: Collection[EventKind]) -> Iterator[Event]:
    """The events of some kinds in the one history that `fold` would give; not held in memory."""
    history = OneHistory()
    for event in Reader(path, [b'"started"']):
        history.expect(event)
    for event in Reader(path, [f'"{kind}"'.encode() for kind in {*kinds, EventKind.STATE}]):
        if history.counts(event) and event.kind in kinds:
            yield event


class OneHistory:
    """The events that still count, as `fold` would keep them; for a reader of one at a time.

    What is superseded is left out as far as starts were heard of, now or beforehand.
    """

    def __init__(self) -> None:
        self._starts: dict[int, tuple[int, int] | None] = {}
        self._lasts: dict[int, float] = {}
        self._newest = 0

    def expect(self, event: Event) -> None:
        """Know of a start before it is heard; any other event says nothing."""
        if is_start(event) and event.attempt not in self._starts:
            self._starts[event.attempt] = continued(event)
            self._lasts = limits(max(self._starts), self._starts)

    def counts(self, event: Event) -> bool:
        """Whether the next event of the file still counts."""
        self.expect(event)
        if is_start(event):
            self._newest = max(self._newest, event.attempt)
        late = event.attempt < self._newest
        return not late and (not self._lasts or event.seq <= self._lasts.get(event.attempt, 0))


def newest_attempt(path: Path) -> int:
    """The number of the newest attempt that has started; 0 before the first."""
    started = (event.attempt for event in Reader(path, [b'"started"']) if is_start(event))
    return max(started, default=0)


def appended(path: Path, *, run: str) -> EventWriter:
    """A writer that goes on with the events of the newest attempt, which has ended."""
    attempt, size = newest_attempt(path), path.stat().st_size
    last = tail(path, max(0, size - LINE_BYTES)).events
    seq = max((event.seq for event in last if event.attempt == attempt), default=0)
    return EventWriter(path, run=run, attempt=attempt, seq=seq)


def first_gap(events: Iterable[Event]) -> str | None:
    """The first gap or double in folded events: within an attempt, `seq` counts from 1."""
    expected: dict[int, int] = {}
    for event in events:
        wanted = expected.get(event.attempt, 1)
        if event.seq != wanted:
            what = "is there twice" if event.seq < wanted else f"does not follow {wanted - 1}"
            return f"event {event.seq} of attempt {event.attempt} {what}"
        expected[event.attempt] = wanted + 1
        link = continued(event) if is_start(event) else None
        if link is not None and expected.get(link[0], 1) != link[1] + 1:
            return f"event {link[1]} of attempt {link[0]} is missing"
    return None


def is_start(event: Event) -> bool:
    """Whether the event is the first of an attempt."""
    return event.kind is EventKind.STATE and event.key == "started"


def continued(start: Event) -> tuple[int, int] | None:
    """The attempt and the `seq` that a start continues. Only an earlier attempt can be continued:
    the chain ends whatever the file says."""
    match start.tags.get("after"):
        case {"attempt": int(attempt), "seq": int(seq)} if attempt < start.attempt:
            return attempt, seq
    return None


def limits(newest: int, starts: Mapping[int, tuple[int, int] | None]) -> dict[int, float]:
    """For each attempt of the newest one's chain, the last `seq` that still counts."""
    lasts: dict[int, float] = {newest: math.inf}
    link = starts.get(newest)
    while link is not None:
        attempt, seq = link
        lasts[attempt] = seq
        link = starts.get(attempt)
    return lasts


def _is_torn(fd: int) -> bool:
    """Whether a file ends within a line, because its writer died there."""
    size = os.fstat(fd).st_size
    return size > 0 and os.pread(fd, 1, size - 1) != b"\n"


def parse(line: bytes) -> Event | None:
    """The event on a line; None if the line is torn, foreign or out of bounds."""
    try:
        # As `model_validate_json` does; its way there would take a quarter of the time.
        event: Event = Event.__pydantic_validator__.validate_json(line)
        if _is_finite(event.value) and (not event.tags or _is_finite(event.tags)):
            return event
        return event.model_copy(update={"value": _plain(event.value), "tags": _plain(event.tags)})
    except ValueError:
        return None


def _is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    return all(map(_is_finite, value)) if isinstance(value, list) else True


def _plain(value: Any, depth: int = 0) -> Any:
    """The value in JSON's own types, so that what is emitted equals what is read.

    Keys are sorted, numpy becomes plain numbers and lists, numbers that are not finite become
    strings, and halves of a surrogate pair become question marks.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | Integral):
        return int(value)
    if isinstance(value, float | Real):
        return float(value) if math.isfinite(value) else json.dumps(float(value))
    if isinstance(value, str):
        return str(value) if value.isascii() else value.encode("utf-8", "replace").decode()
    if depth == _DEPTH:
        raise ValueError(f"an event's value nests deeper than {_DEPTH} levels")
    if hasattr(value, "tolist"):
        return _plain(value.tolist(), depth + 1)
    if isinstance(value, Mapping):
        return {_plain(str(key)): _plain(value[key], depth + 1) for key in sorted(value, key=str)}
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    raise TypeError(
        f"an event cannot hold a {type(value).__name__}: "
        "numbers, strings, None, lists and mappings only"
    )
