"""Telemetry: what carries the events of a run to the places where people look at them.

A sink can be slow, dead or restarted; the run does not notice, and what was dropped is counted.
"""

import fcntl
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from rl_orch.errors import Damaged
from rl_orch.io.files import private, regular
from rl_orch.io.run import events
from rl_orch.io.run.directory import RunDir
from rl_orch.io.trackers import position
from rl_orch.io.trackers.position import Position
from rl_orch.records import Event, EventKind, Run
from rl_orch.spec.model import Spec

_SLICE = 1024


class Sink(Protocol):
    """A place where events go. It may raise, and is asked again later.

    Events can come a second time: those of a batch that was refused, and those that a process which
    died had flushed, but not noted. Events of kind `checkpoint` and `artifact` tell of files:
    `file_of` says where each is.
    """

    def write(self, batch: Sequence[Event]) -> None:
        """Take some events, in their order; they may wait in memory until `flush`."""

    def flush(self) -> None:
        """Return once every event taken is where it belongs."""

    def close(self, end: Run | None = None) -> None:
        """Let go of everything. Called once, after the last flush.

        `end` is the run as it has ended; None while it goes on, or is yet to be gone on with.
        """


class Tracker(Protocol):
    """A kind of sink, found by its name in `store.trackers`.

    The run has what names it elsewhere (parent, role, tags), the spec its parameters.
    """

    def check(self, options: Mapping[str, Any]) -> None:
        """Raise `BadInput` if it does not take these options."""

    def __call__(self, run: Run, spec: Spec, options: Mapping[str, Any]) -> Sink:
        """The sink of a run: opened now, and again whenever another process goes on with it."""


def file_of(run: Run, event: Event) -> Path | None:
    """The file or folder that an event tells of, if it is in the run's directory still."""
    if event.kind not in (EventKind.CHECKPOINT, EventKind.ARTIFACT):
        return None
    root = Path(run.path).resolve()
    folder = RunDir(root).checkpoints if event.kind is EventKind.CHECKPOINT else root
    with suppress(OSError, ValueError, TypeError):
        path = (folder / event.value).resolve(strict=True)
        return path if path.is_relative_to(root) else None
    return None


@dataclass(frozen=True, slots=True)
class Delivered:
    """The result of a pump: events flushed, lines left undelivered, and the error that stands."""

    written: int
    dropped: int
    error: str | None = None


class Pump:
    """A thread that opens one sink and follows the event file of a run into it.

    Its position is noted in the run directory (`position.note_file`) after each flush, and the next
    pump of that name goes on from there; two at once are kept apart by a lock. A pump without a
    name notes nothing, and begins near the end. What a superseded attempt wrote late is left out.
    One that tries `once` gives up at the first error.
    """

    def __init__(
        self,
        run_dir: Path,
        name: str | None,
        opener: Callable[[], Sink],
        *,
        once: bool = False,
        poll_s: float = 0.5,
        retry_s: float = 0.5,
        longest_retry_s: float = 30.0,
    ) -> None:
        self.name = name or "memory"
        self._events = run_dir / "events.jsonl"
        self._note = None if name is None else position.note_file(run_dir, name)
        self._opener = opener
        self._once = once
        self._poll_s = poll_s
        self._retry_s = retry_s
        self._longest_retry_s = longest_retry_s
        self._progress = Position()
        self._lock: BinaryIO | None = None
        self._error: str | None = None
        self._end: Run | None = None
        self._stopping = threading.Event()
        self._gave_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"sink {name}", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether all was delivered or given up."""
        return not self._thread.is_alive()

    @property
    def ends(self) -> bool:
        """Whether it was told how the run has ended."""
        return self._end is not None

    def finish(self, end: Run | None = None) -> None:
        """Deliver what is left and close the sink, however long that takes; returns at once.

        `end` is the run, if it has ended.
        """
        self._end = end
        self._stopping.set()

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
        return Delivered(
            progress.written, position.lines_after(self._events, progress.offset), error
        )

    def _run(self) -> None:
        sinks: list[Sink] = []
        try:
            if self._insist(self._take_place) and self._insist(partial(self._open, sinks)):
                self._follow(sinks[0])
        finally:
            if self._lock is not None:
                self._lock.close()

    def _take_place(self) -> None:
        """Be the only pump of that name here, or raise; and read how far it has come."""
        if self._note is None:
            self._progress = position.near_end(self._events)
            return
        try:
            self._lock = _locked(self._note.with_suffix(".lock"))
        finally:
            self._progress = position.read(self._note)  # Who had the lock may have gone on.

    def _open(self, sinks: list[Sink]) -> None:
        sinks.append(self._opener())

    def _follow(self, sink: Sink) -> None:
        self._keep(self._progress)
        while not self._gave_up.is_set():
            stopping = self._stopping.is_set()
            batch = self._next_batch()
            if batch.offset != self._progress.offset:
                self._deliver(sink, batch)
            elif stopping:
                break
            else:
                self._stopping.wait(self._poll_s)
        end = None if self._gave_up.is_set() else self._end
        if self._succeeds(partial(sink.close, end)) and end is not None:
            self._keep(replace(self._progress, ended=True))

    def _next_batch(self) -> events.Tail:
        try:
            return events.tail(self._events, self._progress.offset, count=_SLICE)
        except (OSError, Damaged) as error:
            self._error = str(error)
            return events.Tail((), self._progress.offset)

    def _deliver(self, sink: Sink, batch: events.Tail) -> None:
        """Write and flush a batch, however often that takes; leave it undone if time is over."""
        attempt, timely = events.in_time(batch.events, self._progress.attempt)
        if self._insist(partial(sink.write, timely)) and self._insist(sink.flush):
            written = self._progress.written + len(timely)
            self._keep(Position(batch.offset, attempt, written))

    def _insist(self, action: Callable[[], None]) -> bool:
        """Whether the action succeeded before time was over, or the run removed."""
        delay_s = self._retry_s
        while not self._gave_up.is_set() and self._events.parent.is_dir():
            before, stopping = self._error, self._stopping.is_set()
            if self._succeeds(action):
                self._error = None
                return True
            if self._error != before and self._lock is not None:
                self._keep(self._progress, self._error)
            if self._once:
                self._gave_up.set()
            elif stopping:
                self._gave_up.wait(delay_s)
            elif self._stopping.wait(delay_s):  # The last effort begins at once.
                delay_s = self._retry_s
                continue
            delay_s = min(2 * delay_s, self._longest_retry_s)
        return False

    def _succeeds(self, action: Callable[[], None]) -> bool:
        try:
            action()
        except (Exception, SystemExit) as error:
            self._error = f"{type(error).__name__}: {error}"
            return False
        return True

    def _keep(self, progress: Position, error: str | None = None) -> None:
        """Note how far the sink has come. Where that cannot be noted, this is the error; of a run
        that was removed, nothing is, and nothing by a pump that does not have the lock."""
        self._progress = progress
        if self._note is None or not self._events.parent.is_dir():
            return
        try:
            if self._lock is None:
                raise OSError(f"{self._note.with_suffix('.lock')} cannot be made")
            position.write(self._note, progress, error)
        except OSError as problem:
            self._error = error or f"its position is not noted: {problem}"


def _locked(path: Path) -> BinaryIO | None:
    """A lock that nobody else has, or an error; None where no file can be made."""
    try:
        private.inner_folder(path.parent)
        file = regular.appender(path)
    except (OSError, Damaged):
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise
    return file
