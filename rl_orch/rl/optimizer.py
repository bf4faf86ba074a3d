"""Optimisers over all parameters of a module as one vector, and target networks that follow.

torch's own optimisers go through the parameters one by one; for networks of this size that
bookkeeping takes longer than the arithmetic.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Generic, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_orch.errors import Damaged
from rl_orch.spec.groups import TrainGroup

BETA_1 = 0.9
BETA_2 = 0.999
SMOOTHING = 0.99
"""RMSprop's share of the old mean square."""

M = TypeVar("M", bound=nn.Module)


class Optimizer(ABC):
    """Descends along the gradient of a loss, after it is scaled down to a norm.

    The module's parameters become views of one vector, and their gradients of another, so the
    module must be on its device before, and stay there. `name` sets the tensors of several
    optimisers in one snapshot apart.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        eps: float,
        max_grad_norm: float | None = None,
        name: str = "",
    ) -> None:
        parameters = [p for p in module.parameters() if p.requires_grad]
        self._eps = eps
        self._max_grad_norm = max_grad_norm
        self._prefix = f"optimizer/{name}/" if name else "optimizer/"
        self._vector = torch.cat([p.detach().flatten() for p in parameters])
        self._gradient = torch.zeros_like(self._vector)
        self._mean = torch.zeros_like(self._vector)
        self._square = torch.zeros_like(self._vector)
        self._steps = 0
        sizes = [p.numel() for p in parameters]
        parts = zip(
            torch.split(self._vector, sizes), torch.split(self._gradient, sizes), strict=True
        )
        for parameter, (values, gradient) in zip(parameters, parts, strict=True):
            parameter.data = values.view_as(parameter)
            parameter.grad = gradient.view_as(parameter)

    def step(self, loss: Tensor, learning_rate: float) -> Tensor:
        """Descend along the gradient of `loss`; returns the gradient's norm before scaling."""
        self._gradient.zero_()
        loss.backward()  # type: ignore[no-untyped-call]
        norm: Tensor = torch.linalg.vector_norm(self._gradient)
        if self._max_grad_norm is not None:
            self._gradient.mul_((self._max_grad_norm / (norm + 1e-6)).clamp_(max=1.0))
        self._steps += 1
        self._descend(learning_rate)
        return norm

    def tensors(self) -> dict[str, NDArray[Any]]:
        """What the next step depends on, besides the parameters; copies."""
        return {
            f"{self._prefix}mean": self._mean.cpu().numpy().copy(),
            f"{self._prefix}square": self._square.cpu().numpy().copy(),
            f"{self._prefix}steps": torch.tensor(self._steps).numpy(),
        }

    def load_tensors(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `tensors` returned."""
        for name, target in (("mean", self._mean), ("square", self._square)):
            saved = torch.from_numpy(tensors[f"{self._prefix}{name}"].copy())
            if saved.shape != target.shape:
                raise Damaged(
                    f"the snapshot's optimiser remembers {saved.numel()} parameters, "
                    f"the policy has {target.numel()}"
                )
            target.copy_(saved)
        self._steps = int(tensors[f"{self._prefix}steps"])

    @abstractmethod
    def _descend(self, learning_rate: float) -> None:
        """Move the parameters along the gradient that is there."""


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015, algorithm 1)."""

    def _descend(self, learning_rate: float) -> None:
        """θ -= lr · m̂ / (√v̂ + ε), with m̂ = m / (1 - β₁ᵗ) and v̂ = v / (1 - β₂ᵗ)."""
        self._mean.lerp_(self._gradient, 1.0 - BETA_1)
        self._square.mul_(BETA_2).addcmul_(self._gradient, self._gradient, value=1.0 - BETA_2)
        root = self._square.sqrt().div_(math.sqrt(1.0 - BETA_2**self._steps)).add_(self._eps)
        self._vector.addcdiv_(self._mean, root, value=-learning_rate / (1.0 - BETA_1**self._steps))


class RMSprop(Optimizer):
    """RMSprop (Tieleman and Hinton 2012), as torch has it: θ -= lr · g / (√v + ε)."""

    def _descend(self, learning_rate: float) -> None:
        self._square.mul_(SMOOTHING).addcmul_(self._gradient, self._gradient, value=1.0 - SMOOTHING)
        root = self._square.sqrt().add_(self._eps)
        self._vector.addcdiv_(self._gradient, root, value=-learning_rate)


OPTIMIZERS: dict[str, type[Optimizer]] = {"adam": Adam, "rmsprop": RMSprop}


def build_optimizer(module: nn.Module, train: TrainGroup, *, name: str = "") -> Optimizer:
    """The optimiser that the options name."""
    return OPTIMIZERS[train.optimizer](
        module, eps=train.adam_eps, max_grad_norm=train.max_grad_norm, name=name
    )


class Target(Generic[M]):
    """A copy of a network that follows it slowly, and takes no gradient."""

    def __init__(self, source: M) -> None:
        self._source = [*source.parameters()]
        self.module: M = deepcopy(source).requires_grad_(False)
        self._target = [*self.module.parameters()]

    @torch.no_grad()
    def follow(self, tau: float) -> None:
        """θ' += τ (θ - θ'); with τ = 1 a copy (Polyak and Juditsky 1992; Lillicrap et al. 2016)."""
        for target, source in zip(self._target, self._source, strict=True):
            if tau == 1.0:
                target.copy_(source)
            else:
                target.lerp_(source, tau)
