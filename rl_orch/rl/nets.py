"""Multi-layer perceptrons and their initialisation."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "elu": F.elu,
    "gelu": F.gelu,
    "silu": F.silu,
}

HIDDEN_GAIN = math.sqrt(2.0)


class MLP(nn.Module):
    """Linear layers with an activation between them, and after the last one if `activate_last`.

    (B, sizes[0]) → (B, sizes[-1]). A single size is the identity.
    """

    def __init__(self, sizes: Sequence[int], activation: str, *, activate_last: bool) -> None:
        super().__init__()
        # Made without weights: `initialize` draws them, and torch's global generator is left alone.
        self.layers = nn.ModuleList(
            nn.Linear(before, after, device="meta").to_empty(device="cpu")
            for before, after in pairwise(sizes)
        )
        self._activation = ACTIVATIONS[activation]
        # Looked up once: in a rollout, finding a module's parameters costs more than using them.
        pairs: list[Any] = [(layer.weight, layer.bias) for layer in self.layers]
        self._activated = pairs if activate_last else pairs[:-1]
        self._linear = [] if activate_last else pairs[-1:]

    def forward(self, x: Tensor) -> Tensor:
        """The output of the last layer."""
        for weight, bias in self._activated:
            x = self._activation(F.linear(x, weight, bias))
        for weight, bias in self._linear:
            x = F.linear(x, weight, bias)
        return x


def initialize(net: MLP, generator: torch.Generator, *, orthogonal: bool, last_gain: float) -> None:
    """Set the weights of a network, drawing from `generator` alone.

    Orthogonal with gain √2, `last_gain` for the last layer, and zero biases; or torch's own
    default for linear layers, U(-1/√fan_in, 1/√fan_in).
    """
    for index, layer in enumerate(net.layers):
        assert isinstance(layer, nn.Linear)
        if orthogonal:
            gain = last_gain if index == len(net.layers) - 1 else HIDDEN_GAIN
            nn.init.orthogonal_(layer.weight, gain, generator=generator)
            nn.init.zeros_(layer.bias)
        else:
            bound = 1.0 / math.sqrt(layer.in_features)
            nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
            nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
