"""`Adam` over all parameters of a module as one vector.

torch's own goes through the parameters one by one; for networks of this size that bookkeeping
takes longer than the arithmetic.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_orch.errors import Damaged

BETA_1 = 0.9
BETA_2 = 0.999


class Adam:
    """Adam (Kingma and Ba 2015, algorithm 1), after the gradient is scaled down to a norm.

    The module's parameters become views of one vector, and their gradients of another, so the
    module must be on its device before, and stay there.
    """

    def __init__(self, module: nn.Module, *, eps: float, max_grad_norm: float | None) -> None:
        parameters = [p for p in module.parameters() if p.requires_grad]
        self._eps = eps
        self._max_grad_norm = max_grad_norm
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
        self._descend(learning_rate)
        return norm

    def tensors(self) -> dict[str, NDArray[Any]]:
        """What the next step depends on, besides the parameters; copies."""
        return {
            "optimizer/mean": self._mean.cpu().numpy().copy(),
            "optimizer/square": self._square.cpu().numpy().copy(),
            "optimizer/steps": torch.tensor(self._steps).numpy(),
        }

    def load_tensors(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `tensors` returned."""
        for name, target in (("mean", self._mean), ("square", self._square)):
            saved = torch.from_numpy(tensors[f"optimizer/{name}"].copy())
            if saved.shape != target.shape:
                raise Damaged(
                    f"the snapshot's optimiser remembers {saved.numel()} parameters, "
                    f"the policy has {target.numel()}"
                )
            target.copy_(saved)
        self._steps = int(tensors["optimizer/steps"])

    def _descend(self, learning_rate: float) -> None:
        """θ -= lr · m̂ / (√v̂ + ε), with m̂ = m / (1 - β₁ᵗ) and v̂ = v / (1 - β₂ᵗ)."""
        self._steps += 1
        self._mean.lerp_(self._gradient, 1.0 - BETA_1)
        self._square.mul_(BETA_2).addcmul_(self._gradient, self._gradient, value=1.0 - BETA_2)
        root = self._square.sqrt().div_(math.sqrt(1.0 - BETA_2**self._steps)).add_(self._eps)
        self._vector.addcdiv_(self._mean, root, value=-learning_rate / (1.0 - BETA_1**self._steps))
