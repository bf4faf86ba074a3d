"""Ranges of the parts of an observation space, and what masks must leave open, for all who take
observations and masks from people."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from rl_orch.errors import BadInput
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


def refuse_closed(masks: NDArray[np.bool_], choices: Sequence[int], first: int = 0) -> None:
    """Raise if a mask, of those (B, sum of choices), forbids all that there is to choose from.
    Rows are counted from the `first` on."""
    for part in np.split(masks, np.cumsum(choices)[:-1], axis=1):
        if not part.any(axis=1).all():
            row = int(np.argmin(part.any(axis=1)))
            mask = masks[row].astype(int).tolist()
            raise BadInput(
                f"the mask of row {first + row} forbids every action: {mask!s:.200}",
                hint="At least one choice has to be allowed; where there is none, the episode is "
                "over.",
            )


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
