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

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rl_orch.rl.learn.engine import PolicyUpdates
from rl_orch.rl.learn.learner import means
from rl_orch.rl.learn.on_policy import Rollout
from rl_orch.rl.learn.policy_learner import PolicyLearner
from rl_orch.spec import algorithms

METRICS = ("losses/policy_loss", "losses/value_loss", "losses/entropy", "losses/grad_norm")


class A2C(PolicyLearner):
    """Improves an actor-critic by one step along the policy gradient for each rollout."""

    traits = algorithms.A2C

    def improve(self, rollout: Rollout, learning_rate: float, progress: float) -> dict[str, float]:
        """One step of gradient descent."""
        if self.engine_updates is None:
            terms = self._step(rollout, learning_rate)
        else:
            terms = self._step_by(self.engine_updates, rollout, learning_rate)
        return means(METRICS, [terms])

    def _step(self, rollout: Rollout, learning_rate: float) -> Tensor:
        """One step of gradient descent; returns the terms named in METRICS."""
        rollout, log_prob, values, entropy, advantages = self.estimates(rollout)
        policy_loss = policy_gradient(log_prob, advantages)
        value_loss = F.mse_loss(values, rollout.returns)
        loss = policy_loss + self.options.vf_coef * value_loss - self.ent_coef * entropy
        grad_norm = self.optimizer.step(loss, learning_rate)
        return torch.stack((policy_loss, value_loss, entropy, grad_norm)).detach()

    def _step_by(self, updates: PolicyUpdates, rollout: Rollout, learning_rate: float) -> Tensor:
        rows, weights = len(rollout.actions), self.loss_weights()
        terms = updates.run(rollout, np.arange(rows), np.array([0, rows]), learning_rate, weights)
        return terms[0, : len(METRICS)]


def policy_gradient(log_prob: Tensor, advantages: Tensor) -> Tensor:
    """-E[log π(a | s) A], whose gradient descends to better returns. All (B,) → scalar."""
    return -(log_prob * advantages).mean()
