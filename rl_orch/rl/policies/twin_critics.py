"""Twin critics: two estimates of Q(s, a); and what the learners that have them share.

Which target the critics learn, and how the policy follows them, is in `algos/sac.py` and `td3.py`.
"""

import math
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, TypeVar

import torch
from gymnasium import Space, spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_orch.rl.envs.actions import stretched
from rl_orch.rl.learn.off_policy import Drawn, ReplayLearner
from rl_orch.rl.learn.optimizer import Target, build_optimizer
from rl_orch.rl.learn.precision import compiled
from rl_orch.rl.policies.encoders import build_encoder
from rl_orch.rl.policies.nets import MLP, initialize
from rl_orch.rl.policies.policy import (
    Decision,
    Inputs,
    PolicyModule,
    Setup,
    load_module,
    module_tensors,
)
from rl_orch.rl.replay.buffer import Sample
from rl_orch.rl.streams import Stream, derive

CRITICS = 1
"""The seed of their weights is the one of this number under that of the policy's."""


class ContinuousPolicy(PolicyModule):
    """A policy whose actions are in [-1, 1], and are stretched to the bounds of a Box."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.action_size = action_size(setup.action_space)

    def decision(self, actions: Tensor) -> Decision:
        """Actions (N, A), in the shape of the action space and on the host."""
        return Decision(actions.reshape(-1, *(self.action_space.shape or ())).cpu().numpy())

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Actions within the bounds of the Box."""
        assert isinstance(self.action_space, spaces.Box)
        return stretched(self.action_space, actions)


class TwinCritics(nn.Module):
    """Q₁ and Q₂, which share an encoder of their own; the policy has another."""

    def __init__(self, policy: PolicyModule, setup: Setup, generator: torch.Generator) -> None:
        super().__init__()
        spec, network = setup.spec, setup.spec.agent.network
        self.encoder = build_encoder(policy.pipeline, spec.feature, network, generator)
        width = self.encoder.size + action_size(setup.action_space)
        sizes = [width, *network.hidden_sizes, 1]
        self.first = MLP(sizes, network.activation, activate_last=False)
        self.second = MLP(sizes, network.activation, activate_last=False)
        for net in (self.first, self.second):
            initialize(net, generator, orthogonal=False, last_gain=1.0)

    @classmethod
    def build(cls, policy: PolicyModule, setup: Setup) -> "TwinCritics":
        """New critics on the policy's device; their weights follow from the run's seed alone."""
        seed = derive(setup.spec.env.seed, Stream.WEIGHTS, CRITICS)
        return cls(policy, setup, torch.Generator().manual_seed(seed)).to(policy.device)

    def forward(self, inputs: Inputs, actions: Tensor) -> Tensor:
        """Q₁(s, a) and Q₂(s, a), (2, B); `actions` (B, A) are in [-1, 1]."""
        pairs = self._pairs(inputs, actions)
        return torch.stack((self.first(pairs), self.second(pairs))).squeeze(-1).float()

    def q1(self, inputs: Inputs, actions: Tensor) -> Tensor:
        """Q₁(s, a) alone, (B,)."""
        q: Tensor = self.first(self._pairs(inputs, actions))
        return q.squeeze(-1).float()

    def _pairs(self, inputs: Inputs, actions: Tensor) -> Tensor:
        return torch.cat((self.encoder(inputs), actions), -1)


M = TypeVar("M", bound=nn.Module)
P = TypeVar("P", bound=ContinuousPolicy)


class CriticLearner(ReplayLearner[P]):
    """What learners with twin critics share: the critics, their slow copies, and optimisers.

    `q` and `target_q` map inputs and actions to what critics and slow copies say, (2, B);
    `judges` are the critics as the policy's loss sees them, without gradients for their weights.
    An algorithm adds to `optimizers` and `remembered` what else a snapshot needs.
    """

    def __init__(self, policy: P, setup: Setup) -> None:
        super().__init__(policy, setup)
        self.critics = TwinCritics.build(policy, setup)
        self.target_critics = Target(self.critics)
        self.optimizers = {
            "policy": build_optimizer(policy, self.options, name="policy"),
            "critics": build_optimizer(self.critics, self.options, name="critics"),
        }
        self.remembered: dict[str, nn.Module] = {
            "critics": self.critics,
            "target_critics": self.target_critics.module,
        }
        self.judges = frozen(self.critics)
        self.q = compiled(self.critics.forward, self.options)
        self.target_q = compiled(self.target_critics.module.forward, self.options)

    def drawn(self, sample: Sample) -> Drawn:
        """The sample as networks take it; an action is a row (A,)."""
        drawn = super().drawn(sample)
        return drawn._replace(actions=drawn.actions.reshape(len(drawn.actions), -1))

    def normal(self, count: int) -> Tensor:
        """Standard normal noise for the actions of so many rows, (count, A)."""
        noise = torch.empty(count, self.policy.action_size, device=self.policy.device)
        return noise.normal_(generator=self.noise)

    def tensors(self) -> dict[str, NDArray[Any]]:
        """The modules that are remembered, and what the optimisers know; copies."""
        tensors: dict[str, NDArray[Any]] = {}
        for name, module in self.remembered.items():
            tensors |= module_tensors(module, f"learner/{name}/")
        for optimizer in self.optimizers.values():
            tensors |= optimizer.tensors()
        return tensors

    def load_tensors(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `tensors` returned."""
        for name, module in self.remembered.items():
            load_module(module, f"learner/{name}/", tensors)
        for optimizer in self.optimizers.values():
            optimizer.load_tensors(tensors)


def least(q: Tensor) -> Tensor:
    """min_j Q_j, (2, B) → (B,): clipped double Q-learning (Fujimoto et al. 2018, eq. 10)."""
    return torch.minimum(*q.unbind())


def mean_errors(q: Tensor, target: Tensor) -> Tensor:
    """E_j |Q_j - y|, by which transitions are drawn again: (2, B), (B,) → (B,)."""
    return (q.detach() - target).abs().mean(0)


def squared_errors(q: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """Σ_j E[w (Q_j - y)²]: (2, B), (B,), (B,) → scalar; w corrects for priorities."""
    return ((q - target).square() * weights).sum() / len(target)


def frozen(module: M) -> M:
    """A second module over the same memory: gradients pass through it, but none are worked out for
    its weights. What moves the weights of one in place moves those of both."""
    view = deepcopy(module).requires_grad_(False)
    for copied, shared in zip(_memory(view), _memory(module), strict=True):
        copied.data = shared.data
    return view


def action_size(space: Space[Any]) -> int:
    """How many numbers an action has."""
    return math.prod(space.shape or ())


def _memory(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]
