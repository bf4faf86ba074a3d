"""Listening to an external program: its lines, its TensorBoard files, and how fast it is."""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rl_orch.errors import RlctlError
from rl_orch.io.run.events import EventWriter
from rl_orch.records import EventKind
from rl_orch.worker import log
from rl_orch.worker.external.checkpoints import CheckpointKeeper
from rl_orch.worker.external.line_protocol import Saved, Teller, understood
from rl_orch.worker.external.line_reader import LineReader
from rl_orch.worker.external.tensorboard_files import FILES, Scalar, Scalars

READ_TENSORBOARD_EVERY_S = 1.0
READ_CLOCK_EVERY_S = 5.0
SETTLE_AFTER_S = 2.0
"""How long the return of an episode waits for its length."""

SHOWN_BYTES = 200


@dataclass(slots=True)
class TrainerListener:
    """Turns what a program says into events and checkpoints, as it comes in.

    Numbers in TensorBoard files wait until the lines that were written before them are heard: a
    checkpoint covers none of a later step, so that an attempt that goes on from it tells no step
    twice.
    """

    lines: LineReader
    scalars: Scalars | None
    writer: EventWriter
    teller: Teller
    keeper: CheckpointKeeper
    timer: Callable[[], float] = time.monotonic
    passed_over: int = 0
    _waiting: list[Scalar] = field(init=False, default_factory=list)
    _hurries_at: float = field(init=False, default=math.inf)
    _told_full: bool = field(init=False, default=False)
    _looked_at: float = field(init=False)
    _heard_at: float = field(init=False)
    _paced: tuple[int, float] = field(init=False)

    def __post_init__(self) -> None:
        self._looked_at = self._heard_at = self.timer()
        self._paced = self.teller.step, self.timer()

    def listen(self) -> None:
        """Hear what is new; not all at once, so that a talkative program can still be ended."""
        now = self.timer()
        if not self._waiting and now - self._looked_at >= READ_TENSORBOARD_EVERY_S:
            self._looked_at = now
            self._read_scalars()
        self._hear(self.lines.read())
        if not self.lines.behind:
            self._tell_scalars()
        if now - self._heard_at >= SETTLE_AFTER_S:
            self.teller.flush()
        if now - self._paced[1] >= READ_CLOCK_EVERY_S:
            self._read_clock(now)
        self.writer.flush()

    def finish(self, *, until: float = math.inf) -> None:
        """Hear all that an ended program left, and tell what was not understood.

        It may have to be done by a time on the timer: halfway there, what is left of the numbers is
        passed over, so that the checkpoints are still taken.
        """
        now = self.timer()
        self._hurries_at = now + (until - now) / 2
        self._read_scalars()
        while self.timer() < until and (heard := self.lines.read()):
            self._hear(heard)
        self._hear(filter(bytes.strip, [self.lines.rest()]))
        self._tell_scalars()
        for path in () if self.scalars is None else self.scalars.damaged:
            log.warning("a TensorBoard file is damaged and was read no further", path=path)
        if self.timer() >= self._hurries_at:
            log.warning("no time was left to hear all that the program said")
        self.teller.flush()
        self._read_clock(self.timer())
        if missed := self.passed_over + self.lines.skipped:
            log.warning("lines of the program passed over", count=missed)
            step = self.teller.step
            self.writer.emit(EventKind.LOG, "program/passed_over", missed, step=step)
        self.writer.flush()

    def _hear(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            self._heard_at = self.timer()
            if self._heard_at >= self._hurries_at and b"checkpoint" not in line:
                self.passed_over += 1
                continue
            what = understood(line)
            if isinstance(what, Saved):
                self._take(what)
            elif what is None or not self.teller.tell(what):
                if not self.passed_over:
                    log.warning("line of the program passed over", line=repr(line[:SHOWN_BYTES]))
                self.passed_over += 1

    def _read_scalars(self) -> None:
        """Take what is new in TensorBoard files, to be told later."""
        if self.scalars is None:
            return
        for scalar in self.scalars.read():
            if self.timer() >= self._hurries_at:
                break
            self._waiting.append(scalar)
        if self.scalars.full and not self._told_full:
            self._told_full = True
            log.warning("only the newest TensorBoard files are read", most=FILES)

    def _tell_scalars(self, through: int | None = None) -> None:
        """Tell what waits, or only what waits up to a step."""
        waiting, self._waiting = self._waiting, []
        for scalar in waiting:
            if through is not None and scalar.step > through:
                self._waiting.append(scalar)
                continue
            self._heard_at = self.timer()
            late = self._heard_at >= self._hurries_at
            self.passed_over += late or not self.teller.tell(scalar)

    def _take(self, said: Saved) -> None:
        """Keep a checkpoint. One that cannot be kept costs the checkpoint, not the run."""
        self._read_scalars()
        self._tell_scalars(through=said.step)
        self.teller.flush()
        try:
            self.keeper.take(said)
        except (RlctlError, OSError, ValueError) as error:
            log.warning("checkpoint not kept", step=said.step, why=str(error))
            self.passed_over += 1
        else:
            self.teller.step = max(self.teller.step, said.step)

    def _read_clock(self, now: float) -> None:
        """Say how fast the program is, unless it says so itself."""
        step, (before, since) = self.teller.step, self._paced
        self._paced = step, now
        if step > before and not self.teller.told_speed:
            self.teller.tell_speed((step - before) / max(now - since, 1e-9))
