"""Deep Q-networks (Mnih et al. 2015, doi:10.1038/nature14236).

The details that the paper leaves open, and the extensions that options turn on, as they are here:

 1. The target is y = r + gamma max_a Q⁻(s', a), with Q⁻ the target network; where an episode
    terminated, y = r. An episode cut short goes on: its final observation has a value.
 2. The loss is Huber's of the error y - Q(s, a), quadratic up to 1 and linear beyond, and its mean
    over the sample. The paper clips the error to [-1, 1], which gives the same gradient.
 3. Adam instead of the paper's RMSprop, and the gradient is scaled down to `train.max_grad_norm`
    over all parameters together (as in Stable-Baselines3).
 4. After each `rollout.steps` of every copy, `train.gradient_steps` samples are drawn and learned
    from, one step each, once `train.learning_starts` environment steps are there.
 5. The target network takes over a share `train.tau` of the weights for every multiple of
    `train.target_update_interval` environment steps that is passed, before the samples are learned
    from: with a share of 1, a copy.
 6. Actions are random before learning begins; then their share falls from
    `train.exploration_initial_eps` to `train.exploration_final_eps` over the first
    `train.exploration_fraction` of the budget. The trained policy is greedy.
 7. Double Q-learning (van Hasselt et al. 2016, eq. 4), by `train.double_q`: the online network
    chooses the action, the target network says what it is worth.
 8. Dueling streams (Wang et al. 2016, eq. 9), by `agent.network.dueling`, without their scaling of
    the gradient where the streams meet.
 9. n-step returns (Sutton 1988), by `buffer.n_step`: r is the discounted sum of the rewards up to
    the n-th step or the episode's end, and gamma is raised to the number of steps. Actions of older
    policies are not corrected for (as in Rainbow, Hessel et al. 2018).
10. Prioritised replay (Schaul et al. 2016, algorithm 1), by `buffer.prioritized`: the loss of each
    row is weighted by its importance, and its priority becomes |y - Q(s, a)| (`replay/buffer.py`).
11. Actions that a mask forbids are neither taken nor explored, and the maximum of the target leaves
    those out that the next state forbids.
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


class DQN(QLearner):
    """Improves a Q-network by DQN."""

    traits = algorithms.DQN

    @staticmethod
    def build_policy(setup: Setup) -> QNetwork:
        """A network with one value for each action."""
        return QNetwork(setup)

    def learn(self, sample: Sample) -> Tensor:
        """One step of gradient descent on a sample."""
        drawn = self.drawn(sample)
        with self.precision():
            targets = self._targets(drawn)
            values = taken(self.online(drawn.inputs), drawn.actions)
        loss, grad_norm = self.descend(huber(targets - values), drawn.weights)
        self.prioritize(sample, targets - values)
        return torch.stack((loss, values.detach().mean(), grad_norm))

    @torch.no_grad()
    def _targets(self, drawn: Drawn) -> Tensor:
        next_values = self.target(drawn.next_inputs)
        judged = self.online(drawn.next_inputs) if self.options.double_q else next_values
        best = best_actions(judged, drawn.next_masks)
        return td_targets(drawn.rewards, drawn.discounts, next_values, best)


def td_targets(
    rewards: Tensor, discounts: Tensor, next_values: Tensor, next_actions: Tensor
) -> Tensor:
    """y = r + gamma Q⁻(s', a'): (B,), (B,), (B, n), (B,) → (B,); discounts are 0 at an end."""
    return rewards + discounts * taken(next_values, next_actions)


def huber(errors: Tensor) -> Tensor:
    """e² / 2 up to |e| = 1, |e| - 1/2 beyond: elementwise."""
    return F.huber_loss(errors, torch.zeros_like(errors), reduction="none")
