"""The `Learner` seam: a batch in, a better policy out; and what learners share.

Algorithms live in `algos/`, one file each, and are found by name through `plugins`.
"""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_orch import plugins
from rl_orch.rl.data.batch import Batch
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.learn.engine import engine_for
from rl_orch.rl.policies.policy import Actor, PolicyModule, Setup, load_weights
from rl_orch.rl.replay.buffer import ReplayBuffer
from rl_orch.spec.algorithms import Traits
from rl_orch.spec.model import Spec


class Learner(Protocol):
    """Improves its policy."""

    policy: PolicyModule
    """What is evaluated, saved and carried away."""

    @property
    def behaviour(self) -> Actor:
        """The actor that collects experience: the policy itself, or one that explores."""

    @property
    def replay(self) -> ReplayBuffer | None:
        """Experience that is kept and drawn from again, if any is."""

    def update(self, batch: Batch) -> dict[str, float]:
        """Learn from new experience; returns metrics, none while nothing is learned yet."""

    def state(self) -> StateTree:
        """The learner's state besides policy and replay buffer; copies."""

    def load_state(self, state: StateTree) -> None:
        """Go on from what `state` returned; policy and replay buffer are restored by others."""


@runtime_checkable
class Reconfigurable(Protocol):
    """A learner that goes on by other live options."""

    def reconfigure(self, spec: Spec) -> None:
        """Read the options of that spec from the next update on."""


class Algorithm(Protocol):
    """The class behind an entry point of kind `algorithms`; its instances are learners.

    One whose learners do not collect by the policy itself may have a static
    `build_behaviour(policy, setup)`, which makes such an actor anew: collectors elsewhere need it.
    """

    traits: Traits

    @staticmethod
    def build_policy(setup: Setup) -> PolicyModule:
        """A new policy on the spec's device; its weights follow from the run's seed alone."""

    def __call__(self, policy: Any, setup: Setup) -> Learner:
        """A learner for that policy."""


def algorithm(name: str) -> Algorithm:
    """The algorithm of that name, ours or a plugin's."""
    plugin: Algorithm = plugins.load("algorithms", name)
    return plugin


def build_learner(setup: Setup) -> Learner:
    """The learner that the spec's algorithm names, with a new policy."""
    chosen = algorithm(setup.spec.agent.algorithm)
    return chosen(chosen.build_policy(setup), setup)


def load_with_actor(
    setup: Setup, tensors: Mapping[str, NDArray[Any]]
) -> tuple[PolicyModule, Actor]:
    """The policy that a snapshot holds, and its actor in the spec's engine."""
    policy = load_policy(setup, tensors)
    return policy, engine_for(setup).actor(policy)


def load_policy(setup: Setup, tensors: Mapping[str, NDArray[Any]]) -> PolicyModule:
    """The policy that a snapshot holds."""
    policy = algorithm(setup.spec.agent.algorithm).build_policy(setup)
    load_weights(policy, tensors)
    return policy


def progress_of(learner: Any, budget: int) -> float:
    """The part of a budget that is used up, in [0, 1], in what the algorithm counts: the learner's
    `env_steps`, or its `updates`."""
    traits: Traits | None = getattr(learner, "traits", None)
    unit = "env_steps" if traits is None else traits.clock
    return min(int(getattr(learner, unit)) / budget, 1.0)


def means(names: tuple[str, ...], rows: list[Tensor]) -> dict[str, float]:
    """The mean of each term of an update; a term that is not finite leaves no finite mean."""
    values = torch.stack(rows).cpu().mean(0) if len(rows) > 1 else rows[0].cpu()
    return dict(zip(names, values.tolist(), strict=True))
