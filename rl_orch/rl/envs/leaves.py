"""`Leaf`: one array of an observation as networks see it, and the encoders for it.

What is done with the arrays is in `rl/policies/observations.py`; no torch here.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import Space, spaces

from rl_orch.errors import BadInput
from rl_orch.rl.envs.observations import flat_space

SMALLEST_FOR_CNN = 36
"""Pixels that an image needs each way for the three layers of the Nature CNN."""

PIXELS = "a Box of uint8 with 2 to 4 axes"


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array of an observation, as networks see it.

    A vector is flattened to `size` numbers; `shape` says how they lay, the last axis being one row.
    An image has the shape (C, H, W), and the frames of a stack are among its channels.

    `measured` marks vectors that may be normalised and clipped: those of a Box, since choices
    become one-hot. The values of an image are at most `high`; `channels_last` is how it arrives.
    """

    kind: Literal["vector", "image"]
    shape: tuple[int, ...]
    measured: bool = False
    high: float = 1.0
    channels_last: bool = False

    @property
    def size(self) -> int:
        """The count of numbers."""
        return math.prod(self.shape)

    @property
    def rows(self) -> tuple[int, int]:
        """Number and length of rows; the numbers of one axis are rows of 1."""
        if len(self.shape) < 2:
            return self.size, 1
        return math.prod(self.shape[:-1]), self.shape[-1]


def leaves_of(space: Space[Any], *, stacked: bool) -> dict[str, Leaf]:
    """The leaves of an observation space by name; a space without parts has one, named "".

    `stacked` says that the first axis of every Box counts the frames of a stack. `BadInput` where
    there is a part that no network can see.
    """
    flat = flat_space(space)
    parts = flat.spaces if isinstance(flat, spaces.Dict) else {"": flat}
    return {name: _leaf(name, part, stacked) for name, part in parts.items()}


def seeable_keys(space: Space[Any], *, stacked: bool) -> tuple[str, ...]:
    """The keys of a Dict whose parts networks can see; none of another space."""
    parts = space.spaces if isinstance(space, spaces.Dict) else {}
    return tuple(key for key, part in parts.items() if _is_seeable(part, stacked))


def _is_seeable(space: Space[Any], stacked: bool) -> bool:
    try:
        leaves_of(space, stacked=stacked)
    except BadInput:
        return False
    return True


def problems(encoder: str, leaves: Mapping[str, Leaf]) -> list[str]:
    """The reasons why an encoder cannot take these observations, in sentences; none if it can.

    An encoder of images leaves the vectors of a Dict as they are, and a transformer leaves its
    images to a convolutional network: each needs something of its own kind.
    """
    asked = f"feature.encoder is {encoder!r}, which"
    images = {name: leaf for name, leaf in leaves.items() if leaf.kind == "image"}
    if encoder in ("cnn", "impala") and not images:
        return [f"{asked} takes images ({PIXELS}), but there are none; use 'auto' or 'mlp'"]
    if encoder == "transformer" and len(images) == len(leaves):
        return [f"{asked} takes vectors, but there are only images; use 'auto', 'cnn' or 'impala'"]
    if encoder != "cnn":
        return []
    least = SMALLEST_FOR_CNN
    return [
        f"{asked} takes images of at least {least} by {least} pixels, but {_called(name)} has "
        f"{leaf.shape[1]} by {leaf.shape[2]}; use 'impala' or 'auto'"
        for name, leaf in images.items()
        if min(leaf.shape[1:]) < least
    ]


def _leaf(name: str, space: Space[Any], stacked: bool) -> Leaf:
    leaf = None
    if isinstance(space, spaces.Box):
        leaf = _box(space, stacked)
    elif isinstance(space, spaces.Discrete):
        leaf = Leaf("vector", (1, int(space.n)))
    elif isinstance(space, spaces.MultiDiscrete):
        leaf = _choices(space)
    elif isinstance(space, spaces.MultiBinary):
        leaf = Leaf("vector", tuple(space.shape))
    if leaf is None or leaf.size == 0:
        raise BadInput(
            f"{_called(name)} is a {type(space).__name__} of shape {space.shape}; must be a Box, "
            "Discrete, MultiDiscrete or MultiBinary with something in it, or a Dict or Tuple of "
            "them",
            path="env.id",
        )
    return leaf


def _box(space: spaces.Box, stacked: bool) -> Leaf:
    shape = space.shape
    frame = shape[1:] if stacked or len(shape) == 4 else shape
    if space.dtype != np.uint8 or len(frame) not in (2, 3):
        return Leaf("vector", shape, measured=True)
    frames = math.prod(shape[: len(shape) - len(frame)])
    # The fewest pixels are in the axis of channels; where axes are equal, it is the last one.
    last = len(frame) == 3 and frame[-1] == min(frame)
    channels, *sides = (frame[-1], *frame[:-1]) if last else (1, *frame)[-3:]
    high = float(space.high.max(initial=0)) or 1.0
    return Leaf("image", (frames * channels, *sides), high=high, channels_last=last)


def _choices(space: spaces.MultiDiscrete) -> Leaf:
    """One-hot: a row for each choice where all are among equally many, else all in one."""
    options = space.nvec.ravel()
    if len({*options.tolist()}) == 1:
        return Leaf("vector", (len(options), int(options[0])))
    return Leaf("vector", (int(options.sum()),))


def _called(name: str) -> str:
    return f"the observation {name!r}" if name else "the observation"
