"""`TrainingRecorder`: the way of the training loop to the world, and what comes back by it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from rl_orch.records import EvalReport, EventKind
from rl_orch.rl.learn.learner import Learner
from rl_orch.rl.replay.buffer import LogSegment
from rl_orch.rl.snapshot import TrainingSnapshot
from rl_orch.spec.model import Spec

TrainingCommand: TypeAlias = Literal["stop", "checkpoint"]


WeightLoad: TypeAlias = Callable[[Learner], dict[str, Any] | None]
"""Gives a learner other weights, and says which; None where it could not."""


@dataclass(frozen=True, slots=True)
class LiveChange:
    """Options of a training under way that change, path → [before, after], the spec from there on,
    and loads of other weights."""

    spec: Spec
    options: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    loads: Sequence[WeightLoad] = ()


class TrainingRecorder(Protocol):
    """The loop's way to the world: events, snapshots and commands; by default, it leads nowhere."""

    def emit(
        self,
        kind: EventKind,
        key: str,
        value: Any,
        *,
        step: int,
        tags: dict[str, Any] | None = None,
    ) -> None:
        """Note an event. Only `log` events may carry a reading of the clock."""
        return None

    def add_segment(self, segment: LogSegment) -> None:
        """Keep a part of the replay buffer, which later snapshots name."""
        return None

    def save(self, snapshot: TrainingSnapshot, report: EvalReport | None) -> None:
        """Keep a snapshot, and the evaluation that was made of it, if there was one."""
        return None

    def mark_inexact(self, reason: str, *, step: int) -> None:
        """Note that from here on, a resumed training only comes close to one without
        interruption."""
        return None

    def change(self, step: int, env_steps: int) -> LiveChange | None:
        """The change that counts from this step on, if any; asked for once an iteration. A clock of
        updates stands still while nothing is learned; environment steps never do."""
        return None

    def command(self) -> TrainingCommand | None:
        """The pending command, if any; called once an iteration, and blocks while paused."""
        return None


class NullRecorder(TrainingRecorder):
    """A recorder that keeps nothing, and never asks for anything."""
