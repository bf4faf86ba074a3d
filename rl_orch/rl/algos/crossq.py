"""CrossQ (Bhatt et al. 2024, arXiv:1902.05605): SAC without slow copies of its critics; layers
normalise their batches instead.

The details that the paper leaves open, as they are here:

 1. Transitions and what follows them go through the critics in one batch, (s, a) and (s', a'), so
    that both are normalised by the statistics of their mixture. The target is taken from the second
    half, without gradient: y = r + gamma (min_j Q_j(s', a') - alpha log π(a' | s')).
 2. Batch renormalisation (Ioffe 2017) stands before every layer of policy and critics, the last one
    too: momentum 0.01, ε = 0.001; for 100,000 batches plain batch normalisation, then r within
    [1/3, 3] and d within ±5, without the gradual rise of the paper of 2017. Variances are those of
    the batch, divided by B. In sb3-contrib they are divided by B - 1; until the correction begins,
    updates are the same but for that. There it begins one batch later, and ε is added to the
    corrected variance, σ²/r² + ε; here to σ² alone, as the paper of 2017 has it.
 3. Running statistics are used wherever a policy acts, is evaluated or exported, for a', and by the
    critics when they judge the policy. They move with the critics' joint batch, and with the
    policy's own batch when it moves. They are part of the policy and of checkpoints.
 4. The policy and the temperature move in every `train.policy_delay`-th update, the first time in
    the `policy_delay`-th, after the critics of the same update; by the smaller estimate.
 5. Adam's first moment decays by `train.adam_beta1`, 0.5 by default; the temperature's by 0.9.
 6. Critics are wide by default: two layers of 1,024 (`agent.network.critic_hidden_sizes`), those of
    the policy 256.
 7. The loss of each critic has the factor ½, and they add up.
 8. Policy, exploration, gSDE, temperature and target entropy are those of `sac.py`; its details 3
    to 8, 10 to 14 hold here too. There are no slow copies, and `train.tau` is not read.
"""

from functools import partial

import torch
from torch import Tensor

from rl_orch.rl.data.state import StateTree
from rl_orch.rl.learn.critic_learner import (
    ContinuousLearner,
    mean_errors,
    squared_errors,
)
from rl_orch.rl.learn.off_policy import Drawn
from rl_orch.rl.learn.precision import compiled
from rl_orch.rl.learn.soft_learner import (
    SOFT_METRICS,
    Temperature,
    policy_loss,
    soft_exploration,
    soft_target,
)
from rl_orch.rl.policies.batch_renorm import NormalizedMLP, by_batch
from rl_orch.rl.policies.policy import Inputs, Setup, new_policy
from rl_orch.rl.policies.squashed import SoftExploration, SquashedPolicy
from rl_orch.rl.policies.twin_critics import TwinCritics
from rl_orch.rl.replay.buffer import Sample
from rl_orch.spec import algorithms

LOSSES = "learner/policy_losses"


class NormalizedPolicy(SquashedPolicy):
    """A squashed Gaussian whose layers normalise what they read."""

    perceptron = NormalizedMLP


class NormalizedCritics(TwinCritics):
    """Q₁ and Q₂, whose layers normalise what they read."""

    perceptron = NormalizedMLP


class CrossQ(ContinuousLearner[NormalizedPolicy, NormalizedCritics]):
    """Improves a squashed Gaussian policy by CrossQ."""

    traits = algorithms.CROSSQ
    METRICS = SOFT_METRICS
    build_policy = partial(new_policy, NormalizedPolicy)

    behaviour: SoftExploration

    @staticmethod
    def build_behaviour(policy: NormalizedPolicy, setup: Setup) -> SoftExploration:
        """The policy itself, or with gSDE."""
        return soft_exploration(policy, setup)

    def __init__(self, policy: NormalizedPolicy, setup: Setup) -> None:
        super().__init__(policy, setup)
        self.choose = compiled(policy.choose, self.options)
        self.q = compiled(self.critics.forward, self.options)
        self.judge = compiled(self.judges.forward, self.options)
        self.temperature = Temperature(self)
        self.behaviour = self.build_behaviour(policy, setup)
        # Of policy and temperature, when they last moved; reported until they do again.
        self._losses = torch.zeros(2, device=policy.device)
        self.explore()

    def build_critics(self, setup: Setup) -> NormalizedCritics:
        """Two critics."""
        return NormalizedCritics.build(self.policy, setup)

    def explore(self) -> None:
        """Uniform actions before learning begins; then the policy's own, with new noise."""
        self.behaviour.explore(random=self.warming_up)

    def improve(self, sample: Sample) -> Tensor:
        """One step of the critics; and, now and then, of policy and temperature (algorithm 1)."""
        drawn, alpha, lr = self.drawn(sample), self.temperature.alpha, self.learning_rate
        noise, next_noise = self.normal(2 * len(drawn.actions)).chunk(2)

        with self.precision():
            q, target = self._judged(drawn, next_noise, alpha)
        q_loss = 0.5 * squared_errors(q, target, drawn.weights)
        grad_norm = self.optimizers["critics"].step(q_loss, lr)
        self.prioritize(sample, mean_errors(q, target))

        if (self.updates + 1) % self.options.policy_delay == 0:
            with self.precision():
                with by_batch(self.policy):
                    actions, log_probs = self.choose(drawn.inputs, noise)
                chosen_q = self.judge(drawn.inputs, actions)
            actor_loss = policy_loss(chosen_q, log_probs, alpha)
            self.optimizers["policy"].step(actor_loss, lr)
            alpha_loss = self.temperature.adjust(log_probs.detach())
            self._losses = torch.stack((actor_loss, alpha_loss)).detach()
        terms = (q_loss, q.mean(), self._losses[0], alpha, self._losses[1], grad_norm)
        return torch.stack(terms).detach()

    def state(self) -> StateTree:
        """As all with critics; and the losses that are reported until the policy moves again."""
        return super().state() | StateTree({LOSSES: self._losses.cpu().numpy().copy()})

    def load_state(self, state: StateTree) -> None:
        """Go on from a state."""
        super().load_state(state)
        self._losses = torch.tensor(state.tensors[LOSSES], device=self.policy.device)

    def _judged(self, drawn: Drawn, noise: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Q(s, a), (2, B), and the target, (B,); from one pass of the critics."""
        with torch.no_grad():
            next_actions, next_log_probs = self.choose(drawn.next_inputs, noise)
        inputs = stacked(drawn.inputs, drawn.next_inputs)
        with by_batch(self.critics):
            both = self.q(inputs, torch.cat((drawn.actions, next_actions)))
        q, next_q = both.chunk(2, -1)
        rewards, discounts = drawn.rewards, drawn.discounts
        return q, soft_target(rewards, discounts, next_q.detach(), next_log_probs, alpha)


def stacked(first: Inputs, second: Inputs) -> Inputs:
    """The rows of the first inputs, and behind them those of the second."""
    if isinstance(first, dict) and isinstance(second, dict):
        return {name: torch.cat((rows, second[name])) for name, rows in first.items()}
    assert isinstance(first, Tensor)
    assert isinstance(second, Tensor)
    return torch.cat((first, second))
