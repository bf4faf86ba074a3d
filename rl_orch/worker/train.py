"""`python -m rl_orch.worker.train DIRECTORY ATTEMPT`: one attempt at a run, from spec to end.

The root of a native run: it holds the directory's lock, appends to its event file and obeys its
command socket. Whatever happens, its last event says how it ended.
"""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from rl_orch.errors import RlctlError, RunLocked
from rl_orch.io import commands, shelf
from rl_orch.io.events import EventWriter
from rl_orch.io.rundir import RunDir
from rl_orch.records import EventKind
from rl_orch.rl.train import train
from rl_orch.spec.model import Spec
from rl_orch.worker import log
from rl_orch.worker.outlet import FileOutlet

REASON_CHARS = 2000
"""An environment may raise with any text; an event holds only so much."""


@dataclass(frozen=True, slots=True)
class End:
    """How an attempt ended, at which step, in a sentence, and with which exit code."""

    how: str
    step: int
    why: str
    hint: str | None = None
    code: int = 0


def run_attempt(directory: RunDir, attempt: int) -> int:
    """Train in the directory; the exit code is 0 where training ended as it should."""
    with directory.locked():
        try:
            run = directory.path.name
            with EventWriter(directory.events, run=run, attempt=attempt) as writer:
                end = _attempted(directory, attempt, writer)
                _record(writer, end)
        except Exception as error:
            log.error("the end of the attempt could not be recorded", why=error)
            return 1
    return end.code


def _attempted(directory: RunDir, attempt: int, writer: EventWriter) -> End:
    """How the attempt ended. This is where the process begins, so all is caught."""
    try:
        writer.emit(EventKind.STATE, "started", step=0, tags={"after": None})
        writer.flush()
        spec = directory.spec()
        log.info("attempt started", attempt=attempt, env=spec.env.id, seed=spec.env.seed)
        shelf.sweep(directory.checkpoints)
        outlet = FileOutlet(directory, spec, writer, attempt)
        with _signals_stop(outlet), _served(directory, outlet):
            return _trained(spec, outlet)
    except (Exception, SystemExit) as error:
        return _failure(error, step=0)


def _trained(spec: Spec, outlet: FileOutlet) -> End:
    try:
        outcome = train(spec, outlet)
    except (Exception, SystemExit) as error:
        return _failure(error, outlet.step)
    how = "stopped" if outcome.reason == "stopped" else "trained"
    return End(how, outcome.env_steps, outcome.detail)


def _failure(error: BaseException, step: int) -> End:
    """The end that an error makes, with what its hint advises; a surprise leaves its traceback."""
    if isinstance(error, RlctlError):
        why = f"{error.message.rstrip('.')}. {error.hint}" if error.hint else error.message
        return End("failed", step, why, error.hint, error.exit_code)
    log.exception("attempt failed")
    return End("failed", step, f"{type(error).__name__}: {error}"[:REASON_CHARS], code=1)


def _record(writer: EventWriter, end: End) -> None:
    log.info("attempt ended", how=end.how, step=end.step, why=end.why)
    tags = {"reason": end.why} | ({"hint": end.hint} if end.hint else {})
    writer.emit(EventKind.STATE, "ended", end.how, step=end.step, tags=tags)
    writer.sync()


def _served(directory: RunDir, outlet: FileOutlet) -> AbstractContextManager[Any]:
    """The command socket. Where the file system has no sockets, the run does without."""
    try:
        return closing(commands.serve(directory.path, outlet.handle))
    except RunLocked:
        raise
    except (OSError, RlctlError) as error:
        log.warning("no command socket; only signals reach this attempt", why=error)
        return nullcontext()


@contextmanager
def _signals_stop(outlet: FileOutlet) -> Iterator[None]:
    """SIGTERM and SIGINT are the `stop` command while the loop runs.

    Python lets only the main thread take signals; in another one they stay the caller's.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        outlet.order("stop")

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main() -> int:
    """Carry the attempt out, or say in the log why it could not even begin."""
    try:
        return run_attempt(RunDir(Path(sys.argv[1])), int(sys.argv[2]))
    except RlctlError as error:
        log.error(error.message)
        return error.exit_code


if __name__ == "__main__":
    log.configure()
    sys.exit(main())
