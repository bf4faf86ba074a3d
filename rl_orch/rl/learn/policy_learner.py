"""`PolicyLearner`: the frame of learners of an `ActorCritic` from fresh rollouts.

Which loss is descended, and how often, is in `algos/ppo.py` and `algos/a2c.py`.
"""

import math
from abc import ABC, abstractmethod
from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from rl_orch.rl.data.batch import Batch, on_host
from rl_orch.rl.data.returns import explained_variance
from rl_orch.rl.data.schedules import scheduled
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.learn.engine import engine_for
from rl_orch.rl.learn.learner import progress_of
from rl_orch.rl.learn.on_policy import Rollout, Rollouts, standardized
from rl_orch.rl.learn.optimizer import build_optimizer
from rl_orch.rl.learn.optimizer_arrays import LossWeights
from rl_orch.rl.learn.precision import compiled, precision
from rl_orch.rl.policies.actor_critic import ActorCritic
from rl_orch.rl.policies.policy import Actor, Setup
from rl_orch.spec.model import Spec


class Estimates(NamedTuple):
    """The present policy's log π(a | s), V(s) and entropy of B transitions, with gradients; and
    their advantages, standardised if the options say so."""

    rollout: Rollout
    log_prob: Tensor
    values: Tensor
    entropy: Tensor
    advantages: Tensor


class PolicyLearner(ABC):
    """A learner of an actor-critic, with one optimiser.

    `engine_updates` are None where the algorithm does them itself.
    """

    build_policy = staticmethod(ActorCritic.build)
    replay = None

    @staticmethod
    def build_behaviour(policy: ActorCritic, setup: Setup) -> Actor:
        """The policy in the spec's engine: it samples, which is exploration enough."""
        return engine_for(setup).actor(policy)

    def __init__(self, policy: ActorCritic, setup: Setup) -> None:
        spec, engine = setup.spec, engine_for(setup)
        self.policy = policy
        self.behaviour = self.build_behaviour(policy, setup)
        self.options = spec.train
        self.env_steps = 0
        self.rollouts = Rollouts(policy, spec, engine.assessor(policy))
        self.optimizer = build_optimizer(policy, spec.train)
        self.engine_updates = engine.policy_updates(policy, self.optimizer)
        self._ask = compiled(self.rollouts.ask, spec.train)

    @property
    def ent_coef(self) -> float:
        """Weight of the entropy bonus now."""
        return float(self.options.ent_coef)

    def reconfigure(self, spec: Spec) -> None:
        """Go on by other live options."""
        self.options = spec.train

    def update(self, batch: Batch) -> dict[str, float]:
        """Learn from a rollout, which is used once and not kept."""
        progress = progress_of(self, self.options.total_timesteps)
        learning_rate = scheduled(self.options.lr_schedule, self.options.lr, progress)
        self.env_steps += (steps := int(on_host(batch.column("valid")).sum()))
        if steps == 0:
            return {}
        with precision(self.options, self.policy.device):
            rollout = self.rollouts.prepare(batch)
        return {
            **self.improve(rollout, learning_rate, progress),
            "losses/explained_variance": explained_variance(
                on_host(rollout.values), on_host(rollout.returns)
            ),
            "charts/learning_rate": learning_rate,
        }

    @abstractmethod
    def improve(self, rollout: Rollout, learning_rate: float, progress: float) -> dict[str, float]:
        """Improve the policy; returns metrics. `progress` is that before the rollout."""

    def estimates(self, rollout: Rollout) -> Estimates:
        """The present policy's view of the rows that are transitions."""
        with precision(self.options, self.policy.device):
            distribution, values = self._ask(rollout)
        log_prob = distribution.log_prob(rollout.actions)
        # Where entropy earns nothing it is only measured, and takes no gradient.
        with nullcontext() if self.ent_coef > 0.0 else torch.no_grad():
            entropies = distribution.entropy()
        if rollout.counts is not None:
            kept = rollout.counts
            log_prob, values, entropies = log_prob[kept], values[kept], entropies[kept]
            rollout = rollout.rows(kept)
        advantages = rollout.advantages
        if self.options.normalize_advantage:
            advantages = standardized(advantages)
        return Estimates(rollout, log_prob, values, entropies.mean(), advantages)

    def loss_weights(self, clip: float = math.inf, clip_values: float | None = None) -> LossWeights:
        """The weights of the loss, for an engine."""
        value, standardize = self.options.vf_coef, self.options.normalize_advantage
        return LossWeights(clip, clip_values or math.inf, value, self.ent_coef, standardize)

    def state(self) -> StateTree:
        """Optimiser, reward statistics and the steps learned from so far."""
        parts = {"optimizer": self.optimizer.state(), "rewards": self.rollouts.rewards.state()}
        return StateTree.joined(parts) | StateTree({}, {"env_steps": self.env_steps})

    def load_state(self, state: StateTree) -> None:
        """Go on from a state; the policy's weights are loaded into the policy itself."""
        self.optimizer.load_state(state.under("optimizer"))
        self.rollouts.rewards.load_state(state.under("rewards"))
        self.env_steps = int(state.document["env_steps"])
