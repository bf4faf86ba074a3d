"""`QNetwork`: the policy that takes the action of the greatest value; and what its learners share.

How the values are learned is in `algos/dqn.py` and `algos/qrdqn.py`.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_orch.rl import kernels
from rl_orch.rl.data.batch import Batch
from rl_orch.rl.envs.actions import choices_of, counted
from rl_orch.rl.learn.off_policy import ReplayLearner
from rl_orch.rl.learn.optimizer import Target, build_optimizer
from rl_orch.rl.learn.precision import compiled
from rl_orch.rl.policies.encoders import build_encoder
from rl_orch.rl.policies.exploration import EpsilonGreedy, epsilon_at
from rl_orch.rl.policies.nets import MLP, initialize
from rl_orch.rl.policies.policy import (
    Decision,
    Inputs,
    PolicyInput,
    PolicyModule,
    Setup,
    load_module,
    module_tensors,
    usable_device,
)
from rl_orch.rl.replay.buffer import Sample
from rl_orch.rl.streams import Stream, derive

TARGET_PREFIX = "learner/target/"


class ActionValues(nn.Module):
    """From inputs to the values of n actions: (B, n), or (B, n, N) with N quantiles of each.

    Dueling (Wang et al. 2016, eq. 9): Q = V + A - mean A. All hidden layers but the last are shared
    by the two streams, as the convolutions are in the paper.
    """

    def __init__(
        self, policy: PolicyModule, setup: Setup, quantiles: int | None, generator: torch.Generator
    ) -> None:
        super().__init__()
        spec, network = setup.spec, setup.spec.agent.network
        self.choices, self._quantiles = choices_of(setup.action_space)[0], quantiles
        outputs = quantiles or 1
        self.encoder = build_encoder(policy.pipeline, spec.feature, network, generator)
        sizes = (self.encoder.size, *network.hidden_sizes)

        def a_net(*sizes: int, last: bool = False) -> MLP:
            net = MLP(sizes, network.activation, activate_last=last)
            initialize(net, generator, orthogonal=False, last_gain=1.0)
            return net

        self.body: MLP | None = None
        self.state_value: MLP | None = None
        if network.dueling:
            self.body = a_net(*(sizes[:-1] or sizes), last=True)
            self.state_value = a_net(*sizes[-2:], outputs)
            sizes = sizes[-2:]
        self.head = a_net(*sizes, self.choices * outputs)

    def forward(self, inputs: Inputs) -> Tensor:
        """Values, or their quantiles, in float32."""
        features = self.encoder(inputs)
        if self.body is None or self.state_value is None:
            return self._shaped(self.head(features), self.choices).float()
        features = self.body(features)
        advantages = self._shaped(self.head(features), self.choices)
        values = self._shaped(self.state_value(features), 1)
        return dueling(values, advantages).float()

    def _shaped(self, outputs: Tensor, choices: int) -> Tensor:
        if self._quantiles is None:
            return outputs
        return outputs.view(-1, choices, self._quantiles)


class QNetwork(PolicyModule):
    """Takes the action of the greatest value among those that are allowed; it never explores."""

    def __init__(self, setup: Setup, quantiles: int | None = None) -> None:
        super().__init__(setup)
        self.quantiles = quantiles
        generator = torch.Generator().manual_seed(derive(setup.spec.env.seed, Stream.WEIGHTS))
        self.network = ActionValues(self, setup, quantiles, generator)
        self.to(usable_device(setup.spec.resources.device))
        if setup.kernels:
            self.use_kernels()

    @torch.no_grad()
    def decide(self, seen: PolicyInput, generator: torch.Generator | None) -> Decision:
        """Actions (N,), counted from 0."""
        if self.acting is not None and seen.masks is None:
            return self.acting.decide(seen, generator)
        masks = None if seen.masks is None else torch.from_numpy(seen.masks).to(self.device)
        values = self.q_values(self.to_inputs(seen.observations))
        return Decision(best_actions(values, masks).cpu().numpy())

    def use_kernels(self) -> None:
        """Decide with kernels from now on."""
        self.acting = kernels.value_actor(self)

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Actions counted as the environment counts them."""
        return counted(self.action_space, actions)

    def q_values(self, inputs: Inputs) -> Tensor:
        """Q(s, a), (B, n): the mean of the quantiles, where there are some."""
        outputs: Tensor = self.network(inputs)
        return outputs if self.quantiles is None else outputs.mean(-1)


class QLearner(ReplayLearner[QNetwork]):
    """What learners of a QNetwork share: exploration, a target network and one optimiser.

    `online` and `target` map inputs to what the networks give.
    """

    METRICS = ("losses/td_loss", "losses/q_values", "losses/grad_norm")

    behaviour: EpsilonGreedy

    def __init__(self, policy: QNetwork, setup: Setup) -> None:
        super().__init__(policy, setup)
        self.behaviour = EpsilonGreedy(policy)
        self._target = Target(policy.network)
        self._followed = 0
        self._optimizer = build_optimizer(policy.network, self.options)
        self._kernels = None
        if setup.kernels:
            self._kernels = kernels.value_updates(
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
        if self._kernels is None:
            return self.learn(sample)
        update = self._kernels.improve(sample, self.learning_rate)
        self.prioritize(sample, update.errors)
        return update.terms

    @abstractmethod
    def learn(self, sample: Sample) -> Tensor:
        """One step in torch; returns the terms that METRICS names, without gradients."""

    def follow(self) -> None:
        """Move the target network if a multiple of the interval was passed since it last moved;
        for k of them at once, by as much as k moves would."""
        due = self.env_steps // self.options.target_update_interval
        if due > self._followed:
            self._target.follow(1.0 - (1.0 - self.options.tau) ** (due - self._followed))
            self._followed = due

    def descend(self, losses: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """One step along the gradient of the weighted mean, mean(w L), of losses (B,); returns it
        and the gradient's norm."""
        loss = (weights * losses).mean()
        return loss.detach(), self._optimizer.step(loss, self.learning_rate)

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Target network and optimiser; copies."""
        return module_tensors(self._target.module, TARGET_PREFIX) | self._optimizer.tensors()

    def load_tensors(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `tensors` returned."""
        load_module(self._target.module, TARGET_PREFIX, tensors)
        self._optimizer.load_tensors(tensors)
        # Between two updates the target is up to date, or still the same as the online network.
        self._followed = self.env_steps // self.options.target_update_interval


def dueling(values: Tensor, advantages: Tensor) -> Tensor:
    """V + A - mean_a A, eq. 9 of Wang et al. 2016: (B, 1, ...), (B, n, ...) → (B, n, ...)."""
    return values + advantages - advantages.mean(1, keepdim=True)


def best_actions(q_values: Tensor, masks: Tensor | None) -> Tensor:
    """argmax_a Q(s, a) over the allowed actions, (B, n) each → (B,); the first of equals, and 0
    where none is allowed, as after the end of an episode."""
    if masks is not None:
        q_values = q_values.masked_fill(~masks, -torch.inf)
    return q_values.argmax(-1)


def taken(outputs: Tensor, actions: Tensor) -> Tensor:
    """What belongs to the actions: (B, n, ...), (B,) → (B, ...)."""
    return outputs[torch.arange(len(actions), device=actions.device), actions]
