"""`QLearner`: the frame of learners of a `QNetwork`; the losses are in `algos/`."""

from abc import abstractmethod

import torch
from torch import Tensor

from rl_orch.rl.data.batch import Batch
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.learn.engine import engine_for
from rl_orch.rl.learn.off_policy import ReplayLearner
from rl_orch.rl.learn.optimizer import Target, build_optimizer
from rl_orch.rl.learn.precision import compiled
from rl_orch.rl.policies.exploration import EpsilonGreedy, epsilon_at
from rl_orch.rl.policies.policy import Setup
from rl_orch.rl.policies.q_network import QNetwork
from rl_orch.rl.replay.buffer import Sample


class QLearner(ReplayLearner[QNetwork]):
    """A learner of a QNetwork, with exploration, a target network and one optimiser.

    `online` and `target` map inputs to what the networks give.
    """

    METRICS = ("losses/td_loss", "losses/q_values", "losses/grad_norm")

    behaviour: EpsilonGreedy

    @staticmethod
    def build_behaviour(policy: QNetwork, setup: Setup) -> EpsilonGreedy:
        """The greedy policy in the spec's engine, and random actions."""
        return EpsilonGreedy(engine_for(setup).actor(policy), policy.network.choices)

    def __init__(self, policy: QNetwork, setup: Setup) -> None:
        super().__init__(policy, setup)
        engine = engine_for(setup)
        self.behaviour = self.build_behaviour(policy, setup)
        self._target = Target(policy.network)
        self._followed = 0
        self._optimizer = build_optimizer(policy.network, self.options)
        self.optimizers, self.remembered = {"": self._optimizer}, {"target": self._target.module}
        self.targets = [self._target]
        self._updates = engine.value_updates(
            policy, self._optimizer, self._target, double=self.options.double_q
        )
        self.online = compiled(policy.network.forward, self.options)
        self.target = compiled(self._target.module.forward, self.options)
        self.explore()

    def update(self, batch: Batch) -> dict[str, float]:
        """As for all that learn from replay; also reports how random the batch was."""
        epsilon = self.behaviour.epsilon
        metrics = super().update(batch)
        return metrics | {"charts/epsilon": epsilon} if metrics else metrics

    def explore(self) -> None:
        """Random actions until learning begins, then a share of them that falls."""
        epsilon = epsilon_at(self.options, self.progress)
        self.behaviour.epsilon = 1.0 if self.warming_up else epsilon

    def improve(self, sample: Sample) -> Tensor:
        """One step of gradient descent on a sample."""
        self.follow()
        if self._updates is None:
            return self.learn(sample)
        update = self._updates.improve(sample, self.learning_rate)
        self.prioritize(sample, update.errors)
        return update.terms

    @abstractmethod
    def learn(self, sample: Sample) -> Tensor:
        """One step in torch; returns the terms that METRICS names, without gradients."""

    def follow(self) -> None:
        """Move the target network if an interval or more has passed since it last moved; for k
        intervals at once, by as much as k moves would."""
        due = self.env_steps // self.options.target_update_interval
        if due > self._followed:
            self._target.follow(1.0 - (1.0 - self.options.tau) ** (due - self._followed))
            self._followed = due

    def descend(self, losses: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """One step along the gradient of the weighted mean, mean(w L), of losses (B,); returns it
        and the gradient's norm."""
        loss = (weights * losses).mean()
        return loss.detach(), self._optimizer.step(loss, self.learning_rate)

    def load_state(self, state: StateTree) -> None:
        """Go on from a state."""
        super().load_state(state)
        # Between two updates the target is up to date, or still the same as the online network.
        self._followed = self.env_steps // self.options.target_update_interval


def taken(outputs: Tensor, actions: Tensor) -> Tensor:
    """Entries of the actions: (B, n, ...), (B,) → (B, ...)."""
    return outputs[torch.arange(len(actions), device=actions.device), actions]
