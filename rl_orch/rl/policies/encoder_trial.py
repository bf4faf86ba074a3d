"""`fault`: what is wrong with an encoder of somebody's, seen by passing observations through it."""

from typing import Any

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor

from rl_orch.errors import with_place
from rl_orch.rl.envs.observations import flatten_observation
from rl_orch.rl.policies.nets import Net
from rl_orch.rl.policies.observations import ObservationPipeline
from rl_orch.rl.policies.policy import Inputs

ROWS = 3


def fault(encoder: Net, inputs: Inputs) -> str | None:
    """What is wrong with the features of some observations, as the end of a sentence; or None."""
    rows = len(inputs if isinstance(inputs, Tensor) else next(iter(inputs.values())))
    try:
        features: Any = encoder(inputs)
    except Exception as error:  # It is somebody's code.
        return f"its forward fails for {_shown(inputs)}: {with_place(error)}"
    if not isinstance(features, Tensor):
        return f"its forward gives a {type(features).__name__}; must be a tensor"
    wanted = (rows, encoder.size)
    if tuple(features.shape) != wanted:
        return (
            f"its forward gives the shape {list(features.shape)} for {_shown(inputs)}; "
            f"must be {list(wanted)}, the rows by its size"
        )
    if features.dtype != torch.float32:
        return f"its forward gives {features.dtype}; must be {torch.float32}"
    if not torch.isfinite(features).all():
        return f"its forward gives numbers that are not finite for {_shown(inputs)}"
    return _gradient_fault(encoder, features)


def samples(pipeline: ObservationPipeline, space: Space[Any], rows: int = ROWS) -> Inputs:
    """Network inputs for random observations of a space."""
    space.seed(0)
    drawn = [flatten_observation(space, space.sample()) for _ in range(rows)]
    column: Any = np.stack(drawn)
    if isinstance(drawn[0], dict):
        column = {name: np.stack([row[name] for row in drawn]) for name in drawn[0]}
    seen = pipeline.process(column)
    if isinstance(seen, dict):
        return {name: torch.from_numpy(part) for name, part in seen.items()}
    return torch.from_numpy(seen)


def _gradient_fault(encoder: Net, features: Tensor) -> str | None:
    learned = [parameter for parameter in encoder.parameters() if parameter.requires_grad]
    if not learned:
        return None
    if not features.requires_grad:
        return "no gradient reaches its parameters: its features are cut off from them"
    gradients = torch.autograd.grad(features.square().sum(), learned, allow_unused=True)
    if not all(each is None or torch.isfinite(each).all() for each in gradients):
        return "gradients of its parameters are not finite"
    return None


def _shown(inputs: Inputs) -> str:
    """Shape and type of what an encoder was given."""
    if isinstance(inputs, Tensor):
        return f"{list(inputs.shape)} of {str(inputs.dtype).removeprefix('torch.')}"
    return ", ".join(f"{name!r} {_shown(part)}" for name, part in inputs.items())
