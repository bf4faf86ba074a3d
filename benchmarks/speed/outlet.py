"""Outlets of a training that keep no files: the loop alone is measured."""

from typing import Any

from rl_orch.records import EvalReport, EventKind
from rl_orch.rl.replay import Segment
from rl_orch.rl.train import Command, Snapshot


class Nowhere:
    """An outlet that keeps nothing."""

    def emit(
        self,
        kind: EventKind,
        key: str,
        value: Any,
        *,
        step: int,
        tags: dict[str, Any] | None = None,
    ) -> None:
        """Forget an event."""

    def stash(self, segment: Segment) -> None:
        """Forget a segment."""

    def save(self, snapshot: Snapshot, report: EvalReport | None) -> None:
        """Forget a snapshot."""

    def doubt(self, reason: str, *, step: int) -> None:
        """Forget a doubt."""

    def command(self) -> Command | None:
        """Nobody asks anything."""
        return None


class Returns(Nowhere):
    """An outlet that keeps the returns of the episodes of training, and nothing else."""

    def __init__(self) -> None:
        self.returns: list[float] = []

    def emit(
        self,
        kind: EventKind,
        key: str,
        value: Any,
        *,
        step: int,
        tags: dict[str, Any] | None = None,
    ) -> None:
        """Keep the return of an episode."""
        if kind is EventKind.EPISODE:
            self.returns.append(float(value))
