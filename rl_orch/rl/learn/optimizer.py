"""Optimisers over all parameters of a module as one vector, and target networks that follow.

torch's own optimisers go through the parameters one by one; for networks of this size that
bookkeeping takes longer than the arithmetic.
"""

import math
from abc import ABC, abstractmethod
from copy import deepcopy
from typing import ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

from rl_orch.errors import Damaged
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.learn.optimizer_arrays import OptimizerArrays
from rl_orch.spec.groups import TrainGroup

BETA_1 = 0.9
BETA_2 = 0.999
SMOOTHING = 0.99
"""RMSprop's share of the old mean square."""

M = TypeVar("M", bound=nn.Module)


def flattened(module: nn.Module) -> Tensor:
    """One vector of all parameters of a module, which become views of it; the same vector again if
    they are already."""
    parameters = [p.detach() for p in module.parameters()]
    storage, place = parameters[0].untyped_storage(), parameters[0].storage_offset()
    first = place
    for parameter in parameters:
        same = parameter.untyped_storage().data_ptr() == storage.data_ptr()
        if not same or parameter.storage_offset() != place:
            break
        place += parameter.numel()
    else:
        return parameters[0].as_strided((place - first,), (1,), first)
    vector = torch.cat([parameter.flatten() for parameter in parameters])
    parts = torch.split(vector, [parameter.numel() for parameter in parameters])
    for parameter, values in zip(module.parameters(), parts, strict=True):
        parameter.data = values.view_as(parameter)
    return vector


class Optimizer(ABC):
    """Descends along the gradient of a loss, after it is scaled down to a norm.

    The module's parameters become views of one vector, and their gradients of another, so the
    module must be on its device before, and stay there. `steps` counts those that were made.
    """

    smoothing: ClassVar[float]
    """The share of the old mean square in the new one."""

    def __init__(
        self,
        module: nn.Module,
        *,
        eps: float,
        max_grad_norm: float | None = None,
        beta_1: float = BETA_1,
    ) -> None:
        self._eps, self._beta_1 = eps, beta_1
        self._max_grad_norm = max_grad_norm
        self._vector = flattened(module)
        self._gradient = torch.zeros_like(self._vector)
        self._mean = torch.zeros_like(self._vector)
        self._square = torch.zeros_like(self._vector)
        self.steps = 0
        parameters = [*module.parameters()]
        parts = torch.split(self._gradient, [p.numel() for p in parameters])
        for parameter, gradient in zip(parameters, parts, strict=True):
            parameter.grad = gradient.view_as(parameter)

    def step(self, loss: Tensor, learning_rate: float) -> Tensor:
        """Descend along the gradient of `loss`; returns the gradient's norm before scaling."""
        self._gradient.zero_()
        loss.backward()  # type: ignore[no-untyped-call]
        norm: Tensor = torch.linalg.vector_norm(self._gradient)
        if self._max_grad_norm is not None:
            self._gradient.mul_((self._max_grad_norm / (norm + 1e-6)).clamp_(max=1.0))
        self.steps += 1
        self._descend(learning_rate)
        return norm

    @property
    def arrays(self) -> OptimizerArrays:
        """Its vectors and options as kernels take them; on the CPU."""
        return OptimizerArrays(
            self._vector.numpy(),
            self._gradient.numpy(),
            self._mean.numpy(),
            self._square.numpy(),
            adam=isinstance(self, Adam),
            eps=self._eps,
            most=math.inf if self._max_grad_norm is None else self._max_grad_norm,
            beta_1=self._beta_1,
            beta_2=self.smoothing,
        )

    def state(self) -> StateTree:
        """The optimiser's state besides the parameters; copies."""
        return StateTree(
            {
                "mean": self._mean.cpu().numpy().copy(),
                "square": self._square.cpu().numpy().copy(),
                "steps": torch.tensor(self.steps).numpy(),
            }
        )

    def load_state(self, state: StateTree) -> None:
        """Go on from what `state` returned."""
        for name, target in (("mean", self._mean), ("square", self._square)):
            saved = torch.from_numpy(state.tensors[name].copy())
            if saved.shape != target.shape:
                raise Damaged(
                    f"the snapshot's optimiser remembers {saved.numel()} parameters, "
                    f"the policy has {target.numel()}"
                )
            target.copy_(saved)
        self.steps = int(state.tensors["steps"])

    @abstractmethod
    def _descend(self, learning_rate: float) -> None:
        """Move the parameters along the gradient that is there."""


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015, algorithm 1)."""

    smoothing = BETA_2

    def _descend(self, learning_rate: float) -> None:
        """Adam's step: θ -= lr · m̂ / (√v̂ + ε), with m̂ = m / (1 - β₁ᵗ) and v̂ = v / (1 - β₂ᵗ)."""
        self._mean.lerp_(self._gradient, 1.0 - self._beta_1)
        self._square.mul_(BETA_2).addcmul_(self._gradient, self._gradient, value=1.0 - BETA_2)
        root = self._square.sqrt().div_(math.sqrt(1.0 - BETA_2**self.steps)).add_(self._eps)
        self._vector.addcdiv_(
            self._mean, root, value=-learning_rate / (1.0 - self._beta_1**self.steps)
        )


class RMSprop(Optimizer):
    """RMSprop (Tieleman and Hinton 2012), as torch has it: θ -= lr · g / (√v + ε)."""

    smoothing = SMOOTHING

    def _descend(self, learning_rate: float) -> None:
        self._square.mul_(SMOOTHING).addcmul_(self._gradient, self._gradient, value=1.0 - SMOOTHING)
        root = self._square.sqrt().add_(self._eps)
        self._vector.addcdiv_(self._gradient, root, value=-learning_rate)


OPTIMIZERS: dict[str, type[Optimizer]] = {"adam": Adam, "rmsprop": RMSprop}


def build_optimizer(module: nn.Module, train: TrainGroup) -> Optimizer:
    """The optimiser that the options name."""
    kind = OPTIMIZERS[train.optimizer]
    norm, beta_1 = train.max_grad_norm, train.adam_beta1
    return kind(module, eps=train.adam_eps, max_grad_norm=norm, beta_1=beta_1)


class Target(Generic[M]):
    """A copy of a network that follows it slowly, and takes no gradient."""

    def __init__(self, source: M) -> None:
        self._source = flattened(source)
        self.module: M = deepcopy(source).requires_grad_(False)
        self.vector = flattened(self.module)

    def follow(self, tau: float) -> None:
        """θ' += τ (θ - θ'); with τ = 1 a copy (Polyak and Juditsky 1992; Lillicrap et al. 2016)."""
        if tau == 1.0:
            self.vector.copy_(self._source)
        else:
            self.vector.lerp_(self._source, tau)
