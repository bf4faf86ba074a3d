"""Truncated quantile critics (Kuznetsov et al. 2020, arXiv:2005.04269): SAC whose critics learn the
distribution of the return, and whose target leaves out its highest quantiles.

Each of n critics gives N quantiles θ_i(s, a) of the return, at the midpoints
τ̂_i = (2i - 1) / 2N. The details that the paper leaves open, as they are here:

 1. The quantiles of the slow copies of all critics are pooled and sorted; the
    n · `train.top_quantiles_to_drop_per_net` highest are left out, eq. 9, and every critic learns
    towards all that remain: y_j = r + gamma (z_j - alpha log π(a' | s')), a' ~ π, eq. 10.
 2. The loss is the quantile Huber loss with κ = 1, averaged over quantiles, targets (eq. 12), the
    sample, and critics too, as in the authors' code.
 3. The policy is judged by the mean of all quantiles of all critics, none left out, eq. 13.
 4. An update takes its steps in the order critics, policy, temperature, slow copies. The policy is
    judged by the critics of the same update.
 5. Policy, exploration, gSDE, temperature and target entropy are those of `sac.py`; its details 3
    to 10 and 12 to 14 hold here too.
 6. Where transitions are drawn by priority, weights count in the critics' loss alone, and the mean
    of |y_j - θ_i| over all i, j and critics sets the new priority.
 7. Updates are those of sb3-contrib from the same weights, experience and noise; a test holds it.
    Defaults are 2 critics of 25 quantiles and layers of 256, as in sb3-contrib; the paper has 5
    critics and layers of 512. 2 of each critic's quantiles are dropped in both.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from rl_orch.rl.learn.engine import CriticUpdates, Update
from rl_orch.rl.learn.off_policy import Drawn
from rl_orch.rl.learn.soft_learner import SoftLearner
from rl_orch.rl.policies.policy import Setup
from rl_orch.rl.policies.twin_critics import QuantileCritics
from rl_orch.rl.replay.buffer import Sample
from rl_orch.spec import algorithms

KAPPA = 1.0
"""Errors up to which the loss is quadratic."""


class TQC(SoftLearner[QuantileCritics]):
    """Improves a squashed Gaussian policy by truncated quantile critics."""

    traits = algorithms.TQC

    def build_critics(self, setup: Setup) -> QuantileCritics:
        """Critics of quantiles."""
        return QuantileCritics.build(self.policy, setup)

    @property
    def dropped(self) -> int:
        """How many of all critics' quantiles the target leaves out."""
        return self.options.top_quantiles_to_drop_per_net * len(self.critics.nets)

    def learn(self, sample: Sample) -> Tensor:
        """One step of critics, policy, temperature and slow copies (algorithm 1)."""
        drawn, alpha, lr = self.drawn(sample), self.temperature.alpha, self.learning_rate
        noise, next_noise = self.normal(2 * len(drawn.actions)).chunk(2)

        with self.precision():
            targets = self._targets(drawn, next_noise, alpha)
            quantiles = self.q(drawn.inputs, drawn.actions)
        errors = targets[:, None, :] - quantiles[..., None]
        q_loss = (quantile_huber(errors) * drawn.weights).sum() / len(targets)
        grad_norm = self.optimizers["critics"].step(q_loss, lr)
        self.prioritize(sample, errors.abs().mean((0, 2, 3)))

        with self.precision():
            actions, log_probs = self.choose(drawn.inputs, noise)
            chosen = self.judge(drawn.inputs, actions)
        actor_loss = quantile_policy_loss(chosen, log_probs, alpha)
        self.optimizers["policy"].step(actor_loss, lr)

        alpha_loss = self.temperature.adjust(log_probs.detach())
        self.target_critics.follow(self.options.tau)
        terms = (q_loss, quantiles.mean(), actor_loss, alpha, alpha_loss, grad_norm)
        return torch.stack(terms).detach()

    def learn_by(
        self,
        updates: CriticUpdates,
        sample: Sample,
        noise: Tensor,
        next_noise: Tensor,
        alpha: float,
    ) -> Update:
        """The same steps of critics and policy, by the engine."""
        lr, dropped = self.learning_rate, self.dropped
        return updates.truncated(sample, lr, noise, next_noise, alpha, dropped)

    @torch.no_grad()
    def _targets(self, drawn: Drawn, noise: Tensor, alpha: Tensor) -> Tensor:
        actions, log_probs = self.choose(drawn.next_inputs, noise)
        next_quantiles = truncated(self.target_q(drawn.next_inputs, actions), self.dropped)
        values = next_quantiles - (alpha * log_probs)[:, None]
        return drawn.rewards[:, None] + drawn.discounts[:, None] * values


def truncated(quantiles: Tensor, dropped: int) -> Tensor:
    """The quantiles of all critics for each row in order, without the `dropped` highest, eq. 9:
    (n, B, N) → (B, nN - dropped)."""
    pooled = quantiles.transpose(0, 1).flatten(1).sort(-1).values
    return pooled[:, : pooled.shape[1] - dropped]


def quantile_huber(errors: Tensor, kappa: float = KAPPA) -> Tensor:
    """E_nij[|τ̂_i - 1{u_ij < 0}| L_κ(u_ij)], eq. 12: errors u (n, B, N, M) → (B,)."""
    count = errors.shape[2]
    positions = torch.arange(count, dtype=errors.dtype, device=errors.device)
    midpoints = ((positions + 0.5) / count)[:, None]
    nothing = errors.new_zeros(()).expand_as(errors)
    losses = F.huber_loss(errors, nothing, reduction="none", delta=kappa)
    weights = torch.where(errors < 0, 1.0 - midpoints, midpoints)
    return (weights * losses).mean((0, 2, 3))


def quantile_policy_loss(quantiles: Tensor, log_probs: Tensor, alpha: Tensor) -> Tensor:
    """J_π = E[alpha log π(a | s) - E_ni θ_ni(s, a)], a ~ π, eq. 13: (n, B, N), (B,), () →
    scalar."""
    return (alpha * log_probs - quantiles.mean((0, 2))).mean()
