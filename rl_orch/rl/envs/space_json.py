"""Spaces as JSON and back, for policies whose environment is not there."""

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from rl_orch.errors import BadInput

MOST_NUMBERS = 1 << 24
"""Numbers that one observation or action may have, and values of a discrete one."""

NO_SPACE = (KeyError, TypeError, ValueError, ArithmeticError, AssertionError, RecursionError)


class HasSpaces(Protocol):
    """A policy, or what one is set up with."""

    @property
    def observation_space(self) -> Space[Any]:
        """What it sees."""

    @property
    def action_space(self) -> Space[Any]:
        """What it may do."""


def of_policy(policy: HasSpaces) -> dict[str, Any]:
    """The spaces of a policy by name; none where one of them cannot be written as JSON."""
    with suppress(BadInput):
        return {
            "observation_space": to_json(policy.observation_space),
            "action_space": to_json(policy.action_space),
        }
    return {}


def to_json(space: Space[Any]) -> dict[str, Any]:
    """A space as a document. Bounds that are all the same are one number; those that are not
    finite are the strings JSON's relatives use."""
    kind = type(space).__name__
    match space:
        case spaces.Box():
            bounds = {"low": _bound(space.low), "high": _bound(space.high)}
            return {"kind": kind, "dtype": str(space.dtype), "shape": [*space.shape], **bounds}
        case spaces.Discrete():
            return {"kind": kind, "n": int(space.n), "start": int(space.start)}
        case spaces.MultiDiscrete():
            return {"kind": kind, "nvec": space.nvec.tolist(), "start": space.start.tolist()}
        case spaces.MultiBinary():
            return {"kind": kind, "shape": [*space.shape]}
        case spaces.Dict():
            return {"kind": kind, "spaces": {k: to_json(v) for k, v in space.spaces.items()}}
        case spaces.Tuple():
            return {"kind": kind, "spaces": [to_json(part) for part in space.spaces]}
    raise BadInput(f"a space of kind {kind} cannot be written as JSON", path="env.id")


def from_json(document: Any) -> Space[Any]:
    """The space in a document that `to_json` made; `BadInput` if it is none."""
    try:
        return _space(document)
    except NO_SPACE as error:
        raise BadInput(f"not a space: {document!r:.200}: {error}") from None


def _space(document: Any) -> Space[Any]:
    match document:
        case {"kind": "Box", "dtype": dtype, "shape": shape, "low": low, "high": high}:
            _refuse_large(shape)
            low, high = (_array(bound, dtype, tuple(shape)) for bound in (low, high))
            return spaces.Box(low, high, tuple(shape), np.dtype(dtype).type)
        case {"kind": "Discrete", "n": n, "start": start}:
            _refuse_large([n])
            return spaces.Discrete(n, start=start)
        case {"kind": "MultiDiscrete", "nvec": nvec, "start": start}:
            _refuse_large([int(np.sum(nvec))])
            return spaces.MultiDiscrete(np.array(nvec), start=np.array(start))
        case {"kind": "MultiBinary", "shape": shape}:
            _refuse_large(shape)
            return spaces.MultiBinary(tuple(shape) if len(shape) > 1 else shape[0])
        case {"kind": "Dict", "spaces": dict(parts)}:
            return spaces.Dict([(name, _space(part)) for name, part in parts.items()])
        case {"kind": "Tuple", "spaces": list(parts)}:
            return spaces.Tuple([_space(part) for part in parts])
    raise ValueError("it has no known kind, or lacks a part of it")


def _refuse_large(shape: Sequence[int]) -> None:
    """Raise before anything of a size is made that no policy has."""
    if any(size < 0 for size in shape) or math.prod(shape) > MOST_NUMBERS:
        raise ValueError(f"its shape is {list(shape)}; at most {MOST_NUMBERS:,} numbers in all")


def _bound(values: NDArray[Any]) -> Any:
    if values.size and (values == values.flat[0]).all():
        return _number(values.flat[0].item())
    return _nested(values.tolist())


def _nested(values: Any) -> Any:
    return [_nested(value) for value in values] if isinstance(values, list) else _number(values)


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else json.dumps(value)


def _array(bound: Any, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    # NumPy reads the strings as the numbers they stand for; whole numbers stay exact.
    kind = np.dtype(dtype)
    numbers = np.asarray(bound) if not _has_text(bound) else np.asarray(bound, np.float64)
    return np.broadcast_to(numbers.astype(kind), shape).copy()


def _has_text(bound: Any) -> bool:
    return any(map(_has_text, bound)) if isinstance(bound, list) else isinstance(bound, str)
