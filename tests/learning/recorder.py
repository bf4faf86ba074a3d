"""An recorder that remembers what the loop said and plays back commands."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from rl_orch.records import EvalReport, EventKind
from rl_orch.rl.replay.buffer import LogSegment
from rl_orch.rl.snapshot import TrainingSnapshot
from rl_orch.rl.training_recorder import LiveChange, TrainingCommand


class Said(NamedTuple):
    """An event as the loop emitted it."""

    kind: EventKind
    key: str
    value: Any
    step: int
    tags: dict[str, Any] | None


class MemoryOutlet:
    """Keeps events and snapshots; gives one command an iteration, then none."""

    def __init__(self, commands: Sequence[TrainingCommand | None] = ()) -> None:
        self.events: list[Said] = []
        self.saved: list[tuple[TrainingSnapshot, EvalReport | None]] = []
        self.said_before: list[int] = []
        self.doubts: list[str] = []
        self.segments: dict[str, LogSegment] = {}
        self.changes: dict[int, LiveChange] = {}
        self._commands = list(commands)

    def emit(
        self,
        kind: EventKind,
        key: str,
        value: Any,
        *,
        step: int,
        tags: dict[str, Any] | None = None,
    ) -> None:
        """Remember an event."""
        self.events.append(Said(kind, key, value, step, tags))

    def add_segment(self, segment: LogSegment) -> None:
        """Remember a segment."""
        self.segments[segment.name] = segment

    def read(self, name: str) -> Mapping[str, NDArray[Any]]:
        """The arrays of a segment."""
        return self.segments[name].arrays

    def save(self, snapshot: TrainingSnapshot, report: EvalReport | None) -> None:
        """Remember a snapshot, and how many events came before it."""
        self.saved.append((snapshot, report))
        self.said_before.append(len(self.events))

    def mark_inexact(self, reason: str, *, step: int) -> None:
        """Remember a doubt."""
        self.doubts.append(reason)

    def command(self) -> TrainingCommand | None:
        """The next command."""
        return self._commands.pop(0) if self._commands else None

    def change(self, step: int, env_steps: int) -> LiveChange | None:
        """The change that is planned for that step."""
        return self.changes.pop(step, None)

    def of(self, kind: EventKind) -> list[Said]:
        """The events of one kind."""
        return [event for event in self.events if event.kind is kind]
