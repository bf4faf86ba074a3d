"""Quantile regression DQN (Dabney et al. 2018, arXiv:1710.10044).

The network gives N quantiles θ_i(s, a) of the return of each action, at the midpoints
τ̂_i = (2i - 1) / 2N, and acts by their mean. The details that the paper leaves open, and the
extensions that options turn on, as they are here:

 1. The action a* of the target is the one with the greatest mean of the target network's
    quantiles, and the targets are T θ_j = r + gamma θ⁻_j(s', a*), algorithm 1; where an episode
    terminated, r. An episode cut short goes on: its final observation has a value.
 2. The loss is the quantile Huber loss, eq. 10, with κ = 1: summed over the predicted quantiles,
    averaged over the target's (algorithm 1), and then over the sample.
 3. Adam, whose epsilon is 0.01/32 by default, as in the paper; the gradient is not scaled down
    unless `train.max_grad_norm` is set.
 4. After each `rollout.steps` of every copy, `train.gradient_steps` samples are drawn and learned
    from, one step each, once `train.learning_starts` environment steps are there.
 5. The target network takes over a share `train.tau` of the weights for every multiple of
    `train.target_update_interval` environment steps that is passed, before the samples are learned
    from: with a share of 1, a copy.
 6. Actions are random before learning begins; then their share falls from
    `train.exploration_initial_eps` to `train.exploration_final_eps` over the first
    `train.exploration_fraction` of the budget. The trained policy is greedy.
 7. Double Q-learning, by `train.double_q`: a* is chosen by the mean of the online network's
    quantiles.
 8. Dueling streams, by `agent.network.dueling`: of each quantile, θ_i = V_i + A_i - mean A_i.
 9. n-step returns, by `buffer.n_step`, without correction for older policies' actions.
10. Prioritised replay, by `buffer.prioritized`: the loss of each row is weighted by its importance,
    and its priority becomes the mean of |T θ_j - θ_i| over all i and j.
11. Actions that a mask forbids are neither taken nor explored, nor chosen for the target.
12. Weights and biases start uniform in ±1/√fan_in, torch's own default.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from rl_orch.rl.learn.off_policy import Drawn
from rl_orch.rl.learn.q_learner import QLearner, taken
from rl_orch.rl.policies.policy import Setup
from rl_orch.rl.policies.q_network import QNetwork, best_actions
from rl_orch.rl.replay.buffer import Sample
from rl_orch.spec import algorithms

KAPPA = 1.0
"""Errors up to which the loss is quadratic."""


class QRDQN(QLearner):
    """Improves a network of quantiles by QR-DQN."""

    traits = algorithms.QRDQN

    @staticmethod
    def build_policy(setup: Setup) -> QNetwork:
        """A network with N quantiles for each action."""
        return QNetwork(setup, quantiles=setup.spec.train.n_quantiles)

    def learn(self, sample: Sample) -> Tensor:
        """One step of gradient descent on a sample."""
        drawn = self.drawn(sample)
        with self.precision():
            targets = self._targets(drawn)
            quantiles = taken(self.online(drawn.inputs), drawn.actions)
        errors = pairwise_errors(quantiles, targets)
        loss, grad_norm = self.descend(quantile_huber(errors), drawn.weights)
        self.prioritize(sample, errors.abs().mean((1, 2)))
        return torch.stack((loss, quantiles.detach().mean(), grad_norm))

    @torch.no_grad()
    def _targets(self, drawn: Drawn) -> Tensor:
        next_quantiles = self.target(drawn.next_inputs)
        judged = self.online(drawn.next_inputs) if self.options.double_q else next_quantiles
        best = best_actions(judged.mean(-1), drawn.next_masks)
        return quantile_targets(drawn.rewards, drawn.discounts, next_quantiles, best)


def quantile_targets(
    rewards: Tensor, discounts: Tensor, next_quantiles: Tensor, next_actions: Tensor
) -> Tensor:
    """T θ_j = r + gamma θ⁻_j(s', a'): (B,), (B,), (B, n, N), (B,) → (B, N); discounts are 0 at an
    end."""
    return rewards[:, None] + discounts[:, None] * taken(next_quantiles, next_actions)


def pairwise_errors(quantiles: Tensor, targets: Tensor) -> Tensor:
    """u_ij = T θ_j - θ_i: (B, N), (B, M) → (B, N, M)."""
    return targets[:, None, :] - quantiles[:, :, None]


def quantile_huber(errors: Tensor, kappa: float = KAPPA) -> Tensor:
    """Σ_i E_j[|τ̂_i - 1{u_ij < 0}| L_κ(u_ij)], eq. 10: (B, N, M) → (B,), where L_κ is Huber's loss,
    eq. 9: u² / 2 up to |u| = κ, κ (|u| - κ / 2) beyond."""
    count = errors.shape[1]
    positions = torch.arange(count, dtype=errors.dtype, device=errors.device)
    midpoints = ((positions + 0.5) / count)[:, None]
    nothing = errors.new_zeros(()).expand_as(errors)
    losses = F.huber_loss(errors, nothing, reduction="none", delta=kappa)
    weights = torch.where(errors < 0, 1.0 - midpoints, midpoints)
    return (weights * losses).mean(2).sum(1)
