"""An recorder of a training that keeps no files: the loop alone is measured."""

from typing import Any

from rl_orch.records import EventKind
from rl_orch.rl.training_recorder import NullRecorder


class Returns(NullRecorder):
    """An recorder that keeps the returns of the episodes of training, and nothing else."""

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
