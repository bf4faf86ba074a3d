"""Ranges of the parts of an observation space, for all who take observations from people."""

from typing import Any

from gymnasium import Space, spaces

from rl_orch.io.policies.observed import PartRange, labelled
from rl_orch.rl.envs.observations import flat_space, leaf_keys


def ranges_of(space: Space[Any], stack_frames: int | None) -> dict[str, PartRange]:
    """Of each part that is a choice, by its flat name; a stack is one of frames that are alike."""
    flat, keys = flat_space(space), leaf_keys(space)
    parts = dict(flat.spaces) if isinstance(flat, spaces.Dict) else {"": flat}
    ranges = {}
    for name, part in parts.items():
        if (ends := _ends(part, stacked=stack_frames is not None)) is not None:
            ranges[name] = PartRange(labelled("observation", keys[name]), *ends)
    return ranges


def _ends(part: Space[Any], *, stacked: bool) -> tuple[Any, Any] | None:
    match part:
        case spaces.Discrete():
            return part.start, part.start + part.n - 1
        case spaces.MultiBinary():
            return 0, 1
        case spaces.MultiDiscrete():
            low, high = part.start, part.start + part.nvec - 1
            return (low[0], high[0]) if stacked else (low, high)
    return None
