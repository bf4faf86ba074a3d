"""Proximal policy optimisation with a clipped objective (Schulman et al. 2017, arXiv:1707.06347).

The details that the paper leaves open, as they are here:

 1. Advantages are generalised advantage estimates; episodes cut short bootstrap from the value of
    their final observation, terminated ones from zero.
 2. The value target is advantage plus old value, fixed for all passes over a rollout.
 3. Every pass draws a new permutation and cuts it into minibatches of `train.batch_size`; what
    does not divide is spread evenly, so that no minibatch is much smaller than another.
 4. Advantages are standardised in each minibatch, not over the rollout.
 5. The objective is the clipped surrogate, eq. 7; the ratio is exp(log π - log π_old).
 6. The value loss is the mean squared error, without a factor ½ (as in Stable-Baselines3), and
    clipped around the old value if `train.clip_range_vf` is set.
 7. Policy, value and entropy terms are summed into one loss, eq. 9, for one optimiser.
 8. The gradient is scaled down to `train.max_grad_norm` over all parameters together.
 9. Adam with epsilon 1e-5, unless `train.optimizer` names another; the learning rate follows
    `train.lr_schedule` between rollouts.
10. Networks start orthogonal: gain √2, 0.01 for the policy's head, 1 for the value's
    (`actor_critic.py`).
11. Gaussian actions have a deviation that does not depend on the state; they are clipped for the
    environment, and the log-probability is that of the action before clipping.
12. The KL divergence is estimated by k3 = (r - 1) - log r, unbiased and never negative
    (Schulman 2020); passes stop once its mean over a pass exceeds `train.target_kl`.
13. Rows in which an environment only reset itself are left out after the advantages are computed.
14. A policy with a memory is trained through sequences of `train.sequence_length` steps, each from
    what was remembered before it when it was collected; memories are wiped where episodes begin.
15. Where actions are masked, forbidden ones have probability zero, while collecting and learning.
"""

import math
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rl_orch.rl.data.schedules import scheduled
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.learn.engine import PolicyUpdates
from rl_orch.rl.learn.learner import means
from rl_orch.rl.learn.on_policy import Rollout
from rl_orch.rl.learn.policy_learner import PolicyLearner
from rl_orch.rl.policies.actor_critic import ActorCritic
from rl_orch.rl.policies.policy import Setup
from rl_orch.rl.streams import Stream, derive
from rl_orch.spec import algorithms

LOSSES = ("losses/policy_loss", "losses/value_loss", "losses/entropy", "losses/grad_norm")
DIVERGENCES = ("losses/approx_kl", "losses/clipfrac")

Terms: TypeAlias = tuple[list[Tensor], Tensor]
"""Of a pass, the terms named in LOSSES of each minibatch, and those named in DIVERGENCES."""


class PPO(PolicyLearner):
    """Improves an actor-critic by PPO."""

    traits = algorithms.PPO

    def __init__(self, policy: ActorCritic, setup: Setup) -> None:
        super().__init__(policy, setup)
        self._generator = torch.Generator()
        self._generator.manual_seed(derive(setup.spec.env.seed, Stream.MINIBATCHES))

    def improve(self, rollout: Rollout, learning_rate: float, progress: float) -> dict[str, float]:
        """Several passes over a rollout, in minibatches."""
        options, updates = self.options, self.engine_updates
        clip_range = scheduled(options.clip_schedule, options.clip_range, progress)
        losses: list[Tensor] = []
        divergences: list[Tensor] = []
        for _ in range(options.update_epochs):
            if updates is None:
                terms, moved = self._pass(rollout, learning_rate, clip_range)
            else:
                terms, moved = self._pass_by(updates, rollout, learning_rate, clip_range)
            losses.extend(terms)
            divergences.append(moved)
            if options.target_kl is not None and moved[0].item() > options.target_kl:
                break
        return {
            **means(LOSSES, losses),
            **means(DIVERGENCES, divergences),
        }

    def state(self) -> StateTree:
        """As of all policy learners, and the minibatch generator."""
        generator = self._generator.get_state().numpy().copy()
        return super().state() | StateTree({"rng/minibatches": generator})

    def load_state(self, state: StateTree) -> None:
        """Go on from a state."""
        super().load_state(state)
        self._generator.set_state(torch.from_numpy(state.tensors["rng/minibatches"].copy()))

    def _pass(self, rollout: Rollout, learning_rate: float, clip_range: float) -> Terms:
        """One pass in minibatches."""
        losses, log_ratios = [], []
        for minibatch in self.rollouts.minibatches(rollout, self._parts(rollout), self._generator):
            if minibatch.counts is not None and not minibatch.counts.any():
                continue
            terms, log_ratio = self._step(minibatch, learning_rate, clip_range)
            losses.append(terms)
            log_ratios.append(log_ratio)
        return losses, divergence(torch.cat(log_ratios), clip_range)

    def _pass_by(
        self, updates: PolicyUpdates, rollout: Rollout, learning_rate: float, clip_range: float
    ) -> Terms:
        order, bounds = self.rollouts.order(rollout, self._parts(rollout), self._generator)
        weights = self.loss_weights(clip_range, self.options.clip_range_vf)
        terms = updates.run(rollout, order, bounds, learning_rate, weights)
        sizes = torch.from_numpy(np.diff(bounds[: len(terms) + 1])).double()
        return [*terms[:, : len(LOSSES)]], (sizes @ terms[:, len(LOSSES) :]) / sizes.sum()

    def _step(
        self, minibatch: Rollout, learning_rate: float, clip_range: float
    ) -> tuple[Tensor, Tensor]:
        """One step of gradient descent; returns the terms named in LOSSES, and log π/π_old."""
        options = self.options
        minibatch, log_prob, values, entropy, advantages = self.estimates(minibatch)
        log_ratio = log_prob - minibatch.log_probs
        policy_loss = -clipped_surrogate(log_ratio.exp(), advantages, clip_range)
        value_loss = value_error(values, minibatch.values, minibatch.returns, options.clip_range_vf)
        loss = policy_loss + options.vf_coef * value_loss - self.ent_coef * entropy
        grad_norm = self.optimizer.step(loss, learning_rate)
        terms = torch.stack((policy_loss, value_loss, entropy, grad_norm)).detach()
        return terms, log_ratio.detach()

    def _parts(self, rollout: Rollout) -> int:
        return math.ceil(len(rollout.actions) / self.options.batch_size)


def divergence(log_ratio: Tensor, clip_range: float) -> Tensor:
    """The distance that a pass moved the policy: the terms named in DIVERGENCES."""
    clipped = (log_ratio.exp() - 1.0).abs() > clip_range
    return torch.stack((approximate_kl(log_ratio), clipped.float().mean()))


def clipped_surrogate(ratio: Tensor, advantages: Tensor, clip_range: float) -> Tensor:
    """L^CLIP, eq. 7: E[min(r A, clip(r, 1 - ε, 1 + ε) A)], to be maximised. All (B,) → scalar."""
    clipped = ratio.clamp(1.0 - clip_range, 1.0 + clip_range)
    return torch.minimum(ratio * advantages, clipped * advantages).mean()


def value_error(
    values: Tensor, old_values: Tensor, returns: Tensor, clip_range: float | None
) -> Tensor:
    """E[(V - R)²]; with a clip range, E[max((V - R)², (V_old + clip(V - V_old) - R)²)]."""
    if clip_range is None:
        return F.mse_loss(values, returns)
    clipped = old_values + (values - old_values).clamp(-clip_range, clip_range)
    return torch.maximum((values - returns).square(), (clipped - returns).square()).mean()


def approximate_kl(log_ratio: Tensor) -> Tensor:
    """E[(r - 1) - log r], which estimates KL(π_old ‖ π) from samples of π_old. (B,) → scalar."""
    return (log_ratio.expm1() - log_ratio).mean()
