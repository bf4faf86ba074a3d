"""What the training loop tells, kept in the run directory; what it is told, from the socket."""

import time
from typing import Any

from rl_orch.errors import BadInput
from rl_orch.io import checkpoints, commands, shelf
from rl_orch.io.events import EventWriter
from rl_orch.io.rundir import RunDir
from rl_orch.records import EvalReport, EventKind
from rl_orch.rl.train import Command, Snapshot
from rl_orch.spec.model import Spec

SUPPORTED = ("stop", "checkpoint", "pause", "unpause")
PAUSED_POLL_S = 0.05


class FileOutlet:
    """The loop's outlet over files: events, checkpoints, reports, and what was ordered."""

    def __init__(self, directory: RunDir, spec: Spec, writer: EventWriter, attempt: int) -> None:
        self._directory = directory
        self._keep_last = spec.checkpoint.keep_last
        self._writer = writer
        self._meta = {"run_id": directory.path.name, "attempt": attempt}
        self._stopping = False
        self._checkpoint_wanted = False
        self._paused = False
        self._best: tuple[float, str] | None = None
        self.step = 0

    def emit(
        self,
        kind: EventKind,
        key: str,
        value: Any,
        *,
        step: int,
        tags: dict[str, Any] | None = None,
    ) -> None:
        """Append an event; it reaches the disk's cache when the loop next asks for a command."""
        self._writer.emit(kind, key, value, step=step, tags=tags)
        self.step = step

    def save(self, snapshot: Snapshot, report: EvalReport | None) -> None:
        """Keep a checkpoint, and the report on it; the newest and the best outlive the others."""
        self._writer.flush()
        # The seq that the `saved` event below will have: nothing else is emitted before it, so
        # whoever resumes from this checkpoint knows which events it already holds.
        seq = self._writer.seq + 1
        path = checkpoints.save(
            self._directory.checkpoints,
            step=snapshot.step,
            tensors=snapshot.tensors,
            document=snapshot.document,
            meta=self._meta | {"seq": seq},
        )
        best = report is not None and self._is_best(report, path.name)
        if report is not None:
            kept = report.model_copy(update={"checkpoint": path.name})
            self._directory.write_report(path.name, kept)
        removed = shelf.retain(
            self._directory.checkpoints,
            last=self._keep_last,
            best=None if self._best is None else path.with_name(self._best[1]),
        )
        tags = {
            "best": best,
            "evaluated": report is not None,
            "removed": [gone.name for gone in removed],
        }
        self._writer.emit(EventKind.CHECKPOINT, "saved", path.name, step=snapshot.step, tags=tags)
        self._writer.sync()

    def command(self) -> Command | None:
        """What was ordered, `stop` before all else; waits here while the run is paused."""
        self._writer.flush()
        while self._paused and not (self._stopping or self._checkpoint_wanted):
            time.sleep(PAUSED_POLL_S)
        if self._stopping:
            return "stop"
        if self._checkpoint_wanted:
            self._checkpoint_wanted = False
            return "checkpoint"
        return None

    def handle(self, request: commands.Request) -> dict[str, Any]:
        """Answer a command that came over the socket."""
        if request.command not in SUPPORTED:
            raise BadInput(f"this run cannot {request.command}; it knows {', '.join(SUPPORTED)}")
        self.order(request.command)
        return {"accepted": request.command}

    def order(self, name: str) -> None:
        """Take a command; the loop sees it before its next iteration.

        A signal handler calls this in the loop's own thread, at any moment: it only sets flags,
        because a lock that the loop holds just then would never be free.
        """
        match name:
            case "stop":
                self._stopping = True
            case "checkpoint":
                self._checkpoint_wanted = True
            case "pause" | "unpause":
                self._paused = name == "pause"

    def _is_best(self, report: EvalReport, name: str) -> bool:
        """Whether this policy is at least as good as the best before it; ties go to the newer."""
        mean = report.summary.mean
        if self._best is not None and mean < self._best[0]:
            return False
        self._best = (mean, name)
        return True
