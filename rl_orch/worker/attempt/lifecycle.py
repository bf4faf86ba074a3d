"""The frame of an attempt, whoever trains: the lock, a sign of life, the event file, the command
socket, signals; and whatever happens, a last event that says how it ended. Loads no torch.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol, TypeVar

from rl_orch.errors import (
    BadInput,
    Conflict,
    Damaged,
    Diverged,
    NotFound,
    RlctlError,
    RunLocked,
    with_place,
)
from rl_orch.io.run import command_socket
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.disk_reserve import reserved
from rl_orch.io.run.events import EventWriter, newest_attempt, read
from rl_orch.io.run.heartbeat import Pulse, beating
from rl_orch.records import EventKind
from rl_orch.spec.options import table
from rl_orch.worker import log

LOCK_PATIENCE_S = 5.0
"""A run process whose turn is over holds the lock only as long as it takes to find that out."""


PASSING = (OSError, MemoryError)
"""Errors of the machine, more often than of what is run."""


@dataclass(frozen=True, slots=True)
class End:
    """End of an attempt: how, at which step, in a sentence, and with which exit code.

    A `final` failure is one that a further attempt would meet again; one that `repeats` would be
    met again from the same beginning.
    """

    how: str
    step: int
    why: str
    hint: str | None = None
    code: int = 0
    final: bool = False
    repeats: bool = False


class Start(Protocol):
    """Beginning of an attempt: the step, and what its first event says."""

    @property
    def step(self) -> int:
        """The step at which it begins."""

    @property
    def tags(self) -> dict[str, Any]:
        """Tags that say which events still count, and why these."""


Begun = TypeVar("Begun", bound=Start)


def carried_out(
    directory: RunDir,
    attempt: int,
    find: Callable[[], Begun],
    carry_out: Callable[[Begun, EventWriter], End],
    pulse: Pulse | None = None,
) -> int:
    """Find out where an attempt begins, carry it out, and return its exit code.

    Meanwhile it holds the directory, and its heartbeat tells the `pulse`.
    The exit code is 0 where it ended as it should.
    """
    with directory.locked(patience_s=LOCK_PATIENCE_S), beating(directory.heartbeat, pulse):
        refuse_superseded(directory, attempt)
        try:
            run = directory.path.name
            with (
                reserved(directory.path) as release,
                EventWriter(directory.events, run=run, attempt=attempt) as writer,
            ):
                end = _attempted(directory, writer, find, carry_out)
                if end.how == "failed":
                    release()
                _record(writer, end)
        except Exception as error:
            log.error("the end of the attempt could not be recorded", why=error)
            return 1
    return end.code


def refuse_superseded(directory: RunDir, attempt: int) -> None:
    """Raise if this attempt, or a newer one, has begun before, or is to: its turn is over."""
    newest = max(newest_attempt(directory.events), directory.noted_attempt() - 1)
    if newest >= attempt:
        raise Conflict(f"attempt {attempt} comes too late: it is no longer its turn")


def all_that_was(directory: RunDir) -> tuple[int, dict[str, Any]]:
    """Step and tags of a start that goes on from nowhere and takes nothing back."""
    last = max(read(directory.events), key=lambda event: (event.attempt, event.seq), default=None)
    if last is None:
        return 0, {"after": None}
    return last.step, {"after": {"attempt": last.attempt, "seq": last.seq}}


def failure(error: BaseException, step: int) -> End:
    """The end that an error makes, with what its hint advises; a surprise leaves its traceback, in
    code of others too."""
    if isinstance(error, RlctlError):
        if isinstance(error.__cause__, Exception) and not isinstance(error.__cause__, OSError):
            log.exception("attempt failed")
        why = f"{error.message.rstrip('.')}. {error.hint}" if error.hint else error.message
        lasting = isinstance(error, BadInput | Diverged | Damaged) or error.path in table()
        final = lasting and not isinstance(error, NotFound)  # It may be there the next time.
        cause = error.__cause__
        repeats = isinstance(cause, Exception) and not isinstance(cause, PASSING)
        return End("failed", step, why, error.hint, error.exit_code, final, repeats)
    log.exception("attempt failed")
    return End("failed", step, with_place(error), code=1, repeats=not isinstance(error, PASSING))


def served(directory: RunDir, handle: command_socket.Handler) -> AbstractContextManager[Any]:
    """The command socket. Where the file system has no sockets, the run does without."""
    try:
        return closing(command_socket.serve(directory.path, handle))
    except RunLocked:
        raise
    except (OSError, RlctlError) as error:
        log.warning("no command socket; only signals reach this attempt", why=error)
        return nullcontext()


@contextmanager
def signals_stop(stop: Callable[[], None]) -> Iterator[None]:
    """Let SIGTERM and SIGINT call `stop`, as long as this lasts.

    They do so at any moment of the main thread. Python lets only the main thread take signals; in
    another one they stay the caller's.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def heed(_number: int, _frame: FrameType | None) -> None:
        stop()

    before = {number: signal.signal(number, heed) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _attempted(
    directory: RunDir,
    writer: EventWriter,
    find: Callable[[], Begun],
    carry_out: Callable[[Begun, EventWriter], End],
) -> End:
    """End of the attempt. This is where the process begins, so all is caught."""
    try:
        begun = find()
    except (Exception, SystemExit) as error:
        step, tags = all_that_was(directory)
        writer.emit(EventKind.STATE, "started", step=step, tags=tags)
        return failure(error, step)
    try:
        writer.emit(EventKind.STATE, "started", step=begun.step, tags=begun.tags)
        writer.flush()
        return carry_out(begun, writer)
    except (Exception, SystemExit) as error:
        return failure(error, begun.step)


def _record(writer: EventWriter, end: End) -> None:
    log.info("attempt ended", how=end.how, step=end.step, why=end.why)
    tags: dict[str, Any] = {"reason": end.why} | ({"hint": end.hint} if end.hint else {})
    if end.final:
        tags["final"] = True
    if end.repeats:
        tags["repeats"] = True
    writer.emit(EventKind.STATE, "ended", end.how, step=end.step, tags=tags)
    writer.sync()
