"""Action distributions: plain formulas over tensors, differentiable, without validation.

`torch.distributions` checks and broadcasts on every call; inside a minibatch loop that costs more
than the arithmetic. Shapes: B rows, n choices or A action components.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

LOG_2 = math.log(2.0)
LOG_2PI = math.log(2.0 * math.pi)
SOFTPLUS_THRESHOLD = 40.0
"""Where softplus(x) becomes x: at 20, torch's own, e^-20 = 2e-9 would be missing in float64."""

VARIANCE_FLOOR = 1e-6
"""Added to a state-dependent variance, which is 0 where the features are."""

QUADRATURE_STEP = 0.25
QUADRATURE_REACH = 32
"""Nodes on each side of the mean, a quarter of a deviation apart: eight deviations."""


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

    `masks` (B, n) are false for choices that are forbidden: their probability is exactly 0 and
    their logits take no gradient. At least one choice of a row should be allowed. A forbidden
    logit becomes the least finite number, not -∞, so that 0 · log 0 is 0 and never NaN.
    """

    __slots__ = ("_log_p", "logits")

    def __init__(self, logits: Tensor, masks: Tensor | None = None) -> None:
        if masks is not None:
            logits = logits.masked_fill(~masks, torch.finfo(logits.dtype).min)
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


class MultiCategorical:
    """Several independent choices at once: `nvec[i]` options for the i-th of K.

    `logits` and `masks` (B, Σ nvec) hold those of one choice after the other; see `Categorical`.
    """

    __slots__ = ("parts",)

    def __init__(self, logits: Tensor, nvec: Sequence[int], masks: Tensor | None = None) -> None:
        sizes = [int(size) for size in nvec]
        rows = torch.split(logits, sizes, -1)
        allowed = [None] * len(sizes) if masks is None else torch.split(masks, sizes, -1)
        self.parts = [Categorical(z, mask) for z, mask in zip(rows, allowed, strict=True)]

    def log_prob(self, actions: Tensor) -> Tensor:
        """Σ_i log π_i(a_i), shape (B,); `actions` (B, K) are integers."""
        columns = zip(self.parts, actions.unbind(-1), strict=True)
        return torch.stack([part.log_prob(column) for part, column in columns]).sum(0)

    def entropy(self) -> Tensor:
        """Σ_i H_i, shape (B,)."""
        return torch.stack([part.entropy() for part in self.parts]).sum(0)

    def sample(self, generator: torch.Generator) -> Tensor:
        """Choices (B, K)."""
        return torch.stack([part.sample(generator) for part in self.parts], -1)

    def mode(self) -> Tensor:
        """The likeliest choices, (B, K)."""
        return torch.stack([part.mode() for part in self.parts], -1)


class Bernoulli:
    """n independent coins; `logits` z (B, n), π(1) = sigmoid(z).

    log π(a) = -Σ_i softplus((1 - 2 a_i) z_i),  H = Σ_i [softplus(-|z_i|) + |z_i| sigmoid(-|z_i|)].
    """

    __slots__ = ("logits",)

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    def log_prob(self, actions: Tensor) -> Tensor:
        """log π(a), shape (B,); `actions` (B, n) are 0 or 1, of any type."""
        signs = 1.0 - 2.0 * actions.to(self.logits.dtype)
        return -F.softplus(signs * self.logits, threshold=SOFTPLUS_THRESHOLD).sum(-1)

    def entropy(self) -> Tensor:
        """H, shape (B,)."""
        sizes = self.logits.abs()
        return (F.softplus(-sizes) + sizes * (-sizes).sigmoid()).sum(-1)

    def sample(self, generator: torch.Generator) -> Tensor:
        """Zeros and ones (B, n), int8 as in a MultiBinary space."""
        uniforms = torch.empty_like(self.logits).uniform_(generator=generator)
        return (uniforms < self.logits.sigmoid()).to(torch.int8)

    def mode(self) -> Tensor:
        """The likelier side of each coin, (B, n) int8; 0 for a fair one."""
        return (self.logits > 0.0).to(torch.int8)


class DiagGaussian:
    """Independent normals: `mean` (B, A); `log_std` (A,), the same for all rows, or (B, A).

    log π(a) = -½ Σ_i [((a_i - mean_i) / std_i)² + 2 log std_i + log 2π],
    H = Σ_i [½ + ½ log 2π + log std_i].
    """

    __slots__ = ("log_std", "mean")

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean = mean
        self.log_std = log_std

    def log_prob(self, actions: Tensor) -> Tensor:
        """log π(a), shape (B,); `actions` (B, A)."""
        return self._log_density((actions - self.mean) * (-self.log_std).exp())

    def entropy(self) -> Tensor:
        """H, shape (B,)."""
        total = (0.5 + 0.5 * LOG_2PI + self.log_std).sum(-1)
        return total.expand(self.mean.shape[0])

    def sample(self, generator: torch.Generator) -> Tensor:
        """Actions (B, A): mean + std · ε with ε ~ N(0, 1)."""
        noise = torch.empty_like(self.mean).normal_(generator=generator)
        return self.mean + noise * self.log_std.exp()

    def rsample_with_log_prob(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """mean + std · ε for the ε (B, A) given; and its log π (B,), both with gradients."""
        return self.mean + noise * self.log_std.exp(), self._log_density(noise)

    def mode(self) -> Tensor:
        """The means, (B, A)."""
        return self.mean

    def _log_density(self, z: Tensor) -> Tensor:
        """log π of actions that lie z (B, A) deviations from the means, (B,)."""
        constant = self.log_std.sum(-1) + 0.5 * LOG_2PI * self.mean.shape[-1]
        return -0.5 * z.square().sum(-1) - constant


class SquashedGaussian:
    """A Gaussian squashed by tanh: a = tanh(u) with u ~ N(mean, std²), `mean` (B, A), `log_std`
    (A,) or (B, A).

    log π(a) = log N(u; mean, std) - Σ_i log(1 - tanh² u_i)   (Haarnoja et al. 2018, appendix C),
    log(1 - tanh² u) = 2 (log 2 - u - softplus(-2u)), which is exact and finite for every u.
    """

    __slots__ = ("normal",)

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.normal = DiagGaussian(mean, log_std)

    def log_prob(self, actions: Tensor) -> Tensor:
        """log π(a), shape (B,); `actions` (B, A) within [-1, 1], whose ends are drawn inwards."""
        limit = 1.0 - torch.finfo(actions.dtype).eps
        u = actions.clamp(-limit, limit).atanh()
        return self.normal.log_prob(u) - _log_slope(u).sum(-1)

    def entropy(self) -> Tensor:
        """H = H(N) + Σ_i E[log(1 - tanh² u_i)], shape (B,).

        There is no closed form; the trapezoidal rule over the noise is good to 1e-8 where
        std ≤ 2 and to 1e-4 where std ≤ 4.
        """
        mean = self.normal.mean
        nodes = QUADRATURE_STEP * torch.arange(
            -QUADRATURE_REACH, QUADRATURE_REACH + 1, dtype=mean.dtype, device=mean.device
        )
        weights = (-0.5 * nodes.square()).softmax(0)
        u = mean.unsqueeze(-1) + self.normal.log_std.exp().unsqueeze(-1) * nodes
        return self.normal.entropy() + (_log_slope(u) @ weights).sum(-1)

    def sample(self, generator: torch.Generator) -> Tensor:
        """Actions (B, A) within [-1, 1]."""
        return self.normal.sample(generator).tanh()

    def rsample_with_log_prob(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """tanh(mean + std · ε) for the ε (B, A) given; and its log π (B,), both with gradients.

        What tanh rounds to ±1 keeps its log-probability: u is never worked back from a.
        """
        u, log_prob = self.normal.rsample_with_log_prob(noise)
        return u.tanh(), log_prob - _log_slope(u).sum(-1)

    def mode(self) -> Tensor:
        """tanh of the means, (B, A): the medians, which are played where nothing is explored."""
        return self.normal.mean.tanh()


class StateDependentGaussian(SquashedGaussian):
    """gSDE (Raffin et al. 2021): exploration as a function of the state, kept for several steps.

    a = tanh(mean + latentᵀ θ) with θ_lk ~ N(0, std_lk²) drawn now and then. `mean` (B, A),
    `latent` (B, L), `log_std` (L, A). Over all θ, each component before tanh is normal with
    variance Σ_l latent_l² std_lk², and that is the distribution of a row: samples are drawn as if
    each row had a θ of its own.
    """

    __slots__ = ("latent",)

    def __init__(self, mean: Tensor, latent: Tensor, log_std: Tensor) -> None:
        # In full precision: the floor and small deviations would be lost in bfloat16.
        with torch.autocast(latent.device.type, enabled=False):
            variance = latent.square() @ (2.0 * log_std).exp() + VARIANCE_FLOOR
        super().__init__(mean, 0.5 * variance.log())
        self.latent = latent

    def explore(self, matrices: Tensor) -> Tensor:
        """Actions (B, A) under the θ of each row, (B, L, A)."""
        noise = torch.bmm(self.latent.unsqueeze(1), matrices).squeeze(1)
        return (self.normal.mean + noise).tanh()

    @staticmethod
    def matrices(log_std: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """`count` exploration matrices θ, (count, L, A)."""
        noise = log_std.new_empty(count, *log_std.shape).normal_(generator=generator)
        return noise * log_std.exp()


def _log_slope(u: Tensor) -> Tensor:
    """log(1 - tanh² u), for each element."""
    return 2.0 * (LOG_2 - u - F.softplus(-2.0 * u, threshold=SOFTPLUS_THRESHOLD))
