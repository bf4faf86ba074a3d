"""`python -m rl_orch.worker.train DIRECTORY ATTEMPT`: one attempt at a run, from spec to end.

The root of a native run: it holds the directory's lock, appends to its event file and obeys its
command socket. Whatever happens, its last event says how it ended.
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType

from rl_orch.errors import RlctlError
from rl_orch.io import commands, shelf
from rl_orch.io.events import EventWriter
from rl_orch.io.rundir import RunDir
from rl_orch.records import EventKind
from rl_orch.rl.train import train
from rl_orch.spec.model import Spec
from rl_orch.worker import log
from rl_orch.worker.outlet import FileOutlet


def run_attempt(directory: RunDir, attempt: int) -> int:
    """Train in the directory; the exit code is 0 where training ended as it should."""
    with directory.locked():
        spec = directory.spec()
        shelf.sweep(directory.checkpoints)
        run = directory.path.name
        with EventWriter(directory.events, run=run, attempt=attempt) as writer:
            writer.emit(EventKind.STATE, "started", step=0, tags={"after": None})
            writer.flush()
            log.info("attempt started", attempt=attempt, env=spec.env.id, seed=spec.env.seed)
            outlet = FileOutlet(directory, spec, writer, attempt)
            with closing(commands.serve(directory.path, outlet.handle)), _signals_stop(outlet):
                return _trained(spec, outlet, writer)


def _trained(spec: Spec, outlet: FileOutlet, writer: EventWriter) -> int:
    """Run the loop and record how it ended. This is where the process begins, so all is caught."""
    try:
        outcome = train(spec, outlet)
    except RlctlError as error:
        _ended(writer, outlet.step, "failed", error.message)
        return error.exit_code
    except Exception as error:
        log.error("attempt failed")
        _ended(writer, outlet.step, "failed", f"{type(error).__name__}: {error}")
        return 1
    how = "stopped" if outcome.reason == "stopped" else "trained"
    _ended(writer, outcome.env_steps, how, outcome.detail)
    return 0


def _ended(writer: EventWriter, step: int, how: str, why: str) -> None:
    log.info("attempt ended", how=how, step=step, why=why)
    writer.emit(EventKind.STATE, "ended", how, step=step, tags={"reason": why})
    writer.sync()


@contextmanager
def _signals_stop(outlet: FileOutlet) -> Iterator[None]:
    """SIGTERM and SIGINT are the `stop` command while the loop runs."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        outlet.order("stop")

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    log.configure()
    sys.exit(run_attempt(RunDir(Path(sys.argv[1])), int(sys.argv[2])))
