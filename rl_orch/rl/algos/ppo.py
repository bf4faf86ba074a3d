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
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rl_orch.rl.data.batch import Batch, on_host
from rl_orch.rl.data.returns import explained_variance
from rl_orch.rl.data.schedules import scheduled
from rl_orch.rl.learn.engine import engine_for
from rl_orch.rl.learn.learner import LearnerState, finite_means
from rl_orch.rl.learn.on_policy import Rollout, Rollouts, standardized
from rl_orch.rl.learn.optimizer import build_optimizer
from rl_orch.rl.learn.precision import compiled, precision
from rl_orch.rl.policies.actor_critic import ActorCritic
from rl_orch.rl.policies.policy import Setup
from rl_orch.rl.streams import Stream, derive
from rl_orch.spec import algorithms

LOSSES = ("losses/policy_loss", "losses/value_loss", "losses/entropy", "losses/grad_norm")
DIVERGENCES = ("losses/approx_kl", "losses/clipfrac")


class PPO:
    """Improves an actor-critic by PPO."""

    traits = algorithms.PPO
    build_policy = staticmethod(ActorCritic.build)
    replay = None

    def __init__(self, policy: ActorCritic, setup: Setup) -> None:
        spec, engine = setup.spec, engine_for(setup)
        self.policy = policy
        self.behaviour = engine.actor(policy)
        self._options = spec.train
        self._ent_coef = float(spec.train.ent_coef)
        self._rollouts = Rollouts(policy, spec, engine.assessor(policy))
        self._ask = compiled(self._rollouts.ask, spec.train)
        self._optimizer = build_optimizer(policy, spec.train)
        self._generator = torch.Generator()
        self._generator.manual_seed(derive(spec.env.seed, Stream.MINIBATCHES))
        self._env_steps = 0
        self._updates = engine.policy_updates(policy, self._optimizer)

    def update(self, batch: Batch) -> dict[str, float]:
        """Several passes over a rollout, in minibatches; `batch` is used once and not kept."""
        learning_rate, clip_range = self._learning_rate(), self._clip_range()
        self._env_steps += (steps := int(on_host(batch.column("valid")).sum()))
        if steps == 0:
            return {}
        with precision(self._options, self.policy.device):
            rollout = self._rollouts.prepare(batch)
        count = math.ceil(len(rollout.actions) / self._options.batch_size)
        losses: list[Tensor] = []
        divergences: list[Tensor] = []
        make_pass = self._pass if self._updates is None else self._engine_pass
        for _ in range(self._options.update_epochs):
            terms, moved = make_pass(rollout, count, learning_rate, clip_range)
            losses.extend(terms)
            divergences.append(moved)
            if self._moved_too_far(moved):
                break
        return {
            **finite_means(LOSSES, losses, step=self._env_steps),
            **finite_means(DIVERGENCES, divergences, step=self._env_steps),
            "losses/explained_variance": explained_variance(
                on_host(rollout.values), on_host(rollout.returns)
            ),
            "charts/learning_rate": learning_rate,
        }

    def state(self) -> LearnerState:
        """Optimiser, minibatch generator, reward statistics and the steps learned from so far."""
        tensors = {
            **self._optimizer.tensors(),
            **self._rollouts.rewards.tensors(),
            "rng/minibatches": self._generator.get_state().numpy().copy(),
        }
        return LearnerState(tensors, {"env_steps": self._env_steps})

    def load_state(self, state: LearnerState) -> None:
        """Go on from a state; the policy's weights are loaded into the policy itself."""
        self._optimizer.load_tensors(state.tensors)
        self._rollouts.rewards.load_tensors(state.tensors)
        self._generator.set_state(torch.from_numpy(state.tensors["rng/minibatches"].copy()))
        self._env_steps = int(state.document["env_steps"])

    @property
    def _progress(self) -> float:
        return self._env_steps / self._options.total_timesteps

    def _learning_rate(self) -> float:
        return scheduled(self._options.lr_schedule, self._options.lr, self._progress)

    def _clip_range(self) -> float:
        return scheduled(self._options.clip_schedule, self._options.clip_range, self._progress)

    def _pass(
        self, rollout: Rollout, count: int, learning_rate: float, clip_range: float
    ) -> tuple[list[Tensor], Tensor]:
        """One pass in `count` minibatches; returns the terms named in LOSSES of each, and those
        named in DIVERGENCES of all."""
        losses, log_ratios = [], []
        for minibatch in self._rollouts.minibatches(rollout, count, self._generator):
            if minibatch.counts is not None and not minibatch.counts.any():
                continue
            terms, log_ratio = self._improve(minibatch, learning_rate, clip_range)
            losses.append(terms)
            log_ratios.append(log_ratio)
        return losses, divergence(torch.cat(log_ratios), clip_range)

    def _engine_pass(
        self, rollout: Rollout, count: int, learning_rate: float, clip_range: float
    ) -> tuple[list[Tensor], Tensor]:
        """As `_pass`, by the engine."""
        assert self._updates is not None
        options = self._options
        order, bounds = self._rollouts.order(rollout, count, self._generator)
        terms = self._updates.run(
            rollout,
            order,
            bounds,
            learning_rate,
            clip=clip_range,
            clip_values=options.clip_range_vf,
            value=options.vf_coef,
            entropy=self._ent_coef,
            standardize=options.normalize_advantage,
        )
        sizes = torch.from_numpy(np.diff(bounds[: len(terms) + 1])).double()
        return [*terms[:, : len(LOSSES)]], (sizes @ terms[:, len(LOSSES) :]) / sizes.sum()

    def _improve(
        self, minibatch: Rollout, learning_rate: float, clip_range: float
    ) -> tuple[Tensor, Tensor]:
        """One step of gradient descent; returns the terms named in LOSSES, and log π/π_old."""
        options = self._options
        with precision(options, self.policy.device):
            distribution, values = self._ask(minibatch)
        log_prob = distribution.log_prob(minibatch.actions)
        # Where entropy earns nothing it is only measured, and takes no gradient.
        with nullcontext() if self._ent_coef > 0.0 else torch.no_grad():
            entropies = distribution.entropy()
        if minibatch.counts is not None:
            kept = minibatch.counts
            log_prob, values, entropies = log_prob[kept], values[kept], entropies[kept]
            minibatch = minibatch.rows(kept)
        advantages = minibatch.advantages
        if options.normalize_advantage:
            advantages = standardized(advantages)
        log_ratio = log_prob - minibatch.log_probs
        policy_loss = -clipped_surrogate(log_ratio.exp(), advantages, clip_range)
        value_loss = value_error(values, minibatch.values, minibatch.returns, options.clip_range_vf)
        entropy = entropies.mean()
        loss = policy_loss + options.vf_coef * value_loss - self._ent_coef * entropy
        grad_norm = self._optimizer.step(loss, learning_rate)
        terms = torch.stack((policy_loss, value_loss, entropy, grad_norm)).detach()
        return terms, log_ratio.detach()

    def _moved_too_far(self, terms: Tensor) -> bool:
        target = self._options.target_kl
        return target is not None and terms[0].item() > target


def divergence(log_ratio: Tensor, clip_range: float) -> Tensor:
    """How far a pass moved the policy: the terms named in DIVERGENCES."""
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
