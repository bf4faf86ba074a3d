"""Files of runs as they grow, for many readers at once: the file is the buffer.

One poller looks at the size of every file that somebody follows; each reader has a byte offset of
its own; what was read and encoded once is shared. A reader that stands still holds up nobody.
"""

import asyncio
import logging
import os
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from anyio import to_thread

from rl_orch.errors import NotFound, RlctlError
from rl_orch.io.files import regular
from rl_orch.io.run.events import TAIL_BYTES, after_endless, is_start, parse
from rl_orch.records import Run

PART_BYTES = 64 << 10
LONGEST_LINE = 4 << 20
CACHED_BYTES = 16 << 20
STATE_EVERY = 5
"""Looks at the files for each look at the runs' states."""

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """Where a reader is in a file: a byte offset, and the newest attempt that had begun there."""

    offset: int
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """What follows a place: encoded frames, and the place after them."""

    frames: bytes
    place: StreamPosition


class Starts:
    """Where attempts begin in an event file, found out as far as somebody has asked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._scanned = 0
        self._starts = [StreamPosition(0, 0)]

    def place(self, offset: int) -> StreamPosition:
        """The place at an offset."""
        with self._lock:
            if offset > self._scanned:
                self._scan(offset)
            index = bisect_right(self._starts, offset, key=lambda start: start.offset)
        return StreamPosition(offset, self._starts[index - 1].attempt)

    def _scan(self, until: int) -> None:
        while self._scanned < until:
            chunk = regular.part(self._path, self._scanned, TAIL_BYTES)
            end = chunk.rfind(b"\n") + 1
            self._note_starts(chunk[:end])
            after = self._scanned + end
            if end == 0:
                after = after_endless(self._path, after, len(chunk), longest=TAIL_BYTES)
            if after == self._scanned:
                break
            self._scanned = after

    def _note_starts(self, lines: bytes) -> None:
        offset = self._scanned
        for line in lines.split(b"\n")[:-1]:
            offset += len(line) + 1
            event = parse(line) if b'"started"' in line else None
            if event is not None and is_start(event):
                newest = max(event.attempt, self._starts[-1].attempt)
                self._starts.append(StreamPosition(offset, newest))


Key = tuple[Path, int, int]
"""Where a part begins, and where its reading ends: together with the file, what is in it."""

Encode = Callable[[Sequence[bytes], StreamPosition], Part]
"""Makes a part of some whole lines (without their ends) that follow a place."""


@dataclass(slots=True, eq=False)
class Feed:
    """A file that somebody follows. `size` is how much of it the poller has seen; `removed` says
    that the run is no more, so that nothing will come of it."""

    path: Path
    run: Run
    encode: Encode
    size: int
    starts: Starts
    readers: int = 0
    removed: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self) -> None:
        """Wake every reader that waits; what comes later is another change."""
        self.changed.set()
        self.changed = asyncio.Event()


class FeedHub:
    """Every file that is followed now."""

    def __init__(self, get: Callable[[str], Run], *, poll_s: float) -> None:
        """`get` gives a run by its id, as it is."""
        self._get = get
        self._poll_s = poll_s
        self._feeds: dict[Path, Feed] = {}
        self._parts: OrderedDict[Key, asyncio.Task[Part]] = OrderedDict()
        self._cached_bytes = 0
        self._poller: asyncio.Task[None] | None = None
        self.closing = False

    @asynccontextmanager
    async def follow(self, path: Path, run: Run, encode: Encode) -> AsyncIterator[Feed]:
        """The feed of a file, watched for as long as the context lasts."""
        size = await to_thread.run_sync(_size, path)
        feed = self._feeds.setdefault(path, Feed(path, run, encode, size, Starts(path)))
        feed.run, feed.size = run, max(feed.size, size)
        feed.readers += 1
        if self._poller is None or self._poller.done():
            self._poller = asyncio.create_task(self._poll(), name="poller of feeds")
        try:
            yield feed
        finally:
            feed.readers -= 1
            if not feed.readers:
                self._drop(feed)

    async def part(self, feed: Feed, place: StreamPosition) -> Part:
        """What follows a place, as far as the poller has seen the file; read once for everybody.

        A line that is longer than a part is taken whole.
        """
        window = PART_BYTES
        while True:
            end = min(feed.size, place.offset + window)
            if place.offset >= end:
                return Part(b"", place)
            part = await self._shared(feed, place, end)
            if part.place != place or end < place.offset + window:
                return part
            window *= 2

    def close(self) -> None:
        """Let every reader come to its end."""
        self.closing = True
        for feed in self._feeds.values():
            feed.tell()

    async def _shared(self, feed: Feed, place: StreamPosition, end: int) -> Part:
        """A part that others may have read, or read just now. What is appended changes no part."""
        key = (feed.path, place.offset, end)
        task = self._parts.get(key)
        if task is None:
            reading = to_thread.run_sync(read, feed.path, place, end, feed.encode)
            task = asyncio.create_task(reading)
            self._keep(key, task)
        else:
            self._parts.move_to_end(key)
        # A reader that goes away must not take the others' part with it.
        return await asyncio.shield(task)

    def _keep(self, key: Key, task: "asyncio.Task[Part]") -> None:
        """Remember a part, and forget the oldest ones where that is too much."""
        self._parts[key] = task
        self._cached_bytes += key[2] - key[1]
        while self._cached_bytes > CACHED_BYTES:
            self._forget(next(iter(self._parts)))

        def forget_failure(done: "asyncio.Task[Part]") -> None:
            if done.cancelled() or done.exception() is not None:
                self._forget(key)

        task.add_done_callback(forget_failure)

    def _forget(self, key: Key) -> None:
        if self._parts.pop(key, None) is not None:
            self._cached_bytes -= key[2] - key[1]

    def _drop(self, feed: Feed) -> None:
        self._feeds.pop(feed.path, None)
        for key in [key for key in self._parts if key[0] == feed.path]:
            self._forget(key)

    async def _poll(self) -> None:
        looks = 0
        while self._feeds and not self.closing:
            await asyncio.sleep(self._poll_s)
            looks += 1
            feeds = list(self._feeds.values())
            try:
                seen = await to_thread.run_sync(self._look, feeds, looks % STATE_EVERY == 0)
            except Exception:
                LOG.exception("the files that are followed could not be looked at")
                continue
            for feed, (run, size) in zip(feeds, seen, strict=True):
                has_ended = feed.run.active and (run is None or not run.active)
                feed.run, feed.removed = run or feed.run, run is None
                if size > feed.size or has_ended:
                    feed.size = max(size, feed.size)
                    feed.tell()

    def _look(self, feeds: Sequence[Feed], with_states: bool) -> list[tuple[Run | None, int]]:
        """Each feed's run and the size of its file, the run first: an ended run writes no more.

        None stands for a run that was removed.
        """
        runs: dict[str, Run | None] = {
            feed.run.id: None if feed.removed else feed.run for feed in feeds
        }
        if with_states:
            runs = {run_id: run and self._state(run) for run_id, run in runs.items()}
        return [(runs[feed.run.id], _size(feed.path)) for feed in feeds]

    def _state(self, run: Run) -> Run | None:
        try:
            return self._get(run.id) if run.active else run
        except NotFound:
            return None
        except RlctlError as error:
            LOG.warning("run not looked at: %s: %s", run.id, error)
            return run


def read(path: Path, place: StreamPosition, end: int, encode: Encode) -> Part:
    """The whole lines between a place and `end`, encoded.

    A line without an end is left for later, or passed over where it is longer than a line may be.
    """
    data = regular.part(path, place.offset, end - place.offset)
    whole = data.rfind(b"\n") + 1
    if whole:
        return encode(data[: whole - 1].split(b"\n"), place)
    after = after_endless(path, place.offset, len(data), longest=LONGEST_LINE)
    return Part(b"", StreamPosition(after, place.attempt))


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
