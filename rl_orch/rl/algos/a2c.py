"""Advantage actor-critic (Mnih et al. 2016, arXiv:1602.01783), synchronous, without actor threads.

The details that the paper leaves open, as they are here:

 1. All copies take `rollout.steps` steps, then there is one gradient step over all of them: the
    synchronous form, which lost nothing against the asynchronous one (Wu et al. 2017).
 2. Advantages are generalised advantage estimates; `train.gae_lambda` 1 makes them the n-step
    advantages of the paper. Episodes cut short bootstrap from the value of their final observation.
 3. The policy gradient, the value error with weight `train.vf_coef` and the entropy with weight
    `train.ent_coef` are summed into one loss; the value error has no factor ½.
 4. RMSprop with smoothing 0.99 and epsilon 1e-5 outside the root, as torch has it; its statistics
    are those of the one learner.
 5. The gradient is scaled down to `train.max_grad_norm` over all parameters together.
 6. Advantages are standardised over the rollout only if `train.normalize_advantage` is set.
 7. Networks start as PPO's do: orthogonal, 0.01 for the policy's head.
 8. Rows in which an environment only reset itself are left out after the advantages are computed.
 9. A policy with a memory is trained through the rollout, from what it remembered before.
"""

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
from rl_orch.spec import algorithms

METRICS = ("losses/policy_loss", "losses/value_loss", "losses/entropy", "losses/grad_norm")


class A2C:
    """Improves an actor-critic by one step along the policy gradient for each rollout."""

    traits = algorithms.A2C
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
        self._env_steps = 0
        self._updates = engine.policy_updates(policy, self._optimizer)

    def update(self, batch: Batch) -> dict[str, float]:
        """One gradient step over a rollout."""
        options = self._options
        learning_rate = self._learning_rate()
        self._env_steps += (steps := int(on_host(batch.column("valid")).sum()))
        if steps == 0:
            return {}
        with precision(options, self.policy.device):
            rollout = self._rollouts.prepare(batch)
        improve = self._improve if self._updates is None else self._engine_step
        return {
            **finite_means(METRICS, [improve(rollout, learning_rate)], step=self._env_steps),
            "losses/explained_variance": explained_variance(
                on_host(rollout.values), on_host(rollout.returns)
            ),
            "charts/learning_rate": learning_rate,
        }

    def _improve(self, rollout: Rollout, learning_rate: float) -> Tensor:
        """One step of gradient descent; returns the terms named in METRICS."""
        options = self._options
        with precision(options, self.policy.device):
            distribution, values = self._ask(rollout)
        log_prob = distribution.log_prob(rollout.actions)
        with nullcontext() if self._ent_coef > 0.0 else torch.no_grad():
            entropies = distribution.entropy()
        if rollout.counts is not None:
            kept = rollout.counts
            log_prob, values, entropies = log_prob[kept], values[kept], entropies[kept]
            rollout = rollout.rows(kept)
        advantages = rollout.advantages
        if options.normalize_advantage:
            advantages = standardized(advantages)
        policy_loss = policy_gradient(log_prob, advantages)
        value_loss = F.mse_loss(values, rollout.returns)
        entropy = entropies.mean()
        loss = policy_loss + options.vf_coef * value_loss - self._ent_coef * entropy
        grad_norm = self._optimizer.step(loss, learning_rate)
        return torch.stack((policy_loss, value_loss, entropy, grad_norm)).detach()

    def _engine_step(self, rollout: Rollout, learning_rate: float) -> Tensor:
        """As `_improve`, by the engine."""
        assert self._updates is not None
        rows = len(rollout.actions)
        terms = self._updates.run(
            rollout,
            np.arange(rows),
            np.array([0, rows]),
            learning_rate,
            value=self._options.vf_coef,
            entropy=self._ent_coef,
            standardize=self._options.normalize_advantage,
        )
        return terms[0, : len(METRICS)]

    def state(self) -> LearnerState:
        """Optimiser, reward statistics and the steps learned from so far."""
        tensors = {**self._optimizer.tensors(), **self._rollouts.rewards.tensors()}
        return LearnerState(tensors, {"env_steps": self._env_steps})

    def load_state(self, state: LearnerState) -> None:
        """Go on from a state; the policy's weights are loaded into the policy itself."""
        self._optimizer.load_tensors(state.tensors)
        self._rollouts.rewards.load_tensors(state.tensors)
        self._env_steps = int(state.document["env_steps"])

    def _learning_rate(self) -> float:
        progress = self._env_steps / self._options.total_timesteps
        return scheduled(self._options.lr_schedule, self._options.lr, progress)


def policy_gradient(log_prob: Tensor, advantages: Tensor) -> Tensor:
    """-E[log π(a | s) A], whose gradient descends to better returns. All (B,) → scalar."""
    return -(log_prob * advantages).mean()
