"""`python -m rl_orch.worker.external.train DIRECTORY ATTEMPT`: one attempt by a program of
anybody's.

The run process of an external run. It starts the program, turns what it says into events and
checkpoints, passes a stop on, and leaves no process behind. It loads no torch:
watching must cost little.
"""

import math
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from signal import Signals
from typing import Any

from rl_orch.errors import BadInput, RlctlError
from rl_orch.io.checkpoints import catalog, external
from rl_orch.io.checkpoints.checkpoint_retention import CheckpointRetention
from rl_orch.io.checkpoints.external import ExternalCheckpoint
from rl_orch.io.checkpoints.resumable import newest_checkpoint
from rl_orch.io.files import private, regular
from rl_orch.io.processes.signals import hear_signals
from rl_orch.io.run.command_socket import Request
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import EventWriter, folded
from rl_orch.records import Event, EventKind
from rl_orch.spec.model import Spec
from rl_orch.worker import log
from rl_orch.worker.attempt.lifecycle import End, all_that_was, carried_out, served, signals_stop
from rl_orch.worker.external import program
from rl_orch.worker.external.checkpoints import CheckpointKeeper, kept_by
from rl_orch.worker.external.line_protocol import Teller
from rl_orch.worker.external.line_reader import LineReader
from rl_orch.worker.external.listener import TrainerListener
from rl_orch.worker.external.scratch import Scratch
from rl_orch.worker.external.tensorboard_files import Scalars

LOOK_EVERY_S = 0.2
FINISH_S = 5.0
"""What is kept of a long grace for the last checkpoint and the last words."""

LAST_MOMENT_S = 1.0
"""What a run process takes beyond its grace: it is killed a little later than that."""

PROMISES = {
    "none": "its program does not say that it can go on from a checkpoint",
    "approximate": "its program goes on from its own checkpoints, and promises no more",
    "bitwise": "its program says bitwise; nobody has certified it",
}
"""Why a resume is no more than approximate."""


@dataclass(frozen=True, slots=True)
class ExternalResumePoint:
    """Beginning of an attempt. `trained` is the last word of an attempt that left nothing to do."""

    step: int
    tags: dict[str, Any]
    path: Path | None = None
    checkpoint: ExternalCheckpoint | None = None
    trained: Event | None = None


class ExternalCommands:
    """Commands: an external program can be asked to stop, and nothing else."""

    def __init__(self) -> None:
        self.stopping = False

    def stop(self) -> None:
        """Take a stop. A signal handler calls this at any moment: it only sets a flag."""
        self.stopping = True

    def handle(self, request: Request) -> dict[str, Any]:
        """Answer a command that came over the socket."""
        if request.command != "stop":
            raise BadInput(
                f"this run cannot {request.command}: its program is not one of ours; it knows stop"
            )
        self.stop()
        return {"accepted": "stop"}


def run_attempt(directory: RunDir, number: int) -> int:
    """Carry the attempt out; the exit code is 0 where the program ended as it should."""

    def carry_out(beginning: ExternalResumePoint, writer: EventWriter) -> End:
        return ExternalAttempt(directory, directory.spec(), number, writer, beginning).carry_out()

    return carried_out(directory, number, partial(find, directory, number), carry_out)


def find(directory: RunDir, number: int) -> ExternalResumePoint:
    """Beginning of an attempt: at its end, if only the evaluation is left to be made; at the newest
    intact checkpoint, if the program can go on from one; else at nothing."""
    catalog.sweep(directory.checkpoints)
    trained = _trained(directory)
    if trained is not None and not _is_changed_since(trained, directory):
        step, tags = all_that_was(directory)
        return ExternalResumePoint(step, tags | {"trained": True}, trained=trained)
    fresh = ExternalResumePoint(0, {"after": None})
    if number == 1 or directory.spec().runner.resume == "none":
        return fresh
    newest = newest_checkpoint(directory)
    if newest.path is None:
        return fresh
    checkpoint = external.load(newest.path)
    tags = {
        "after": {"attempt": checkpoint.attempt, "seq": checkpoint.seq},
        "checkpoint": newest.path.name,
        "passed_over": list(newest.passed_over),
    }
    return ExternalResumePoint(checkpoint.step, tags, newest.path, checkpoint)


@dataclass(frozen=True, slots=True)
class ExternalAttempt:
    """An attempt that knows where it begins."""

    directory: RunDir
    spec: Spec
    number: int
    writer: EventWriter
    beginning: ExternalResumePoint

    def carry_out(self) -> End:
        """Carry the attempt out, and return how it ended."""
        beginning, orders = self.beginning, ExternalCommands()
        log.info("attempt started", attempt=self.number, step=beginning.step)
        for problem in beginning.tags.get("passed_over", ()):
            log.warning("checkpoint passed over", why=problem)
        with signals_stop(orders.stop), served(self.directory, orders.handle):
            self._tell_exactness()
            if beginning.trained is not None:
                return End("trained", beginning.step, str(beginning.trained.tags.get("reason")))
            return self._watched(orders)

    def _tell_exactness(self) -> None:
        promise = self.spec.runner.resume
        level = "none" if promise == "none" else "approximate"
        tags = {"method": "program", "reason": PROMISES[promise]}
        self.writer.emit(EventKind.STATE, "resume", level, step=self.beginning.step, tags=tags)
        self.writer.flush()

    def _watched(self, orders: ExternalCommands) -> End:
        """Start the program and see it to its end, however that comes."""
        scratch = Scratch.make(self.directory, self.number, self.spec)
        listener = self._listener(scratch)
        command, given = self.spec.runner.command, self._variables(scratch)
        with regular.appender(self.directory.log) as output:
            child = program.start(
                command, self.spec, self.directory, given, output=output, errors=output
            )
        watch = Watch(child, self.spec, scratch)
        try:
            while watch.waits():
                listener.listen()
                if orders.stopping:
                    watch.ask_to_end()
        finally:
            left = program.end(child, self.directory, self.number)
        listener.finish(until=watch.finishes_by)
        return watch.end(listener.teller.step, left, asked=orders.stopping)

    def _listener(self, scratch: Scratch) -> TrainerListener:
        """Made before the program starts, so that it hears all that the program says."""
        lines, folder = LineReader(scratch.events), self.spec.runner.tensorboard
        at = program.folder(self.spec, self.directory)
        scalars = None if folder is None else Scalars(at / folder)
        teller = Teller(self.writer, self.beginning.step)
        return TrainerListener(lines, scalars, self.writer, teller, self._keeper(scratch))

    def _keeper(self, scratch: Scratch) -> CheckpointKeeper:
        checkpoint, root = self.beginning.checkpoint, self.directory.checkpoints
        keeper = CheckpointKeeper(
            self.directory,
            self.writer,
            folder=scratch.checkpoints,
            attempt=self.number,
            keep_last=self.spec.checkpoint.keep_last,
            kept=CheckpointRetention() if checkpoint is None else kept_by(checkpoint, root),
        )
        if checkpoint is not None:
            keeper.announce(checkpoint)
        return keeper

    def _variables(self, scratch: Scratch) -> dict[str, str]:
        checkpoint, path = self.beginning.checkpoint, self.beginning.path
        resume = None if checkpoint is None or path is None else external.payload(path, checkpoint)
        variables = scratch.variables(self.spec, self.directory)
        return variables | ({} if resume is None else {"RLCTL_RESUME": str(resume)})


@dataclass(slots=True)
class Watch:
    """A running program, and the patience left once it was asked to end."""

    child: "subprocess.Popen[bytes]"
    spec: Spec
    scratch: Scratch
    asked_at: float | None = None
    ignored_s: float | None = None

    def waits(self) -> bool:
        """Whether the program still runs after a moment, and may do so."""
        time.sleep(LOOK_EVERY_S)
        if self.child.poll() is not None:
            return False
        patience = patience_s(self.spec.runner.stop_grace_s)
        if self.asked_at is not None and time.monotonic() - self.asked_at >= patience:
            self.ignored_s = patience
            return False
        return True

    @property
    def finishes_by(self) -> float:
        """Time at which the attempt has to be over, on the monotonic clock."""
        if self.asked_at is None:
            return math.inf
        return self.asked_at + self.spec.runner.stop_grace_s + LAST_MOMENT_S

    def ask_to_end(self) -> None:
        """Ask it once, by a file and by SIGTERM."""
        if self.asked_at is None:
            self.asked_at = time.monotonic()
            self.scratch.stop.touch()
            program.ask_to_end(self.child)
            patience = patience_s(self.spec.runner.stop_grace_s)
            log.info("program asked to end", patience_s=patience)

    def end(self, step: int, left: int, *, asked: bool) -> End:
        """End of the program, and with it of the attempt; `left` processes of it were killed."""
        code, where = self.child.returncode, f"at step {step:,}"
        others = "1 process" if left == 1 else f"{left} processes"
        besides = f"; killed with it: {others} that it had started" if left else ""
        if self.ignored_s is not None:
            why = f"its program ignored SIGTERM for {self.ignored_s:g} s and was killed {where}"
            return End("stopped", step, why + besides)
        if asked:
            return End("stopped", step, f"its program ended {where}, as it was asked to" + besides)
        if code == 0:
            return End("trained", step, f"its program ended well {where}" + besides)
        how = f"ended with exit code {code}" if code > 0 else f"was killed by {_signal_name(-code)}"
        return End("failed", step, f"its program {how} {where}{besides}; see its log", code=1)


def patience_s(grace_s: float) -> float:
    """Seconds that a program may take to end when asked.

    Of a long grace a little is kept, to finish in; after a short one there is a moment left anyway.
    """
    return grace_s - min(FINISH_S, max(0.0, grace_s / 4 - LAST_MOMENT_S))


def _trained(directory: RunDir) -> Event | None:
    """The last word of a training that ended well, if no other was begun since. An attempt that
    found nothing left to do takes nothing back, however it ended."""
    last = None
    for event in folded(directory.events, (EventKind.STATE,)):
        if event.key == "started" and not event.tags.get("trained"):
            last = None
        elif event.key == "ended" and event.value == "trained":
            last = event
    return last


def _is_changed_since(trained: Event, directory: RunDir) -> bool:
    return any(note["attempt"] > trained.attempt for note in directory.changes())


def _signal_name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"


def main() -> int:
    """Carry the attempt out, or say in the log why it could not even begin."""
    directory = RunDir(Path(sys.argv[1]))
    with suppress(RlctlError):  # A spec that cannot be read is for the attempt to tell of.
        directory = directory.opened()
    try:
        private.keep_within(directory.path)
        return run_attempt(directory, int(sys.argv[2]))
    except RlctlError as error:
        log.error(error.message)
        return error.exit_code


if __name__ == "__main__":
    hear_signals()
    log.configure()
    sys.exit(main())
