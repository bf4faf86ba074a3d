"""`SoftLearner`: the frame of learners with a squashed Gaussian policy, critics and a temperature;
and the losses of SAC.

Which target the critics learn, and how the policy is judged, is in `algos/sac.py` and `tqc.py`.
"""

from abc import abstractmethod
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from rl_orch.rl.learn.critic_learner import C, CriticLearner, least
from rl_orch.rl.learn.engine import CriticUpdates, Update, engine_for
from rl_orch.rl.learn.off_policy import ReplayLearner
from rl_orch.rl.learn.optimizer import BETA_1, build_optimizer
from rl_orch.rl.learn.precision import compiled
from rl_orch.rl.policies.policy import Setup, new_policy
from rl_orch.rl.policies.squashed import SoftExploration, SquashedPolicy, StateDependentNoise
from rl_orch.rl.replay.buffer import Sample

SOFT_METRICS = (
    "losses/qf_loss",
    "losses/q_values",
    "losses/actor_loss",
    "losses/ent_coef",
    "losses/ent_coef_loss",
    "losses/grad_norm",
)


class LogTemperature(nn.Module):
    """log alpha; it starts at 0."""

    def __init__(self) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.zeros(()))


class Temperature:
    """The weight of the entropy: a number of the options, or learned towards a target entropy.

    What is learned is among the parts that its learner remembers.
    """

    def __init__(self, learner: ReplayLearner[Any]) -> None:
        options, policy = learner.options, learner.policy
        self._learner = learner
        self._learned: LogTemperature | None = None
        if options.ent_coef == "auto":
            self._learned = LogTemperature().to(policy.device)
            learner.remembered["temperature"] = self._learned
            learner.optimizers["temperature"] = build_optimizer(
                self._learned, options.model_copy(update={"adam_beta1": BETA_1})
            )
        self.target_entropy = (
            -float(policy.action_size)
            if options.target_entropy == "auto"
            else options.target_entropy
        )

    @property
    def alpha(self) -> Tensor:
        """The temperature now: what entropy is worth."""
        if self._learned is None:
            return torch.tensor(self._learner.options.ent_coef, device=self._learner.policy.device)
        return self._learned.log_alpha.detach().exp()

    def adjust(self, log_probs: Tensor) -> Tensor:
        """One step of log alpha, unless alpha is fixed; returns its loss."""
        if self._learned is None:
            return torch.zeros((), device=log_probs.device)
        loss = temperature_loss(self._learned.log_alpha, log_probs, self.target_entropy)
        self._learner.optimizers["temperature"].step(loss, self._learner.learning_rate)
        return loss

    def adjust_by(self, updates: CriticUpdates, log_prob: float) -> float:
        """As `adjust`, by the engine, for the mean of the log-probabilities."""
        if self._learned is None:
            return 0.0
        slope = -(log_prob + self.target_entropy)
        loss = self._learned.log_alpha.item() * slope
        updates.descend_alone("temperature", slope, self._learner.learning_rate)
        return loss


class SoftLearner(CriticLearner[SquashedPolicy, C]):
    """A learner with critics and a squashed Gaussian policy whose entropy counts."""

    METRICS = SOFT_METRICS
    build_policy = partial(new_policy, SquashedPolicy)

    behaviour: SoftExploration

    @staticmethod
    def build_behaviour(policy: SquashedPolicy, setup: Setup) -> SoftExploration:
        """The policy in the spec's engine, or in torch with gSDE."""
        return soft_exploration(policy, setup)

    def __init__(self, policy: SquashedPolicy, setup: Setup) -> None:
        super().__init__(policy, setup)
        self.choose = compiled(policy.choose, self.options)
        self.judge = compiled(self.judges.forward, self.options)
        self.temperature = Temperature(self)
        self.behaviour = self.build_behaviour(policy, setup)
        self.explore()

    def explore(self) -> None:
        """Uniform actions before learning begins; then the policy's own, with new noise."""
        self.behaviour.explore(random=self.warming_up)

    def improve(self, sample: Sample) -> Tensor:
        """One step of critics, policy, temperature and slow copies; in the spec's engine."""
        if self.engine_updates is None:
            return self.learn(sample)
        alpha = self.temperature.alpha.item()
        noise, next_noise = self.normal(2 * len(sample.rewards)).chunk(2)
        update = self.learn_by(self.engine_updates, sample, noise, next_noise, alpha)
        self.prioritize(sample, update.errors)
        q_loss, q, actor_loss, log_prob, grad_norm = update.terms.tolist()
        alpha_loss = self.temperature.adjust_by(self.engine_updates, log_prob)
        self.target_critics.follow(self.options.tau)
        return torch.tensor((q_loss, q, actor_loss, alpha, alpha_loss, grad_norm))

    @abstractmethod
    def learn(self, sample: Sample) -> Tensor:
        """One step of critics, policy, temperature and slow copies in torch; returns its terms."""

    @abstractmethod
    def learn_by(
        self,
        updates: CriticUpdates,
        sample: Sample,
        noise: Tensor,
        next_noise: Tensor,
        alpha: float,
    ) -> Update:
        """The steps of critics and policy by an engine."""


def soft_exploration(policy: SquashedPolicy, setup: Setup) -> SoftExploration:
    """The exploration of a squashed Gaussian policy, in the spec's engine or with gSDE."""
    options = setup.spec.train
    sde = StateDependentNoise(policy, options.sde_sample_freq) if options.use_sde else None
    return SoftExploration(engine_for(setup).actor(policy), sde)


def soft_target(
    rewards: Tensor, discounts: Tensor, next_q: Tensor, next_log_probs: Tensor, alpha: Tensor
) -> Tensor:
    """The soft target of the critics: y = r + gamma (min_j Q'_j(s', a') - alpha log π(a' | s'))
    with a' ~ π, eqs. 3 and 5.

    (B,), (B,), (2, B), (B,), () → (B,); discounts are 0 where an episode terminated.
    """
    return rewards + discounts * (least(next_q) - alpha * next_log_probs)


def policy_loss(q: Tensor, log_probs: Tensor, alpha: Tensor) -> Tensor:
    """J_π = E[alpha log π(a | s) - min_j Q_j(s, a)], a ~ π, eq. 9: (2, B), (B,), () → scalar."""
    return (alpha * log_probs - least(q)).mean()


def temperature_loss(log_alpha: Tensor, log_probs: Tensor, target_entropy: float) -> Tensor:
    """J(alpha) = -log alpha E[log π(a | s) + H̄], after Haarnoja et al. 2018, eq. 18: (), (B,) →
    scalar."""
    return -log_alpha * (log_probs.mean() + target_entropy)
