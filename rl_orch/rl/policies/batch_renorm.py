"""Batch renormalisation (Ioffe 2017, arXiv:1702.03275), and perceptrons that have it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_orch.rl.policies.nets import ACTIVATIONS, MLP

MOMENTUM = 0.01
"""The share of a batch in the running statistics."""

EPS = 1e-3
R_MAX, D_MAX = 3.0, 5.0
"""How far statistics of a batch may be corrected towards the running ones."""

WARM_UP = 100_000
"""Batches that are normalised by their own statistics alone."""


class BatchRenorm(nn.Module):
    """Normalises each feature, (B, F) → (B, F): by running statistics, or `by_batch`.

    By batch it takes the statistics of its rows, corrected towards the running ones once those have
    seen `WARM_UP` batches; and the running ones move.
    """

    mean: Tensor
    variance: Tensor
    batches: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("variance", torch.ones(size))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))
        self.by_batch = False

    def forward(self, x: Tensor) -> Tensor:
        """Features with mean 0 and deviation 1, times weight, plus bias."""
        x = x.float()
        if not self.by_batch:
            return (x - self.mean) * (self.weight / (self.variance + EPS).sqrt()) + self.bias
        corrected = self.batches.item() >= WARM_UP
        scale, shift = (None, None) if corrected else (self.weight, self.bias)
        y, mean, inverse = torch.native_batch_norm(x, scale, shift, None, None, True, 0.0, EPS)
        deviation = inverse.reciprocal()
        if corrected:
            r, d = self._correction(mean, deviation)
            y = y * (r * self.weight) + (d * self.weight + self.bias)
        self.mean.lerp_(mean, MOMENTUM)
        self.variance.lerp_((deviation.square() - EPS).clamp_(min=0.0), MOMENTUM)
        self.batches.add_(1)
        return y

    def _correction(self, mean: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor]:
        """r and d of algorithm 1."""
        running = (self.variance + EPS).sqrt()
        r = (deviation / running).clamp(1.0 / R_MAX, R_MAX)
        return r, ((mean - self.mean) / running).clamp(-D_MAX, D_MAX)


class NormalizedMLP(MLP):
    """A perceptron that normalises what each layer reads, and its output if `activate_last`."""

    def __init__(self, sizes: Sequence[int], activation: str, *, activate_last: bool) -> None:
        super().__init__(sizes, activation, activate_last=activate_last)
        normalized = sizes if activate_last else sizes[:-1]
        self.norms = nn.ModuleList(BatchRenorm(size) for size in normalized)

    def forward(self, x: Tensor) -> Tensor:
        """The output of the last layer, or of the norm behind it."""
        activate, last = ACTIVATIONS[self.activation], len(self.layers) - 1
        for number, layer in enumerate(self.layers):
            x = F.linear(self.norms[number](x), layer.weight, layer.bias)  # type: ignore[arg-type]
            x = activate(x) if number < last or self.activate_last else x
        return self.norms[-1](x) if self.activate_last else x


@contextmanager
def by_batch(module: nn.Module) -> Iterator[None]:
    """A block in which a module normalises by batch, and its running statistics move."""
    layers = [layer for layer in module.modules() if isinstance(layer, BatchRenorm)]
    for layer in layers:
        layer.by_batch = True
    try:
        yield
    finally:
        for layer in layers:
            layer.by_batch = False
