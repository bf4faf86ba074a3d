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

import torch
from torch import Tensor

from rl_orch.rl.learn.critic_learner import mean_errors, squared_errors
from rl_orch.rl.learn.engine import CriticUpdates, Update
from rl_orch.rl.learn.off_policy import Drawn
from rl_orch.rl.learn.soft_learner import SoftLearner, policy_loss, soft_target
from rl_orch.rl.policies.policy import Setup
from rl_orch.rl.policies.twin_critics import TwinCritics
from rl_orch.rl.replay.buffer import Sample
from rl_orch.spec import algorithms


class SAC(SoftLearner[TwinCritics]):
    """Improves a squashed Gaussian policy by soft actor-critic."""

    traits = algorithms.SAC

    def build_critics(self, setup: Setup) -> TwinCritics:
        """Two critics."""
        return TwinCritics.build(self.policy, setup)

    def learn(self, sample: Sample) -> Tensor:
        """One step of critics, policy, temperature and slow copies (algorithm 1)."""
        drawn, alpha, lr = self.drawn(sample), self.temperature.alpha, self.learning_rate
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

        alpha_loss = self.temperature.adjust(log_probs.detach())
        self.target_critics.follow(self.options.tau)
        terms = (q_loss, q.mean(), actor_loss, alpha, alpha_loss, grad_norm)
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
        return updates.soft(sample, self.learning_rate, noise, next_noise, alpha)

    @torch.no_grad()
    def _target(self, drawn: Drawn, noise: Tensor, alpha: Tensor) -> Tensor:
        actions, log_probs = self.choose(drawn.next_inputs, noise)
        next_q = self.target_q(drawn.next_inputs, actions)
        return soft_target(drawn.rewards, drawn.discounts, next_q, log_probs, alpha)
