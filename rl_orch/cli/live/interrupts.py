"""Ctrl-C as a request: what was asked for, how often, and what is said to it."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rl_orch.records import Run

ANSWERS = (
    "stopping after a last checkpoint; Ctrl-C again ends it at once",
    "ending it at once",
)
"""What the first request to stop does, and the second; further ones change nothing."""


class Requests:
    """How often the user has asked to stop, and how often that was answered."""

    def __init__(self) -> None:
        self._count = self._answered = 0

    def count(self) -> int:
        """The number of requests so far."""
        return self._count

    def add(self, _number: int, _frame: FrameType | None) -> None:
        """Take a signal as a request. Only that: it may come in the middle of any output."""
        self._count += 1

    def answer(self, run: Run) -> None:
        """Say what becomes of the requests that are new, once there is a run to stop."""
        if not run.active:
            return
        news, self._answered = ANSWERS[self._answered : self._count], self._count
        for sentence in news:
            # Not by a console of ours: the live panel puts what goes to sys.stderr above itself.
            print(sentence, file=sys.stderr, flush=True)


@contextmanager
def handled(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Whoever asks this process to end, by Ctrl-C, SIGTERM or a closed terminal, gets `handler`."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # As it is under nohup.
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, handler) for number in numbers}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)  # Whoever started it may block them.
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
