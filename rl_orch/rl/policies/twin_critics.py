"""Twin critics: two estimates of Q(s, a), and the policies of continuous actions they judge."""

import math
from abc import abstractmethod
from typing import Any

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


def action_size(space: Space[Any]) -> int:
    """The count of numbers in an action."""
    return math.prod(space.shape or ())
