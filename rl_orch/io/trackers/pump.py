"""Telemetry: what carries the events of a run to the places where people look at them.

A sink can be slow, dead or restarted; the run does not notice, and what was dropped is counted.
"""

import json
import os
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from rl_orch.errors import BadInput, Damaged
from rl_orch.io.files import private, regular
from rl_orch.io.run import events
from rl_orch.records import Event

_SLICE = 1024
_CHUNK_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Sink(Protocol):
    """A place where events go. It may raise, and is asked again later.

    Events can come a second time: those of a batch that was refused, and those that a process which
    died had flushed, but not noted.
    """

    def write(self, batch: Sequence[Event]) -> None:
        """Take some events, in their order; they may wait in memory until `flush`."""

    def flush(self) -> None:
        """Return once every event taken is where it belongs."""

    def close(self) -> None:
        """Let go of everything. Called once, after the last flush."""


@dataclass(frozen=True, slots=True)
class Tee:
    """Several sinks as one, told in their order. A batch that one refuses comes again, so only
    the first may refuse any."""

    sinks: tuple[Sink, ...]

    def write(self, batch: Sequence[Event]) -> None:
        """Tell all of them."""
        for sink in self.sinks:
            sink.write(batch)

    def flush(self) -> None:
        """Return once all of them have kept what they took."""
        for sink in self.sinks:
            sink.flush()

    def close(self) -> None:
        """Close all of them."""
        for sink in self.sinks:
            sink.close()


@dataclass(frozen=True, slots=True)
class Delivered:
    """The result of a pump: events flushed, lines left undelivered, and the error that stands."""

    written: int
    dropped: int
    error: str | None = None


class Pump:
    """A thread that follows the event file of a run into one sink.

    Its position is noted in `sinks/<name>.json` of the run directory after each flush, and the next
    pump of that name goes on from there. What a superseded attempt wrote late is left out.
    """

    def __init__(
        self,
        run_dir: Path,
        name: str,
        sink: Sink,
        *,
        poll_s: float = 0.5,
        retry_s: float = 0.5,
        longest_retry_s: float = 30.0,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise BadInput(f"a sink cannot be named {name!r}; letters, digits, . _ - only")
        self._events = run_dir / "events.jsonl"
        self._note = run_dir / "sinks" / f"{name}.json"
        self._sink = sink
        self._poll_s = poll_s
        self._retry_s = retry_s
        self._longest_retry_s = longest_retry_s
        self._progress = _read_note(self._note)
        self._error: str | None = None
        self._stopping = threading.Event()
        self._gave_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"sink {name}", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> Delivered:
        """Deliver what is left and close the sink; or give up when the time is over.

        A sink that hangs is left to itself: its thread does not keep the process alive.
        """
        self._stopping.set()
        self._thread.join(timeout_s)
        self._gave_up.set()
        progress, error = self._progress, self._error
        if self._thread.is_alive() and error is None:
            error = f"the sink was not done within {timeout_s:g} s"
        return Delivered(progress.written, _count_lines(self._events, progress.offset), error)

    def _run(self) -> None:
        while not self._gave_up.is_set():
            stopping = self._stopping.is_set()
            batch = self._next_batch()
            if batch.offset != self._progress.offset:
                self._deliver(batch)
            elif stopping:
                break
            else:
                self._stopping.wait(self._poll_s)
        self._succeeds(self._sink.close)

    def _next_batch(self) -> events.Tail:
        try:
            return events.tail(self._events, self._progress.offset, count=_SLICE)
        except (OSError, Damaged) as error:
            self._error = str(error)
            return events.Tail((), self._progress.offset)

    def _deliver(self, batch: events.Tail) -> None:
        """Write and flush a batch, however often that takes; leave it undone if time is over."""
        attempt, timely = events.in_time(batch.events, self._progress.attempt)
        taken = self._insist(partial(self._sink.write, timely))
        if not taken or not self._insist(self._sink.flush):
            return
        written = self._progress.written + len(timely)
        self._progress = _Progress(batch.offset, attempt, written)
        with suppress(OSError):
            _write_note(self._note, self._progress)

    def _insist(self, action: Callable[[], None]) -> bool:
        """Whether the action succeeded before time was over; it is repeated until then."""
        delay_s = self._retry_s
        while not self._gave_up.is_set():
            if self._succeeds(action):
                self._error = None
                return True
            if self._stopping.is_set():
                self._gave_up.wait(self._retry_s)
            else:
                self._stopping.wait(delay_s)
            delay_s = min(2 * delay_s, self._longest_retry_s)
        return False

    def _succeeds(self, action: Callable[[], None]) -> bool:
        try:
            action()
        except (Exception, SystemExit) as error:
            self._error = f"{type(error).__name__}: {error}"
            return False
        return True


@dataclass(frozen=True, slots=True)
class _Progress:
    """The progress of a pump: a byte offset, and the newest attempt that had started there."""

    offset: int
    attempt: int
    written: int = 0


def _read_note(path: Path) -> _Progress:
    """The progress that was noted; the beginning if there is no note, or none that can be read."""
    with suppress(OSError, ValueError, RecursionError):
        match json.loads(regular.read(path)):
            case {"offset": int(offset), "attempt": int(attempt)} if offset >= 0:
                return _Progress(offset, attempt)
    return _Progress(0, 0)


def _write_note(path: Path, progress: _Progress) -> None:
    private.inner_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    note = {"offset": progress.offset, "attempt": progress.attempt}
    regular.write(temporary, json.dumps(note).encode())
    os.replace(temporary, path)


def _count_lines(path: Path, offset: int) -> int:
    """The complete lines after an offset, counted without a look at what they say."""
    with suppress(OSError), regular.reader(path) as file:
        file.seek(offset)
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(_CHUNK_BYTES), b""))
    return 0
