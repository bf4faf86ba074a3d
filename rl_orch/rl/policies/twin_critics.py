"""Critics: two estimates of Q(s, a) or several of its distribution, and the policies of continuous
actions they judge.
"""

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import torch
from gymnasium import Space, spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_orch.rl.envs.actions import stretched
from rl_orch.rl.policies.encoders import build_encoder
from rl_orch.rl.policies.nets import MLP, initialize
from rl_orch.rl.policies.policy import (
    Decision,
    Inputs,
    PolicyModule,
    Setup,
)
from rl_orch.rl.streams import Stream, derive

CRITICS = 1
"""The seed of their weights is the one of this number under that of the policy's."""


class ContinuousPolicy(PolicyModule):
    """A policy with actions in [-1, 1], stretched to the bounds of a Box."""

    log_std_bounds: tuple[float, float] | None = None
    """Of a squashed Gaussian, where the log deviations in its outputs are kept."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.action_size = action_size(setup.action_space)

    @property
    @abstractmethod
    def nets(self) -> tuple[MLP, ...]:
        """The perceptrons behind the encoder, one after another."""

    def decision(self, actions: Tensor) -> Decision:
        """Actions (N, A), in the shape of the action space and on the host."""
        return Decision(actions.reshape(-1, *(self.action_space.shape or ())).cpu().numpy())

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Actions within the bounds of the Box."""
        assert isinstance(self.action_space, spaces.Box)
        return stretched(self.action_space, actions)


class Critics(nn.Module, ABC):
    """Networks that judge actions, and share an encoder of their own; the policy has another."""

    perceptron: ClassVar[type[MLP]] = MLP

    def __init__(self, policy: PolicyModule, setup: Setup, generator: torch.Generator) -> None:
        super().__init__()
        spec, network = setup.spec, setup.spec.agent.network
        self.encoder = build_encoder(policy.pipeline, spec.feature, network, generator)
        self._width = self.encoder.size + action_size(setup.action_space)

    @classmethod
    def build(cls, policy: PolicyModule, setup: Setup) -> Self:
        """New critics on the policy's device; their weights follow from the run's seed alone."""
        seed = derive(setup.spec.env.seed, Stream.WEIGHTS, CRITICS)
        return cls(policy, setup, torch.Generator().manual_seed(seed)).to(policy.device)

    @property
    @abstractmethod
    def nets(self) -> tuple[MLP, ...]:
        """The perceptron of each critic."""

    @abstractmethod
    def forward(self, inputs: Inputs, actions: Tensor) -> Tensor:
        """What each critic says of s and a, (n, B, …); `actions` (B, A) are in [-1, 1]."""

    def pairs(self, inputs: Inputs, actions: Tensor) -> Tensor:
        """States and actions side by side."""
        return torch.cat((self.encoder(inputs), actions), -1)

    def _net(self, setup: Setup, outputs: int, generator: torch.Generator) -> MLP:
        network = setup.spec.agent.network
        hidden = network.critic_hidden_sizes or network.hidden_sizes
        sizes = [self._width, *hidden, outputs]
        net = self.perceptron(sizes, network.activation, activate_last=False)
        initialize(net, generator, orthogonal=False, last_gain=1.0)
        return net


class TwinCritics(Critics):
    """Q₁ and Q₂."""

    def __init__(self, policy: PolicyModule, setup: Setup, generator: torch.Generator) -> None:
        super().__init__(policy, setup, generator)
        self.first = self._net(setup, 1, generator)
        self.second = self._net(setup, 1, generator)

    @property
    def nets(self) -> tuple[MLP, ...]:
        """Those of both."""
        return self.first, self.second

    def forward(self, inputs: Inputs, actions: Tensor) -> Tensor:
        """Q₁(s, a) and Q₂(s, a), (2, B); `actions` (B, A) are in [-1, 1]."""
        pairs = self.pairs(inputs, actions)
        return torch.stack((self.first(pairs), self.second(pairs))).squeeze(-1).float()

    def q1(self, inputs: Inputs, actions: Tensor) -> Tensor:
        """Q₁(s, a) alone, (B,)."""
        q: Tensor = self.first(self.pairs(inputs, actions))
        return q.squeeze(-1).float()


class QuantileCritics(Critics):
    """Z₁ to Z_n: quantiles of the return, at the midpoints of equal shares."""

    def __init__(self, policy: PolicyModule, setup: Setup, generator: torch.Generator) -> None:
        super().__init__(policy, setup, generator)
        count, quantiles = setup.spec.agent.network.n_critics, setup.spec.train.n_quantiles
        self.critics = nn.ModuleList(self._net(setup, quantiles, generator) for _ in range(count))

    @property
    def nets(self) -> tuple[MLP, ...]:
        """Those of all."""
        return tuple(net for net in self.critics if isinstance(net, MLP))

    def forward(self, inputs: Inputs, actions: Tensor) -> Tensor:
        """Quantiles θ(s, a), (n, B, N)."""
        pairs = self.pairs(inputs, actions)
        return torch.stack([net(pairs) for net in self.critics]).float()


def action_size(space: Space[Any]) -> int:
    """The count of numbers in an action."""
    return math.prod(space.shape or ())
