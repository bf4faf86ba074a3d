"""The `Learner` seam: a batch in, a better policy out; and what learners share.

Algorithms live in `algos/`, one file each, and are found by name through `plugins`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray

from rl_orch import plugins
from rl_orch.rl.batch import Batch
from rl_orch.rl.policy import ActorCritic
from rl_orch.spec.model import Spec


@dataclass(frozen=True, slots=True)
class LearnerState:
    """All that a learner must remember besides its policy: arrays by name, and JSON."""

    tensors: dict[str, NDArray[Any]] = field(default_factory=dict)
    document: dict[str, Any] = field(default_factory=dict)


class Learner(Protocol):
    """Improves its policy; a plugin of kind `algorithms` makes one from a policy and a spec."""

    policy: ActorCritic

    def update(self, batch: Batch) -> dict[str, float]:
        """Learn from a batch; returns metrics by name."""

    def state(self) -> LearnerState:
        """A copy of everything that the next update depends on, besides the policy."""

    def load_state(self, state: LearnerState) -> None:
        """Go on from a state as if the learner had never stopped."""


def build_learner(policy: ActorCritic, spec: Spec) -> Learner:
    """The learner that the spec's algorithm names."""
    learner: Learner = plugins.load("algorithms", spec.agent.algorithm)(policy, spec)
    return learner


SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda progress: 1.0,
    "linear": lambda progress: 1.0 - progress,
    "cosine": lambda progress: 0.5 * (1.0 + math.cos(math.pi * progress)),
}
"""The share of the initial value that is left at a progress in [0, 1]."""


def scheduled(schedule: str, initial: float, progress: float) -> float:
    """A hyperparameter at a progress; progress past the end of the budget counts as the end."""
    return initial * SCHEDULES[schedule](min(max(progress, 0.0), 1.0))
