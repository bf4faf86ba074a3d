"""Observations as policies take them: one array, or arrays by name.

The parts of Dict and Tuple spaces, nested or not, become one flat mapping. Its names are the keys
joined by `/`; the entries of a Tuple are called `0`, `1` and so on.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from rl_orch.errors import BadInput

_COMPOSITE = (spaces.Dict, spaces.Tuple)


def flat_space(space: Space[Any]) -> Space[Any]:
    """The space of what `flatten_observation` returns: one without parts, or a Dict of such, in the
    same order."""
    if not isinstance(space, _COMPOSITE):
        return space
    parts = list(_leaves(space))
    leaves = OrderedDict(parts)
    if not parts:
        raise BadInput(f"the observation space {space} has no parts", path="env.id")
    if len(leaves) < len(parts):
        raise BadInput(
            f"the observation space {space} has different parts of the same name, "
            f"when their keys are joined by '/': {', '.join(leaves)}",
            path="env.id",
        )
    return spaces.Dict(leaves)


def leaf_keys(space: Space[Any]) -> dict[str, tuple[str | int, ...]]:
    """The keys that lead to each part of an observation as the environment gives it, by the part's
    flat name; none for a space without parts."""
    return dict(_keys(space)) if isinstance(space, _COMPOSITE) else {"": ()}


def flatten_observation(space: Space[Any], raw: Any) -> Any:
    """An observation of `space`, or a batch of them, as arrays of the space's types.

    An array, or a flat mapping from names to arrays. Nothing is copied that has its type already.
    """
    if not isinstance(space, _COMPOSITE):
        return np.asarray(raw, dtype=space.dtype)
    return dict(_arrays(space, raw, ""))


def misfit(space: Any, value: Any, name: str = "observation") -> str | None:
    """The shape of a value and that of its space, as a part of a sentence, where they differ."""
    if isinstance(space, spaces.Dict):
        keys = list(value) if isinstance(value, Mapping) else type(value).__name__
        if not isinstance(value, Mapping) or set(keys) != set(space):
            return f"{name} of {keys}; its space has {list(space)}"
        parts = [(space[key], value[key], f"{name}[{key!r}]") for key in space]
        return next(filter(None, (misfit(*part) for part in parts)), None)
    if isinstance(space, spaces.Tuple):
        if not isinstance(value, Sequence) or len(value) != len(space):
            return f"{name} of type {type(value).__name__}; its space is a tuple of {len(space)}"
        inner = zip(space, value, range(len(space)), strict=True)
        return next(filter(None, (misfit(s, v, f"{name}[{n}]") for s, v, n in inner)), None)
    if space.shape is None or np.shape(value) == space.shape:
        return None
    return f"{name} of shape {np.shape(value)}; its space has the shape {space.shape}"


def _leaves(space: Space[Any], name: str = "") -> Iterator[tuple[str, Space[Any]]]:
    if not isinstance(space, _COMPOSITE):
        yield name, space
        return
    for key, part in _parts(space):
        yield from _leaves(part, f"{name}/{key}" if name else str(key))


def _keys(
    space: Space[Any], name: str = "", before: tuple[str | int, ...] = ()
) -> Iterator[tuple[str, tuple[str | int, ...]]]:
    if not isinstance(space, _COMPOSITE):
        yield name, before
        return
    for key, part in _parts(space):
        yield from _keys(part, f"{name}/{key}" if name else str(key), (*before, key))


def _arrays(space: Space[Any], raw: Any, name: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(space, _COMPOSITE):
        yield name, np.asarray(raw, dtype=space.dtype)
        return
    for key, part in _parts(space):
        yield from _arrays(part, raw[key], f"{name}/{key}" if name else str(key))


def _parts(space: Any) -> Any:
    """The keys and spaces of a Dict or a Tuple."""
    if isinstance(space, spaces.Dict):
        return space.spaces.items()
    return enumerate(space.spaces)
