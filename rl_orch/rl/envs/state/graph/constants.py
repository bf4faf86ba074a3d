"""`Tables`: the large constants of an environment, which a state names instead of copying them.

A map, a price history or a transition table can be a thousand times what changes in an episode.
"""

import marshal
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from gymnasium import Space

from rl_orch.rl.envs.state.graph import fields

LARGE = 16 * 1024
"""Bytes from which a constant is worth a name."""


class Tables:
    """Large values of a new environment; those still unchanged have a name."""

    def __init__(self, env: Any) -> None:
        self._made: list[tuple[Any, str]] = []
        # An environment holds somebody else's objects, and looking at one may raise anything; what
        # it raises is told when there is a state to capture.
        with suppress(Exception):
            for value in _attributes(env):
                name = _name(value)
                if name is not None:
                    self._made.append((value, name))

    def unchanged(self) -> dict[int, str]:
        """The names by id. A name says what a table holds: equal ones are equal tables."""
        return {id(value): name for value, name in self._made if _name(value) == name}


def _attributes(env: Any) -> Iterator[Any]:
    """The attributes of the environment, its wrappers and the objects they hold."""
    objects, met = [env], {id(env)}
    for thing in objects:
        for value in fields.read(thing).values():
            yield value
            if id(value) not in met and fields.is_object(value) and not isinstance(value, Space):
                met.add(id(value))
                objects.append(value)


def _name(value: Any) -> str | None:
    """The name of a large array or container of plain values; None otherwise."""
    data: Any
    if type(value) is np.ndarray and value.dtype.kind != "O" and value.nbytes >= LARGE:
        data = np.ascontiguousarray(value).view(np.uint8)
        return (
            f"an array of {value.dtype.str} {list(value.shape)}, crc32 {zlib.crc32(data.tobytes())}"
        )
    if type(value) not in (list, tuple, dict):
        return None
    try:
        # Only for its digest, never to be read. Version 0 is the one that looks at values alone.
        data = marshal.dumps(value, 0)
    except ValueError:
        return None
    if len(data) < LARGE:
        return None
    return f"a {type(value).__name__} of {len(value)}, crc32 {zlib.crc32(data)}"
