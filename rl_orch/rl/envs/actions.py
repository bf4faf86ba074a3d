"""Between what a policy decides and what an environment takes: bounds, and where counts start."""

import math
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray


def choices_of(space: Space[Any]) -> tuple[int, ...]:
    """The number of choices each component of a discrete action has; empty where actions are
    numbers.

    The choices of a Box would be without end; those of MultiBinary are two each.
    """
    if isinstance(space, spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(int(n) for n in space.nvec.flatten())
    if isinstance(space, spaces.MultiBinary):
        return (2,) * math.prod(space.shape)
    return ()


def within_bounds(space: spaces.Box, actions: NDArray[Any]) -> NDArray[Any]:
    """Actions of an unbounded distribution, clipped to what a Box allows."""
    clipped: NDArray[Any] = np.clip(actions, space.low, space.high)
    return clipped.astype(space.dtype, copy=False)


def stretched(space: spaces.Box, actions: NDArray[Any]) -> NDArray[Any]:
    """Actions in [-1, 1], stretched to the bounds of a Box."""
    share = (actions.astype(np.float64) + 1.0) / 2.0
    return within_bounds(space, space.low + share * (space.high - space.low))


def counted(space: Space[Any], actions: NDArray[Any]) -> NDArray[Any]:
    """Choices counted from 0, as an environment counts them."""
    start: Any = getattr(space, "start", 0)
    if not np.any(start):
        return actions
    shifted: NDArray[Any] = actions + start
    return shifted
