"""Networks and their initialisation: perceptrons, convolutions, attention, memory cells.

All are made without weights, which `initialize` then draws from a generator that it is given.
Which of them reads which observations is decided in `encoders.py`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

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
POSITION_DEVIATION = 0.02

M = TypeVar("M", bound=nn.Module)


class Net(nn.Module):
    """A network that makes rows of `size` numbers, (B, size).

    `gain` is that of its layers where they are orthogonal, `last_gain` that of the last one.
    """

    size: int
    gain = HIDDEN_GAIN
    last_gain = HIDDEN_GAIN


class MLP(Net):
    """Linear layers with an activation between them, and after the last one if `activate_last`.

    (B, sizes[0]) → (B, sizes[-1]). A single size is the identity.
    """

    def __init__(self, sizes: Sequence[int], activation: str, *, activate_last: bool) -> None:
        super().__init__()
        self.size, self.activation, self.activate_last = sizes[-1], activation, activate_last
        self.layers = nn.ModuleList(_linear(before, after) for before, after in pairwise(sizes))
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


class NatureCNN(Net):
    """The convolutions of Mnih et al. (2015) and one linear layer: (B, C, H, W) → (B, size).

    Pixels are whole numbers up to `high`; H and W are 36 at least.
    """

    def __init__(self, shape: tuple[int, int, int], size: int, high: float = 255.0) -> None:
        super().__init__()
        channels, *sides = shape
        self.size, self.high = size, high
        self.layers = nn.ModuleList()
        for width, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
            self.layers.append(_blank(nn.Conv2d, channels, width, kernel, stride))
            channels, sides = width, [(side - kernel) // stride + 1 for side in sides]
        self.last = _linear(channels * math.prod(sides), size)

    def forward(self, images: Tensor) -> Tensor:
        """Features of images."""
        x = images / self.high
        for layer in self.layers:
            x = torch.relu(layer(x))
        return torch.relu(self.last(x.flatten(1)))


class ImpalaCNN(Net):
    """The residual network of Espeholt et al. (2018): (B, C, H, W) → (B, size).

    Pixels are whole numbers up to `high`; images may be of any size.
    """

    # Residual branches add up: with the gain of plain layers, they would grow from block to block.
    gain = 1.0

    def __init__(self, shape: tuple[int, int, int], size: int, high: float = 255.0) -> None:
        super().__init__()
        channels, *sides = shape
        self.size, self.high = size, high
        self.stages = nn.ModuleList()
        for width in (16, 32, 32):
            self.stages.append(_Stage(channels, width))
            channels, sides = width, [(side + 1) // 2 for side in sides]
        self.last = _linear(channels * math.prod(sides), size)

    def forward(self, images: Tensor) -> Tensor:
        """Features of images."""
        x = images / self.high
        for stage in self.stages:
            x = stage(x)
        return torch.relu(self.last(torch.relu(x).flatten(1)))


class _Stage(nn.Module):
    """A convolution, a pooling that halves both sides, and two residual blocks."""

    def __init__(self, before: int, width: int) -> None:
        super().__init__()
        self.first = _conv3x3(before, width)
        self.blocks = nn.ModuleList(_Residual(width) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.first(x), kernel_size=3, stride=2, padding=1)
        for block in self.blocks:
            x = block(x)
        return x


class _Residual(nn.Module):
    """Two convolutions that add to what they were given."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = _conv3x3(width, width), _conv3x3(width, width)

    def forward(self, x: Tensor) -> Tensor:
        changes: Tensor = self.second(torch.relu(self.first(torch.relu(x))))
        return x + changes


class Transformer(Net):
    """Self-attention over the rows of an observation: (B, rows · length) → (B, size).

    Rows are embedded, given learned positions, passed through two blocks that normalise before each
    branch (Xiong et al., 2020), and averaged.
    """

    gain = 1.0
    last_gain = 1.0

    def __init__(self, rows: int, length: int, size: int, blocks: int = 2) -> None:
        super().__init__()
        self.size, self._rows = size, (rows, length)
        self.embed = _linear(length, size)
        self.positions = nn.Parameter(torch.empty(rows, size))
        self.blocks = nn.ModuleList(_Block(size) for _ in range(blocks))
        self.norm = _norm(size)

    def forward(self, x: Tensor) -> Tensor:
        """Features of flat observations."""
        x = self.embed(x.reshape(-1, *self._rows)) + self.positions
        for block in self.blocks:
            x = block(x)
        features: Tensor = self.norm(x).mean(-2)
        return features


class _Block(nn.Module):
    """Attention, then a perceptron; each adds to what it was given. Up to four heads."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.heads = math.gcd(size, 4)
        self.attention_norm, self.attention = _norm(size), _linear(size, 3 * size)
        self.mix = _linear(size, size)
        self.hidden_norm, self.hidden = _norm(size), _linear(size, 4 * size)
        self.out = _linear(4 * size, size)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.attention(self.attention_norm(x)).unflatten(-1, (3, self.heads, -1))
        queries, keys, values = heads.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(queries, keys, values)
        x = x + self.mix(attended.transpose(1, 2).flatten(2))
        changes: Tensor = self.out(F.gelu(self.hidden(self.hidden_norm(x))))
        return x + changes


class RecurrentCell(nn.Module, ABC):
    """A recurrent cell; what it remembers of a row is `width` numbers, zeros at the beginning.

    The parameters are named and laid out like those of torch's own cells.
    """

    def __init__(self, features: int, size: int, *, gates: int, width: int) -> None:
        super().__init__()
        self.size, self.width = size, width
        self.weight_ih = nn.Parameter(torch.empty(gates * size, features))
        self.weight_hh = nn.Parameter(torch.empty(gates * size, size))
        self.bias_ih = nn.Parameter(torch.empty(gates * size))
        self.bias_hh = nn.Parameter(torch.empty(gates * size))
        self._weights = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)

    @abstractmethod
    def step(self, features: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """One step: features (B, F) and memory (B, width) → output (B, size) and memory."""

    def unroll(self, features: Tensor, memory: Tensor, first: Tensor) -> Tensor:
        """The outputs (L, B, size) of L steps over features (L, B, F); from a memory (B, width).

        It is forgotten before each step at which `first` (L, B) is true.
        """
        outputs = []
        for x, begins in zip(features.unbind(), first.unbind(), strict=True):
            memory = memory.masked_fill(begins.unsqueeze(-1), 0.0)
            output, memory = self.step(x, memory)
            outputs.append(output)
        return torch.stack(outputs)


class Gru(RecurrentCell):
    """The gated recurrent unit of Cho et al. (2014), as torch has it."""

    def __init__(self, features: int, size: int) -> None:
        super().__init__(features, size, gates=3, width=size)

    def step(self, features: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """One step; the output is what is remembered."""
        output = torch.gru_cell(features, memory, *self._weights)
        return output, output


class Lstm(RecurrentCell):
    """The long short-term memory of Hochreiter and Schmidhuber (1997), with forget gates."""

    def __init__(self, features: int, size: int) -> None:
        super().__init__(features, size, gates=4, width=2 * size)

    def step(self, features: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """One step; what is remembered is the output and the cell's state, side by side."""
        output, state = torch.lstm_cell(features, memory.chunk(2, -1), *self._weights)
        return output, torch.cat((output, state), -1)


def initialize(
    net: nn.Module,
    generator: torch.Generator,
    *,
    orthogonal: bool,
    gain: float = HIDDEN_GAIN,
    last_gain: float = HIDDEN_GAIN,
) -> None:
    """Set the weights of a network, drawing from `generator` alone.

    Orthogonal linear and convolutional layers with `gain`, `last_gain` for the last of them, cells
    with 1, and zero biases; or torch's own defaults for all of these, U(-1/√fan_in, 1/√fan_in).
    """
    layers = [layer for layer in net.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    for module in net.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            own_gain = last_gain if module is layers[-1] else gain
            fan_in = math.prod(module.weight.shape[1:])
            _draw(module, generator, own_gain if orthogonal else None, fan_in)
        elif isinstance(module, RecurrentCell):
            _draw(module, generator, 1.0 if orthogonal else None, module.size)
        elif isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, Transformer):
            nn.init.normal_(module.positions, std=POSITION_DEVIATION, generator=generator)


def _draw(module: nn.Module, generator: torch.Generator, gain: float | None, fan_in: int) -> None:
    """Matrices orthogonal with a gain and biases zero; uniform, all of them, without one."""
    bound = 1.0 / math.sqrt(fan_in)
    for parameter in module.parameters(recurse=False):
        if gain is None:
            nn.init.uniform_(parameter, -bound, bound, generator=generator)
        elif parameter.ndim > 1:
            nn.init.orthogonal_(parameter, gain, generator=generator)
        else:
            nn.init.zeros_(parameter)


def _blank(kind: Callable[..., M], *sizes: int, **options: Any) -> M:
    """A module whose weights are yet to be drawn. Those that torch has drawn count for nothing: its
    global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        return kind(*sizes, **options)


def _linear(before: int, after: int) -> nn.Linear:
    return _blank(nn.Linear, before, after)


def _conv3x3(before: int, after: int) -> nn.Conv2d:
    return _blank(nn.Conv2d, before, after, 3, padding=1)


def _norm(size: int) -> nn.LayerNorm:
    return _blank(nn.LayerNorm, size)
