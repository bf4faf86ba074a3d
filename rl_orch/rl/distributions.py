"""Action distributions: plain formulas over tensors, differentiable, without validation.

`torch.distributions` checks and broadcasts on every call; inside a minibatch loop that costs more
than the arithmetic. Shapes: B rows, n choices or A action components.
"""

import math
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

LOG_2PI = math.log(2.0 * math.pi)


class Distribution(Protocol):
    """A distribution over actions for each of B rows."""

    def log_prob(self, actions: Tensor) -> Tensor:
        """log π(a | s), shape (B,)."""

    def entropy(self) -> Tensor:
        """H(π(· | s)), shape (B,)."""

    def sample(self, generator: torch.Generator) -> Tensor:
        """One action a row; no gradient flows through it."""

    def mode(self) -> Tensor:
        """The most likely action of each row."""


class Categorical:
    """One of n choices; `logits` (B, n) need not be normalised.

    log π(a) = z_a - log Σ_j exp z_j,  H = -Σ_j π_j log π_j.
    """

    __slots__ = ("_log_p", "logits")

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits
        self._log_p: Tensor | None = None

    @property
    def log_p(self) -> Tensor:
        """log π_j for all j, (B, n); worked out once, and never where only a sample is asked."""
        if self._log_p is None:
            self._log_p = self.logits.log_softmax(-1)
        return self._log_p

    def log_prob(self, actions: Tensor) -> Tensor:
        """log π(a), shape (B,); `actions` (B,) are integers."""
        return -F.nll_loss(self.log_p, actions, reduction="none")

    def entropy(self) -> Tensor:
        """H, shape (B,)."""
        return -(self.log_p.exp() * self.log_p).sum(-1)

    def sample(self, generator: torch.Generator) -> Tensor:
        """Choices (B,), by the Gumbel-max trick: argmax_j z_j - log E_j with E_j ~ Exp(1)."""
        exponentials = torch.empty_like(self.logits).exponential_(generator=generator)
        return (self.logits - exponentials.log()).argmax(-1)

    def mode(self) -> Tensor:
        """The likeliest choices, (B,); the first of equals."""
        return self.logits.argmax(-1)


class DiagGaussian:
    """Independent normals: `mean` (B, A), `log_std` (A,), the same for all rows.

    log π(a) = -½ Σ_i [((a_i - mean_i) / std_i)² + 2 log std_i + log 2π],
    H = Σ_i [½ + ½ log 2π + log std_i].
    """

    __slots__ = ("log_std", "mean")

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean = mean
        self.log_std = log_std

    def log_prob(self, actions: Tensor) -> Tensor:
        """log π(a), shape (B,); `actions` (B, A)."""
        z = (actions - self.mean) * (-self.log_std).exp()
        constant = self.log_std.sum() + 0.5 * LOG_2PI * self.mean.shape[-1]
        return -0.5 * z.square().sum(-1) - constant

    def entropy(self) -> Tensor:
        """H, shape (B,)."""
        total = (0.5 + 0.5 * LOG_2PI + self.log_std).sum()
        return total.expand(self.mean.shape[0])

    def sample(self, generator: torch.Generator) -> Tensor:
        """Actions (B, A): mean + std · ε with ε ~ N(0, 1)."""
        noise = torch.empty_like(self.mean).normal_(generator=generator)
        return self.mean + noise * self.log_std.exp()

    def mode(self) -> Tensor:
        """The means, (B, A)."""
        return self.mean
