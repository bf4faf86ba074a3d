"""Signs of life: a run process touches a file once a second, and its supervisor sees it change.

Whether a process lives is seen by whether the time in the file changes, never by which time it is,
so that clocks may jump. What the file says is how far a training is, between its events.
"""

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rl_orch.io.files import regular
from rl_orch.records.events import MOST

BEAT_S = 1.0
LENGTH = 80
"""Bytes of what a beat says, always as many, so that it is written over and never cut."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The step that an attempt has reached, and its steps a second so far."""

    attempt: int
    step: int
    sps: float | None


@dataclass(slots=True)
class Pulse:
    """The step of an attempt under way: the training notes it, the heartbeat tells it."""

    attempt: int
    timer: Callable[[], float] = time.monotonic
    step: int | None = None
    _began: tuple[int, float] = field(default=(0, 0.0))

    def reached(self, step: int) -> None:
        """Note the step; the first one is where the attempt begins."""
        if self.step is None:
            self._began = step, self.timer()
        self.step = step

    def beat(self) -> Beat | None:
        """The beat that is due; None before the attempt has begun."""
        step, (first, since) = self.step, self._began
        if step is None:
            return None
        seconds = self.timer() - since
        return Beat(self.attempt, step, (step - first) / seconds if step > first else None)


@contextmanager
def beating(file: Path, pulse: Pulse | None = None) -> Iterator[None]:
    """Touch the file once a second, in a thread, as long as this lasts."""
    ended = threading.Event()
    arguments = (file, ended, pulse)
    thread = threading.Thread(target=_beat, args=arguments, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def last_beat(file: Path) -> int | None:
    """A value that changes with every beat, the time of the file in ns; None before the first."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return None


def reading(file: Path, attempt: int) -> Beat | None:
    """The newest beat of an attempt that tells how far it is, if any."""
    try:
        words = regular.read_text(file, LENGTH).split()
        number, step, sps = int(words[0]), int(words[1]), float(words[2])
    except (OSError, IndexError, ValueError):
        return None
    if number != attempt or not 0 <= step < MOST:
        return None
    return Beat(number, step, sps if 0 < sps < math.inf else None)


def _beat(file: Path, ended: threading.Event, pulse: Pulse | None) -> None:
    while True:
        # On a full disk an existing file can still be touched; one that was deleted comes back.
        with suppress(OSError):
            file.touch()
        beat = None if pulse is None else pulse.beat()
        if beat is not None:
            with suppress(OSError):
                _write(file, beat)
        if ended.wait(BEAT_S):
            return


def _write(file: Path, beat: Beat) -> None:
    line = f"{beat.attempt} {beat.step} {beat.sps or 0.0:.1f}".ljust(LENGTH - 1) + "\n"
    fd = regular.opened(file, os.O_WRONLY | os.O_NOFOLLOW)
    try:
        os.pwrite(fd, line.encode(), 0)
    finally:
        os.close(fd)
