"""Number formats and compilation of networks."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch

from rl_orch.spec.groups import TrainGroup

F = TypeVar("F", bound=Callable[..., Any])


def precision(train: TrainGroup, device: torch.device) -> AbstractContextManager[Any]:
    """A block in which products are taken in the options' number format.

    Weights, gradients and the optimiser stay in float32, and bfloat16 has its range: no scaling.
    """
    if train.precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


def compiled(function: F, train: TrainGroup) -> F:
    """The function, compiled by torch if the options say so."""
    if not train.compile:
        return function
    made: Any = torch.compile(function, dynamic=False)
    compiled_function: F = made
    return compiled_function
