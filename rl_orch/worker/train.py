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

from rl_orch.errors import BadInput, Damaged, Diverged, RlctlError, RunLocked
from rl_orch.io import commands
from rl_orch.io.events import EventWriter
from rl_orch.io.heartbeat import beating
from rl_orch.io.reserve import reserved
from rl_orch.io.rundir import RunDir
from rl_orch.records import EventKind
from rl_orch.rl.envs.probe import Proof
from rl_orch.rl.train import train
from rl_orch.spec.model import Spec
from rl_orch.worker import log
from rl_orch.worker.beginning import (
    Beginning,
    all_that_was,
    exactness,
    find,
    footing,
    meta_of,
    refuse_superseded,
)
from rl_orch.worker.orders import Orders
from rl_orch.worker.outlet import FileOutlet

LOCK_PATIENCE_S = 5.0
"""A root whose turn is over holds the lock only as long as it takes to find that out."""

REASON_CHARS = 2000
"""An environment may raise with any text; an event holds only so much."""


@dataclass(frozen=True, slots=True)
class End:
    """How an attempt ended, at which step, in a sentence, and with which exit code.

    A `final` failure is one that a further attempt would meet again.
    """

    how: str
    step: int
    why: str
    hint: str | None = None
    code: int = 0
    final: bool = False


def run_attempt(directory: RunDir, attempt: int) -> int:
    """Train in the directory; the exit code is 0 where training ended as it should."""
    with directory.locked(patience_s=LOCK_PATIENCE_S), beating(directory.heartbeat):
        refuse_superseded(directory, attempt)
        try:
            run = directory.path.name
            with (
                reserved(directory.path) as reserve,
                EventWriter(directory.events, run=run, attempt=attempt) as writer,
            ):
                end = _attempted(directory, attempt, writer)
                if end.how == "failed":
                    reserve.release()
                _record(writer, end)
        except Exception as error:
            log.error("the end of the attempt could not be recorded", why=error)
            return 1
    return end.code


def _attempted(directory: RunDir, attempt: int, writer: EventWriter) -> End:
    """How the attempt ended. This is where the process begins, so all is caught."""
    step = 0
    try:
        beginning = find(directory, attempt)
    except (Exception, SystemExit) as error:
        step, tags = all_that_was(directory)
        writer.emit(EventKind.STATE, "started", step=step, tags=tags)
        return _failure(error, step)
    try:
        step = beginning.step
        writer.emit(EventKind.STATE, "started", step=step, tags=beginning.tags)
        writer.flush()
        return Attempt(directory, attempt, writer, beginning).carry_out()
    except (Exception, SystemExit) as error:
        return _failure(error, step)


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt that knows where it begins."""

    directory: RunDir
    number: int
    writer: EventWriter
    beginning: Beginning

    def carry_out(self) -> End:
        """How it ended."""
        spec, beginning = self.directory.spec(), self.beginning
        where = {"env": spec.env.id, "seed": spec.env.seed, "step": beginning.step}
        log.info("attempt started", attempt=self.number, **where)
        for problem in beginning.passed_over:
            log.warning("checkpoint passed over", why=problem)
        orders = Orders()
        with _signals_stop(orders), _served(self.directory, orders):
            fingerprint = footing(spec)
            proof = exactness(self.directory, spec, beginning, fingerprint)
            meta = meta_of(self.directory, self.number, proof, fingerprint)
            kept = beginning.kept_on(self.directory, proof)
            outlet = FileOutlet(self.directory, spec, self.writer, orders, meta=meta, kept=kept)
            outlet.tell_exactness(step=beginning.step)
            if beginning.checkpoint is not None:
                known = beginning.checkpoint
                outlet.announce(known.path.name, known.step, known.document["meta"])
            return _trained(spec, outlet, beginning, proof)


def _trained(spec: Spec, outlet: FileOutlet, beginning: Beginning, proof: Proof) -> End:
    try:
        outcome = train(
            spec,
            outlet,
            resumption=beginning.resumption,
            method=proof.method,
            pure_reset=proof.pure_reset,
        )
    except (Exception, SystemExit) as error:
        return _failure(error, outlet.step)
    how = "stopped" if outcome.reason == "stopped" else "trained"
    return End(how, outcome.env_steps, outcome.detail)


def _failure(error: BaseException, step: int) -> End:
    """The end that an error makes, with what its hint advises; a surprise leaves its traceback."""
    if isinstance(error, RlctlError):
        why = f"{error.message.rstrip('.')}. {error.hint}" if error.hint else error.message
        final = isinstance(error, BadInput | Diverged | Damaged)
        return End("failed", step, why, error.hint, error.exit_code, final)
    log.exception("attempt failed")
    return End("failed", step, f"{type(error).__name__}: {error}"[:REASON_CHARS], code=1)


def _record(writer: EventWriter, end: End) -> None:
    log.info("attempt ended", how=end.how, step=end.step, why=end.why)
    tags: dict[str, Any] = {"reason": end.why} | ({"hint": end.hint} if end.hint else {})
    if end.final:
        tags["final"] = True
    writer.emit(EventKind.STATE, "ended", end.how, step=end.step, tags=tags)
    writer.sync()


def _served(directory: RunDir, orders: Orders) -> AbstractContextManager[Any]:
    """The command socket. Where the file system has no sockets, the run does without."""
    try:
        return closing(commands.serve(directory.path, orders.handle))
    except RunLocked:
        raise
    except (OSError, RlctlError) as error:
        log.warning("no command socket; only signals reach this attempt", why=error)
        return nullcontext()


@contextmanager
def _signals_stop(orders: Orders) -> Iterator[None]:
    """SIGTERM and SIGINT are the `stop` command while the loop runs.

    Python lets only the main thread take signals; in another one they stay the caller's.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        orders.give("stop")

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
