"""Listening to an external program: its lines, its TensorBoard files, and how fast it is."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rl_orch.errors import RlctlError
from rl_orch.io.events import EventWriter
from rl_orch.io.lines import Lines
from rl_orch.io.tensorboard_reader import Scalars
from rl_orch.records import EventKind
from rl_orch.spec.model import Spec
from rl_orch.worker import log
from rl_orch.worker.protocol import Saved, Teller, understood
from rl_orch.worker.scratch import Scratch
from rl_orch.worker.stock import Stock

READ_TENSORBOARD_EVERY_S = 1.0
READ_CLOCK_EVERY_S = 5.0
SETTLE_AFTER_S = 2.0
"""How long the return of an episode waits for its length."""

SHOWN_BYTES = 200


@dataclass(slots=True)
class Listener:
    """Turns what a program says into events and checkpoints, as it comes in."""

    lines: Lines
    scalars: Scalars | None
    writer: EventWriter
    teller: Teller
    stock: Stock
    timer: Callable[[], float] = time.monotonic
    passed_over: int = 0
    _looked_at: float = field(init=False)
    _heard_at: float = field(init=False)
    _paced: tuple[int, float] = field(init=False)

    def __post_init__(self) -> None:
        self._looked_at = self._heard_at = self.timer()
        self._paced = self.teller.step, self.timer()

    @classmethod
    def make(
        cls, spec: Spec, scratch: Scratch, at: Path, *, step: int, writer: EventWriter, stock: Stock
    ) -> "Listener":
        """One that hears all that a program will say which is started there, and after this."""
        folder = spec.runner.tensorboard
        scalars = None if folder is None else Scalars(at / folder)
        return cls(Lines(scratch.events), scalars, writer, Teller(writer, step), stock)

    def listen(self) -> None:
        """Hear what is new; not all at once, so that a talkative program can still be ended."""
        now = self.timer()
        self._hear(self.lines.read())
        if self.scalars is not None and now - self._looked_at >= READ_TENSORBOARD_EVERY_S:
            self._looked_at = now
            self._read_scalars(self.scalars)
        if now - self._heard_at >= SETTLE_AFTER_S:
            self.teller.settle()
        if now - self._paced[1] >= READ_CLOCK_EVERY_S:
            self._read_clock(now)
        self.writer.flush()

    def finish(self) -> None:
        """Hear all that is left, once the program has ended, and say what was not understood."""
        while heard := self.lines.read():
            self._hear(heard)
        self._hear(filter(bytes.strip, [self.lines.rest()]))
        if self.scalars is not None:
            self._read_scalars(self.scalars)
            for path in self.scalars.damaged:
                log.warning("a TensorBoard file is damaged and was read no further", path=path)
        self.teller.settle()
        self._read_clock(self.timer())
        if missed := self.passed_over + self.lines.skipped:
            log.warning("lines of the program passed over", count=missed)
            step = self.teller.step
            self.writer.emit(EventKind.LOG, "program/passed_over", missed, step=step)
        self.writer.flush()

    def _hear(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            what = understood(line)
            self._heard_at = self.timer()
            if isinstance(what, Saved):
                self._take(what)
            elif what is None or not self.teller.tell(what):
                if not self.passed_over:
                    log.warning("line of the program passed over", line=repr(line[:SHOWN_BYTES]))
                self.passed_over += 1

    def _read_scalars(self, scalars: Scalars) -> None:
        for scalar in scalars.read():
            self._heard_at = self.timer()
            self.passed_over += not self.teller.tell(scalar)

    def _take(self, said: Saved) -> None:
        """Keep a checkpoint. One that cannot be kept costs the checkpoint, not the run."""
        self.teller.settle()
        try:
            self.stock.take(said)
        except RlctlError as error:
            log.warning("checkpoint not kept", step=said.step, why=error.message)
            self.passed_over += 1
        else:
            self.teller.step = max(self.teller.step, said.step)

    def _read_clock(self, now: float) -> None:
        """Say how fast the program is, unless it says so itself."""
        step, (before, since) = self.teller.step, self._paced
        self._paced = step, now
        if step > before and not self.teller.told_speed:
            self.teller.tell_speed((step - before) / max(now - since, 1e-9))
