"""The `Engine` seam: actor, assessor, updates and stepper of a training.

Algorithms are written in torch. Another engine takes over parts of that, with the same results up
to rounding; which one, `engine_for` reads off the spec, and nobody else asks.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_orch import plugins
from rl_orch.rl.engine import engine_of
from rl_orch.rl.envs.leaves import leaves_of
from rl_orch.rl.envs.vector import Envs
from rl_orch.rl.learn.on_policy import Assessor, Rollout
from rl_orch.rl.learn.optimizer import Optimizer, Target
from rl_orch.rl.learn.optimizer_arrays import LossWeights
from rl_orch.rl.policies.actor_critic import ActorCritic
from rl_orch.rl.policies.policy import Actor, PolicyModule, Setup, Traced
from rl_orch.rl.policies.q_network import ActionValues, QNetwork
from rl_orch.rl.policies.twin_critics import ContinuousPolicy, Critics
from rl_orch.rl.replay.buffer import Sample
from rl_orch.spec.part_traits import EngineTraits


class PolicyUpdates(Protocol):
    """Passes of gradient steps over rollouts."""

    def run(
        self,
        rollout: Rollout,
        order: NDArray[np.int64],
        bounds: NDArray[np.int64],
        learning_rate: float,
        weights: LossWeights,
    ) -> Tensor:
        """One step for each part of `order` between two bounds; returns their terms, (parts, 6),
        up to the first that are not finite."""


class Update(NamedTuple):
    """The terms of an update, and the error of each row, (B,), for its priority."""

    terms: Tensor
    errors: Tensor


class ValueUpdates(Protocol):
    """Gradient steps of a Q-network."""

    def improve(self, sample: Sample, learning_rate: float) -> Update:
        """One step; the terms are loss, mean value and norm of the gradient."""


class TrainedCritics(NamedTuple):
    """Critics, their slow copies, the policy that follows them, and the optimisers of all by
    name; `threads` may work on them."""

    policy: ContinuousPolicy
    critics: Critics
    target_critics: Target[Any]
    optimizers: Mapping[str, Optimizer]
    threads: int


class CriticUpdates(Protocol):
    """Gradient steps of critics and their policy; terms: the critics' loss, mean Q, the
    policy's loss, mean log π, norm of the critics' gradient."""

    def soft(
        self, sample: Sample, learning_rate: float, noise: Tensor, next_noise: Tensor, alpha: float
    ) -> Update:
        """One step of SAC's critics and policy."""

    def truncated(
        self,
        sample: Sample,
        learning_rate: float,
        noise: Tensor,
        next_noise: Tensor,
        alpha: float,
        dropped: int,
    ) -> Update:
        """One step of TQC's critics and policy; so many of all quantiles are dropped."""

    def delayed(
        self,
        sample: Sample,
        learning_rate: float,
        target_policy: Target[Any],
        noise: Tensor,
        deviation: float,
        clip: float,
        *,
        move_policy: bool,
    ) -> Update:
        """One step of TD3's critics and, if it is time, of its policy."""

    def descend_alone(self, name: str, slope: float, learning_rate: float) -> None:
        """One step of the only parameter of an optimiser."""


class Stepper(Protocol):
    """Whole rollouts of a vector environment in one call."""

    def run(
        self, actor: Actor, columns: Any, generator: torch.Generator
    ) -> NDArray[np.float32] | None:
        """Fill the columns of a rollout, but for the first observations, which are there. Returns
        the last observations of the episodes that ended (n, N, ·); None for an actor that has to
        be asked step by step."""


class Engine(Protocol):
    """The parts of a training that need not be torch's; each is, by default.

    None as updates means the algorithm's own, and as a stepper, steps one by one.
    """

    traits: EngineTraits = EngineTraits()
    """What it is like; those of ours are data in the spec's part."""

    def actor(self, policy: PolicyModule) -> Actor:
        """An actor for a policy, with its weights as they are at each decision."""
        return policy

    def assessor(self, policy: ActorCritic) -> Assessor:
        """Estimates for an actor-critic."""
        return policy

    def policy_updates(self, policy: ActorCritic, optimizer: Optimizer) -> PolicyUpdates | None:
        """Updates of an actor-critic, in its memory and that of its optimiser."""
        return None

    def value_updates(
        self, policy: QNetwork, optimizer: Optimizer, target: Target[ActionValues], *, double: bool
    ) -> ValueUpdates | None:
        """Updates of a Q-network."""
        return None

    def critic_updates(self, trained: TrainedCritics) -> CriticUpdates | None:
        """Updates of a policy of continuous actions and its critics."""
        return None

    def stepper(self, envs: Envs, traced: Traced) -> Stepper | None:
        """Whole rollouts of these environments in one call; `traced` if it steps them by parts."""
        return None


class TorchEngine(Engine):
    """torch alone."""


def engine_for(setup: Setup) -> Engine:
    """The engine that the spec names, or that rules choose where it is left open."""
    leaves = leaves_of(setup.observation_space, stacked=setup.spec.obs.stack_frames is not None)
    name = engine_of(setup.spec, leaves, type(setup.action_space).__name__)
    engine: Engine = plugins.load("engines", name)()
    return engine
