"""`QNetwork`: the policy that takes the action of the greatest value.

How the values are learned is in `algos/dqn.py` and `algos/qrdqn.py`.
"""

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_orch.rl.envs.actions import choices_of, counted
from rl_orch.rl.policies.encoders import build_encoder
from rl_orch.rl.policies.nets import MLP, initialize
from rl_orch.rl.policies.policy import (
    Decision,
    Inputs,
    PolicyInput,
    PolicyModule,
    Setup,
    usable_device,
)
from rl_orch.rl.streams import Stream, derive


class ActionValues(nn.Module):
    """A network from inputs to the values of n actions: (B, n), or (B, n, N) with N quantiles of
    each.

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

    @torch.no_grad()
    def decide(self, seen: PolicyInput, generator: torch.Generator | None) -> Decision:
        """Actions (N,), counted from 0."""
        masks = None if seen.masks is None else torch.from_numpy(seen.masks).to(self.device)
        values = self.q_values(self.to_inputs(seen.observations))
        return Decision(best_actions(values, masks).cpu().numpy())

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Actions counted as the environment counts them."""
        return counted(self.action_space, actions)

    def q_values(self, inputs: Inputs) -> Tensor:
        """Q(s, a), (B, n): the mean of the quantiles, where there are some."""
        outputs: Tensor = self.network(inputs)
        return outputs if self.quantiles is None else outputs.mean(-1)


def dueling(values: Tensor, advantages: Tensor) -> Tensor:
    """V + A - mean_a A, eq. 9 of Wang et al. 2016: (B, 1, ...), (B, n, ...) → (B, n, ...)."""
    return values + advantages - advantages.mean(1, keepdim=True)


def best_actions(q_values: Tensor, masks: Tensor | None) -> Tensor:
    """argmax_a Q(s, a) over the allowed actions, (B, n) each → (B,); the first of equals, and 0
    where none is allowed, as after the end of an episode."""
    if masks is not None:
        q_values = q_values.masked_fill(~masks, -torch.inf)
    return q_values.argmax(-1)
