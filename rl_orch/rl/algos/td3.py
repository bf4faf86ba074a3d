"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, arXiv:1802.09477).

The details that the paper leaves open, as they are here:

 1. Two critics learn towards the same target, which takes the smaller estimate of their slow copies
    (clipped double Q-learning, eq. 10). The mean squared errors of the two add up.
 2. The target's action is that of the policy's slow copy plus normal noise of deviation
    `train.target_policy_noise`, clipped to ±`train.target_noise_clip`; the sum is clipped to
    [-1, 1] (section 5.3).
 3. Policy and slow copies move in every `train.policy_delay`-th update, the first time in the
    `policy_delay`-th; the policy is judged by the first critic, after its step (algorithm 1).
 4. The policy ends in tanh. Actions are learned and kept in [-1, 1], and stretched to the bounds of
    the Box for the environment; all noise is on that scale.
 5. Exploration adds normal noise of deviation `train.action_noise` to each action, clipped to
    [-1, 1]. The trained policy has none.
 6. Until `train.learning_starts` steps are taken, actions are uniform and nothing is learned.
 7. Episodes that are cut short bootstrap from their final observation, terminated ones do not.
 8. The slow copies start as copies; they move by `train.tau`.
 9. Policy and critics have an encoder each. Behind them, weights and biases start uniform in
    ±1/√fan_in.
10. Where transitions are drawn by priority, weights count in the critics' loss alone, and the mean
    error of the two critics sets the new priority.
11. With n-step returns, actions of older policies are not corrected for.
"""

from functools import partial

import torch
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
from rl_orch.rl.learn.optimizer import Target
from rl_orch.rl.learn.precision import compiled
from rl_orch.rl.policies.encoders import build_encoder
from rl_orch.rl.policies.exploration import NoisyActions
from rl_orch.rl.policies.nets import MLP, initialize
from rl_orch.rl.policies.policy import (
    Decision,
    Inputs,
    PolicyInput,
    PolicyModule,
    Setup,
    new_policy,
)
from rl_orch.rl.policies.twin_critics import ContinuousPolicy, TwinCritics
from rl_orch.rl.replay.buffer import Sample
from rl_orch.spec import algorithms

ACTOR_LOSS = "learner/actor_loss"


class DeterministicActor(nn.Module):
    """π(s): from inputs to actions (B, A) in [-1, 1]."""

    def __init__(
        self, policy: PolicyModule, setup: Setup, outputs: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        spec, network = setup.spec, setup.spec.agent.network
        self.encoder = build_encoder(policy.pipeline, spec.feature, network, generator)
        sizes = [self.encoder.size, *network.hidden_sizes, outputs]
        self.net = MLP(sizes, network.activation, activate_last=False)
        initialize(self.net, generator, orthogonal=False, last_gain=1.0)

    def forward(self, inputs: Inputs) -> Tensor:
        """Actions (B, A)."""
        outputs: Tensor = self.net(self.encoder(inputs))
        return outputs.float().tanh()


class DeterministicPolicy(ContinuousPolicy):
    """One action in [-1, 1] for each state; it never explores."""

    def __init__(self, setup: Setup, generator: torch.Generator) -> None:
        super().__init__(setup)
        self.actor = DeterministicActor(self, setup, self.action_size, generator)

    @property
    def nets(self) -> tuple[MLP, ...]:
        """The one of its actor."""
        return (self.actor.net,)

    @torch.no_grad()
    def decide(self, seen: PolicyInput, generator: torch.Generator | None) -> Decision:
        """Actions (N, *shape) in [-1, 1]."""
        return self.decision(self.actor(self.to_inputs(seen.observations)))


class TD3(CriticLearner[DeterministicPolicy, TwinCritics]):
    """Improves a deterministic policy by TD3."""

    traits = algorithms.TD3
    build_policy = partial(new_policy, DeterministicPolicy)

    METRICS = ("losses/qf_loss", "losses/q_values", "losses/actor_loss", "losses/grad_norm")

    behaviour: NoisyActions

    @staticmethod
    def build_behaviour(policy: DeterministicPolicy, setup: Setup) -> NoisyActions:
        """The policy in the spec's engine, and noise."""
        return NoisyActions(engine_for(setup).actor(policy), setup.spec.train.action_noise)

    def __init__(self, policy: DeterministicPolicy, setup: Setup) -> None:
        super().__init__(policy, setup)
        options = self.options
        self.target_policy = Target(policy.actor)
        self.remembered["target_policy"] = self.target_policy.module
        self.targets.append(self.target_policy)
        self.act = compiled(policy.actor.forward, options)
        self.target_act = compiled(self.target_policy.module.forward, options)
        self.judge = compiled(self.judges.q1, options)
        self.behaviour = self.build_behaviour(policy, setup)
        # Of the last update that moved the policy; reported until the next one does.
        self._actor_loss = torch.zeros((), device=policy.device)
        self.explore()

    def build_critics(self, setup: Setup) -> TwinCritics:
        """Two critics."""
        return TwinCritics.build(self.policy, setup)

    def explore(self) -> None:
        """Uniform actions before learning begins; then the policy's own, with noise."""
        self.behaviour.random = self.warming_up

    def improve(self, sample: Sample) -> Tensor:
        """One step of the critics; and, now and then, of policy and slow copies (algorithm 1)."""
        if self.engine_updates is not None:
            return self._improve_by(self.engine_updates, sample)
        drawn, lr = self.drawn(sample), self.learning_rate

        with self.precision():
            target = self._target(drawn)
            q = self.q(drawn.inputs, drawn.actions)
        q_loss = squared_errors(q, target, drawn.weights)
        grad_norm = self.optimizers["critics"].step(q_loss, lr)
        self.prioritize(sample, mean_errors(q, target))

        if self._moves_policy:
            with self.precision():
                actor_loss = -self.judge(drawn.inputs, self.act(drawn.inputs)).mean()
            self.optimizers["policy"].step(actor_loss, lr)
            self._actor_loss = actor_loss.detach()
            self._follow()
        return torch.stack((q_loss, q.mean(), self._actor_loss, grad_norm)).detach()

    @property
    def _moves_policy(self) -> bool:
        return (self.updates + 1) % self.options.policy_delay == 0

    def _follow(self) -> None:
        self.target_policy.follow(self.options.tau)
        self.target_critics.follow(self.options.tau)

    def _improve_by(self, updates: CriticUpdates, sample: Sample) -> Tensor:
        """As `improve`, by the engine; the same steps in the same order."""
        options = self.options
        update = updates.delayed(
            sample,
            self.learning_rate,
            self.target_policy,
            self.normal(len(sample.rewards)),
            options.target_policy_noise,
            options.target_noise_clip,
            move_policy=self._moves_policy,
        )
        self.prioritize(sample, update.errors)
        q_loss, q, actor_loss, _, grad_norm = update.terms.tolist()
        if self._moves_policy:
            self._actor_loss = torch.tensor(actor_loss)
            self._follow()
        return torch.tensor((q_loss, q, self._actor_loss.item(), grad_norm))

    def state(self) -> StateTree:
        """As all with critics; and the loss that is reported until the policy moves again."""
        return super().state() | StateTree({ACTOR_LOSS: self._actor_loss.cpu().numpy().copy()})

    def load_state(self, state: StateTree) -> None:
        """Go on from a state."""
        super().load_state(state)
        self._actor_loss = torch.tensor(state.tensors[ACTOR_LOSS], device=self.policy.device)

    @torch.no_grad()
    def _target(self, drawn: Drawn) -> Tensor:
        options = self.options
        noise = options.target_policy_noise * self.normal(len(drawn.actions))
        actions = smoothed(self.target_act(drawn.next_inputs), noise, options.target_noise_clip)
        next_q = self.target_q(drawn.next_inputs, actions)
        return clipped_target(drawn.rewards, drawn.discounts, next_q)


def smoothed(actions: Tensor, noise: Tensor, noise_clip: float) -> Tensor:
    """clip(a + clip(ε, -c, c), -1, 1), section 5.3: (B, A) each."""
    return (actions + noise.clamp(-noise_clip, noise_clip)).clamp(-1.0, 1.0)


def clipped_target(rewards: Tensor, discounts: Tensor, next_q: Tensor) -> Tensor:
    """y = r + gamma min_j Q'_j(s', a'), eq. 10: (B,), (B,), (2, B) → (B,)."""
    return rewards + discounts * least(next_q)
