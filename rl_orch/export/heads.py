"""From what networks see to what they give, and from there to actions an environment takes.

A head is the part of a policy that is exported: without the critic, without any chance. Where the
policies do the last steps in NumPy (`rl/envs/actions.py`), these modules do the same in the same
number formats.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rl_orch.errors import BadInput
from rl_orch.rl.algos.td3 import DeterministicPolicy
from rl_orch.rl.envs.actions import choices_of
from rl_orch.rl.policies.actor_critic import ActorCritic
from rl_orch.rl.policies.policy import Inputs, PolicyModule
from rl_orch.rl.policies.q_network import QNetwork
from rl_orch.rl.policies.squashed import MEAN_BOUNDS, SquashedPolicy
from rl_orch.spec.algorithms import BUILT_IN

NAMES = ("bool", "int8", "uint8", "int16", "int32", "int64", "float32", "float64")
TORCH_TYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in NAMES}
"""NumPy's names, which are torch's too, of the types that graphs take and give."""


class ExportHead(nn.Module):
    """`forward`: inputs, and what was remembered where there is a memory → outputs (B, ·) and the
    memory.

    `squashed` says that the outputs are actions in [-1, 1], to be stretched to the bounds.
    """

    squashed = False
    memory_size = 0


class StochasticHead(ExportHead):
    """Logits or means of an `ActorCritic`."""

    def __init__(self, policy: ActorCritic) -> None:
        super().__init__()
        self.encoder, self.cell = policy.encoder, policy.memory
        self.trunk, self.actor = policy.trunk, policy.actor
        self.memory_size = policy.memory_size

    def forward(self, inputs: Inputs, memory: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Logits, or means."""
        hidden = self.encoder(inputs)
        if self.cell is not None and memory is not None:
            hidden, memory = self.cell.step(hidden, memory)
        return self.actor(self.trunk(hidden)).float(), memory


class ValueHead(ExportHead):
    """Action values of a `QNetwork`: the mean of their quantiles, where there are some."""

    def __init__(self, policy: QNetwork) -> None:
        super().__init__()
        self.network, self.averaged = policy.network, policy.quantiles is not None

    def forward(self, inputs: Inputs, memory: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Q(s, a)."""
        outputs = self.network(inputs)
        return outputs.mean(-1) if self.averaged else outputs, memory


class SquashedHead(ExportHead):
    """tanh of the mean of a `SquashedPolicy`."""

    squashed = True

    def __init__(self, policy: SquashedPolicy) -> None:
        super().__init__()
        self.encoder, self.trunk, self.head = policy.encoder, policy.trunk, policy.head
        self.bounded = policy.log_std is not None

    def forward(self, inputs: Inputs, memory: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Actions in [-1, 1]."""
        outputs = self.head(self.trunk(self.encoder(inputs))).float()
        mean = outputs.clamp(*MEAN_BOUNDS) if self.bounded else outputs.chunk(2, -1)[0]
        return mean.tanh(), memory


class DeterministicHead(ExportHead):
    """The action of a `DeterministicPolicy`."""

    squashed = True

    def __init__(self, policy: DeterministicPolicy) -> None:
        super().__init__()
        self.actor = policy.actor

    def forward(self, inputs: Inputs, memory: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Actions in [-1, 1]."""
        return self.actor(inputs), memory


HEADS: dict[type[PolicyModule], Callable[[Any], ExportHead]] = {
    ActorCritic: StochasticHead,
    QNetwork: ValueHead,
    SquashedPolicy: SquashedHead,
    DeterministicPolicy: DeterministicHead,
}


def head_of(policy: PolicyModule) -> ExportHead:
    """The part of a policy that is exported; one that we do not know has none."""
    for kind, head in HEADS.items():
        if isinstance(policy, kind):
            return head(policy)
    raise BadInput(
        f"a policy of type {type(policy).__name__} cannot be exported; policies of "
        f"{', '.join(BUILT_IN)} can",
        path="agent.algorithm",
        hint="Build on one of their policies, or serve the policy from its own program.",
    )


class Choices(nn.Module):
    """The best choice of each component, counted as the environment counts: scores → (B, *shape).

    Coins of a MultiBinary space show 1 where their logit is above 0.
    """

    start: Tensor

    def __init__(self, space: Space[Any]) -> None:
        super().__init__()
        self.coins = isinstance(space, spaces.MultiBinary)
        self.counts, self.shape = list(choices_of(space)), tuple(space.shape or ())
        start = np.asarray(getattr(space, "start", 0), np.int64).reshape(-1)
        self.register_buffer("start", torch.from_numpy(start))

    def forward(self, scores: Tensor) -> Tensor:
        """Actions as the environment takes them."""
        if self.coins:
            return (scores > 0.0).to(torch.int8).reshape(-1, *self.shape)
        if len(self.counts) == 1 and not self.shape:
            return scores.argmax(-1) + self.start
        best = [part.argmax(-1) for part in torch.split(scores, self.counts, -1)]
        return (torch.stack(best, -1) + self.start).reshape(-1, *self.shape)


class Moves(nn.Module):
    """Actions within the bounds of a Box: clipped, after they were stretched if `squashed`."""

    low: Tensor
    high: Tensor

    def __init__(self, space: spaces.Box, *, squashed: bool) -> None:
        super().__init__()
        self.squashed, self.shape = squashed, space.shape
        self.dtype = TORCH_TYPES[str(space.dtype)]
        self.register_buffer("low", torch.from_numpy(space.low.copy()))
        self.register_buffer("high", torch.from_numpy(space.high.copy()))

    def forward(self, actions: Tensor) -> Tensor:
        """Actions as the environment takes them."""
        actions = actions.reshape(-1, *self.shape)
        if self.squashed:
            share = (actions.double() + 1.0) / 2.0
            actions = self.low + share * (self.high - self.low)
        kind = torch.promote_types(actions.dtype, self.low.dtype)
        actions = actions.to(kind).maximum(self.low.to(kind)).minimum(self.high.to(kind))
        return actions.to(self.dtype)
