"""Values that `flatten` wrote and that need no counterpart: numbers, text, and tuples of these.

Also where in a document an object is referred to, for sentences about it.
"""

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from rl_orch.rl.envs.state.graph import fields
from rl_orch.rl.envs.state.graph.arrays import dtype_of


class NotSimple(Exception):
    """A value that refers to an object and needs a counterpart."""


def simple(value: Any) -> Any:
    """The value for a simple one of a document; else raises `NotSimple`."""
    if not isinstance(value, list):
        return value
    match value:
        case ["float", text]:
            return struct.unpack("<d", bytes.fromhex(text))[0]
        case ["scalar", dtype, text]:
            return _scalar(dtype, bytes.fromhex(text))
        case ["bytes", text]:
            return bytes.fromhex(text)
        case ["complex", real, imaginary]:
            return complex(simple(real), simple(imaginary))
        case ["range", start, stop, step]:
            return range(start, stop, step)
        case ["tuple", None, items]:
            return tuple(simple(item) for item in items)
        case ["member", kind, name] if (member := fields.member(kind, name, None)) is not None:
            return member
    raise NotSimple(value[0])


def path_of(document: dict[str, Any], number: int, name: str) -> str:
    """The path of the first reference to an object; it begins with `name`."""
    places = dict.fromkeys(_referred_to(document["value"]), (-1, name))
    for parent, described in enumerate(document["objects"]):
        for label, value in children(described):
            for n in _referred_to(value):
                places.setdefault(n, (parent, label))
    labels: list[str] = []
    while number in places and len(labels) <= len(places):
        number, label = places[number]
        labels.append(label)
    return "".join(reversed(labels))


def children(described: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The values that an object of a document holds, labelled by place."""
    for name, value in described.get("fields", {}).items():
        yield f".{name}", value
    for index, value in enumerate(described.get("items", ())):
        yield f"[{index}]", value
    for key, value in described.get("pairs", ()):
        yield f"[{_shown(key)}]", value
    for value in described.get("set", ()):
        yield "{...}", value


def _scalar(dtype: str, data: bytes) -> Any:
    kind = dtype_of(dtype)
    return np.frombuffer(data, kind)[0] if kind.itemsize else kind.type()


def _referred_to(value: Any) -> Iterator[int]:
    if isinstance(value, list):
        if value[:1] == ["ref"]:
            yield value[1]
        else:
            for item in value:
                yield from _referred_to(item)


def _shown(key: Any) -> str:
    try:
        return repr(simple(key))
    except NotSimple:
        return "..."
