"""Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905), by option with state-dependent
exploration, gSDE (Raffin et al. 2021, arXiv:2005.05719).

The details that the papers leave open, as they are here:

 1. Two critics learn towards the same target, which takes the smaller estimate of their slow
    copies; V is no network of its own. The loss of each has the factor ½ of eq. 5, and they add up.
 2. An update takes its steps in the order critics, policy, temperature, slow copies. The policy is
    judged by the critics of the same update, by the smaller estimate.
 3. The policy is a Gaussian squashed by tanh. Its log deviation depends on the state and is clamped
    to [-20, 2]; its log-probability is exact for every action (`distributions.py`).
 4. Actions are learned and kept in [-1, 1], and stretched to the bounds of the Box for the
    environment; so the entropy is that of actions in [-1, 1].
 5. The temperature is learned through log alpha, which starts at 0. The loss is linear in log alpha
    where that of eq. 18 is in alpha, so steps do not shrink with it (as in Stable-Baselines3). It
    takes the log-probabilities that the policy's loss had. A number in `train.ent_coef` fixes it.
 6. The target entropy is minus the number of action components (appendix D).
 7. Until `train.learning_starts` steps are taken, actions are uniform and nothing is learned.
 8. Episodes that are cut short bootstrap from their final observation, terminated ones do not.
 9. The slow copies start as copies and move by `train.tau` in every update.
10. Policy and critics have an encoder each. Behind them, weights and biases start uniform in
    ±1/√fan_in.
11. Where transitions are drawn by priority, weights count in the critics' loss alone, and the mean
    error of the two critics sets the new priority.
12. With n-step returns, only the last state's entropy is in the target; actions of older policies
    are not corrected for.
13. With gSDE, noise is the product of the last hidden layer and a matrix, which is drawn anew for a
    copy every `train.sde_sample_freq` steps, where an episode begins, and for each rollout. The
    deviations of its entries are learned, and the same in all states. Gradients reach the hidden
    layer through the deviation too, and the mean is clamped to [-2, 2] before tanh (as in
    Stable-Baselines3).
14. In updates with gSDE, the noise of every row is independent, as if it had a matrix of its own.
"""

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_orch.rl.data.state import StateTree
from rl_orch.rl.learn.critic_learner import (
    CriticLearner,
    least,
    mean_errors,
    squared_errors,
)
from rl_orch.rl.learn.engine import CriticUpdates, engine_for
from rl_orch.rl.learn.off_policy import Drawn
from rl_orch.rl.learn.optimizer import build_optimizer
from rl_orch.rl.learn.precision import compiled
from rl_orch.rl.policies.distributions import SquashedGaussian, StateDependentGaussian
from rl_orch.rl.policies.encoders import build_encoder
from rl_orch.rl.policies.exploration import ActorWrapper, NoisyActions
from rl_orch.rl.policies.nets import MLP, initialize
from rl_orch.rl.policies.policy import Actor, Decision, Inputs, PolicyInput, Setup, new_policy
from rl_orch.rl.policies.twin_critics import ContinuousPolicy
from rl_orch.rl.replay.buffer import Sample
from rl_orch.spec import algorithms

LOG_STD_BOUNDS = (-20.0, 2.0)
MEAN_BOUNDS = (-2.0, 2.0)
"""Of the mean with gSDE, before tanh."""


class SquashedPolicy(ContinuousPolicy):
    """A squashed Gaussian over actions in [-1, 1]."""

    log_std_bounds = LOG_STD_BOUNDS

    def __init__(self, setup: Setup, generator: torch.Generator) -> None:
        super().__init__(setup)
        spec, network = setup.spec, setup.spec.agent.network
        self.encoder = build_encoder(self.pipeline, spec.feature, network, generator)
        sizes = [self.encoder.size, *network.hidden_sizes]
        outputs = self.action_size * (1 if spec.train.use_sde else 2)
        self.trunk = MLP(sizes, network.activation, activate_last=True)
        self.head = MLP([sizes[-1], outputs], network.activation, activate_last=False)
        for net in (self.trunk, self.head):
            initialize(net, generator, orthogonal=False, last_gain=1.0)
        deviations = torch.full((sizes[-1], self.action_size), network.log_std_init)
        self.log_std = nn.Parameter(deviations) if spec.train.use_sde else None

    def forward(self, inputs: Inputs) -> SquashedGaussian:
        """π(· | s) of processed observations, with gradients."""
        hidden = self.trunk(self.encoder(inputs))
        outputs = self.head(hidden).float()
        if self.log_std is not None:
            mean = outputs.clamp(*MEAN_BOUNDS)
            return StateDependentGaussian(mean, hidden.float(), self.log_std)
        mean, log_std = outputs.chunk(2, -1)
        return SquashedGaussian(mean, log_std.clamp(*LOG_STD_BOUNDS))

    def choose(self, inputs: Inputs, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions (B, A) for standard normal noise (B, A), and log π (B,), with gradients."""
        actions, log_probs = self(inputs).rsample_with_log_prob(noise)
        return actions, log_probs

    @property
    def nets(self) -> tuple[MLP, ...]:
        """Trunk and head."""
        return self.trunk, self.head

    @torch.no_grad()
    def decide(self, seen: PolicyInput, generator: torch.Generator | None) -> Decision:
        """Actions (N, *shape) in [-1, 1]: sampled, or tanh of the mean without a generator."""
        distribution = self(self.to_inputs(seen.observations))
        return self.decision(
            distribution.mode() if generator is None else distribution.sample(generator)
        )


class StateDependentNoise(ActorWrapper):
    """Explores with gSDE: while a copy keeps its matrix, noise is a function of the state.

    Between rollouts all matrices are renewed, so there is nothing that a snapshot would need.
    """

    def __init__(self, policy: SquashedPolicy, every: int) -> None:
        super().__init__(policy)
        self._policy = policy
        self._every = every
        self._matrices: Tensor | None = None
        self._ages = np.zeros(0, np.int64)

    def renew(self) -> None:
        """Draw a new matrix for every copy, at the next decision."""
        self._matrices = None

    @torch.no_grad()
    def decide(self, seen: PolicyInput, generator: torch.Generator | None) -> Decision:
        """Actions (N, *shape) in [-1, 1]."""
        if generator is None:
            return self._policy.decide(seen, None)
        distribution = self._policy(self._policy.to_inputs(seen.observations))
        return self._policy.decision(distribution.explore(self._current(seen.first, generator)))

    def _current(self, first: NDArray[np.bool_], generator: torch.Generator) -> Tensor:
        """The matrix of each copy in this step, (N, L, A)."""
        log_std = self._policy.log_std
        assert log_std is not None
        if self._matrices is None:
            self._matrices = StateDependentGaussian.matrices(log_std, len(first), generator)
            self._ages = np.zeros(len(first), np.int64)
        elif (old := first | (self._ages == self._every)).any():
            drawn = StateDependentGaussian.matrices(log_std, int(old.sum()), generator)
            self._matrices[torch.from_numpy(old).to(self.device)] = drawn
            self._ages[old] = 0
        self._ages += 1
        return self._matrices


class SoftExploration(NoisyActions):
    """Uniform actions while `random`; then the policy's own, by option with gSDE."""

    def __init__(self, actor: Actor, sde: StateDependentNoise | None) -> None:
        super().__init__(actor)
        self._sde = sde

    def decide(self, seen: PolicyInput, generator: torch.Generator | None) -> Decision:
        """Actions (N, *shape) in [-1, 1]."""
        if self._sde is None or self.random:
            return super().decide(seen, generator)
        return self._sde.decide(seen, generator)

    def explore(self, *, random: bool) -> None:
        """Act so in the next rollout, with new noise."""
        self.random = random
        if self._sde is not None:
            self._sde.renew()

    def load_state(self, state: StateTree) -> None:
        """Explore as much from here on, with new noise."""
        self.explore(random=state.document["random"])


class Temperature(nn.Module):
    """log alpha; it starts at 0."""

    def __init__(self) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.zeros(()))


class SAC(CriticLearner[SquashedPolicy]):
    """Improves a squashed Gaussian policy by soft actor-critic."""

    traits = algorithms.SAC
    build_policy = partial(new_policy, SquashedPolicy)

    METRICS = (
        "losses/qf_loss",
        "losses/q_values",
        "losses/actor_loss",
        "losses/ent_coef",
        "losses/ent_coef_loss",
        "losses/grad_norm",
    )

    behaviour: SoftExploration

    @staticmethod
    def build_behaviour(policy: SquashedPolicy, setup: Setup) -> SoftExploration:
        """The policy in the spec's engine, or in torch with gSDE."""
        options = setup.spec.train
        sde = StateDependentNoise(policy, options.sde_sample_freq) if options.use_sde else None
        return SoftExploration(engine_for(setup).actor(policy), sde)

    def __init__(self, policy: SquashedPolicy, setup: Setup) -> None:
        super().__init__(policy, setup)
        options = self.options
        self.choose = compiled(policy.choose, options)
        self.judge = compiled(self.judges.forward, options)
        self.temperature: Temperature | None = None
        if options.ent_coef == "auto":
            self.temperature = Temperature().to(policy.device)
            self.remembered["temperature"] = self.temperature
            self.optimizers["temperature"] = build_optimizer(self.temperature, options)
        self._target_entropy = (
            -float(policy.action_size)
            if options.target_entropy == "auto"
            else options.target_entropy
        )
        self.behaviour = self.build_behaviour(policy, setup)
        self.explore()

    @property
    def alpha(self) -> Tensor:
        """The temperature now: what entropy is worth."""
        if self.temperature is None:
            return torch.tensor(self.options.ent_coef, device=self.policy.device)
        return self.temperature.log_alpha.detach().exp()

    def explore(self) -> None:
        """Uniform actions before learning begins; then the policy's own, with new noise."""
        self.behaviour.explore(random=self.warming_up)

    def improve(self, sample: Sample) -> Tensor:
        """One step of critics, policy, temperature and slow copies (algorithm 1)."""
        if self.engine_updates is not None:
            return self._improve_by(self.engine_updates, sample)
        drawn, alpha, lr = self.drawn(sample), self.alpha, self.learning_rate
        noise, next_noise = self.normal(2 * len(drawn.actions)).chunk(2)

        with self.precision():
            target = self._target(drawn, next_noise, alpha)
            q = self.q(drawn.inputs, drawn.actions)
        q_loss = 0.5 * squared_errors(q, target, drawn.weights)
        grad_norm = self.optimizers["critics"].step(q_loss, lr)
        self.prioritize(sample, mean_errors(q, target))

        with self.precision():
            actions, log_probs = self.choose(drawn.inputs, noise)
            chosen_q = self.judge(drawn.inputs, actions)
        actor_loss = policy_loss(chosen_q, log_probs, alpha)
        self.optimizers["policy"].step(actor_loss, lr)

        alpha_loss = self._adjust_temperature(log_probs.detach(), lr)
        self.target_critics.follow(self.options.tau)
        terms = (q_loss, q.mean(), actor_loss, alpha, alpha_loss, grad_norm)
        return torch.stack(terms).detach()

    def _improve_by(self, updates: CriticUpdates, sample: Sample) -> Tensor:
        """As `improve`, by the engine; the same steps in the same order."""
        alpha, lr = self.alpha.item(), self.learning_rate
        noise, next_noise = self.normal(2 * len(sample.rewards)).chunk(2)
        update = updates.soft(sample, lr, noise, next_noise, alpha)
        self.prioritize(sample, update.errors)
        q_loss, q, actor_loss, log_prob, grad_norm = update.terms.tolist()
        alpha_loss = 0.0
        if self.temperature is not None:
            slope = -(log_prob + self._target_entropy)
            alpha_loss = self.temperature.log_alpha.item() * slope
            updates.descend_alone("temperature", slope, lr)
        self.target_critics.follow(self.options.tau)
        return torch.tensor((q_loss, q, actor_loss, alpha, alpha_loss, grad_norm))

    @torch.no_grad()
    def _target(self, drawn: Drawn, noise: Tensor, alpha: Tensor) -> Tensor:
        actions, log_probs = self.choose(drawn.next_inputs, noise)
        next_q = self.target_q(drawn.next_inputs, actions)
        return soft_target(drawn.rewards, drawn.discounts, next_q, log_probs, alpha)

    def _adjust_temperature(self, log_probs: Tensor, learning_rate: float) -> Tensor:
        """One step of log alpha, unless alpha is fixed; returns its loss."""
        if self.temperature is None:
            return torch.zeros((), device=self.policy.device)
        loss = temperature_loss(self.temperature.log_alpha, log_probs, self._target_entropy)
        self.optimizers["temperature"].step(loss, learning_rate)
        return loss


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
    """J(alpha) = -log alpha E[log π(a | s) + H̄], after eq. 18: (), (B,) → scalar."""
    return -log_alpha * (log_probs.mean() + target_entropy)
