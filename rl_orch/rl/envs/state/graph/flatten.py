"""`flatten`: a graph of objects as JSON and bytes. `refill.py` is the way back.

A value is itself (None, bool, int, float, str) or a list that begins with a tag; what has an
identity is ["ref", n], the n-th of the objects, so that what is shared stays shared.
"""

import math
import struct
import zlib
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MethodType
from typing import Any

import numpy as np

from rl_orch.rl.envs.state.graph import engines, fields, generators
from rl_orch.rl.envs.state.graph.arrays import Bytes, Packer, dtype_of
from rl_orch.rl.envs.state.graph.errors import Uncapturable, name_of

CONTAINERS = (list, dict, set, deque, bytearray)

_THEMSELVES = (type(None), bool, int, str)


@dataclass(frozen=True, slots=True)
class FlatGraph:
    """A graph of objects as data: a JSON document, and the bytes of all arrays."""

    document: dict[str, Any]
    data: Bytes

    def crc32(self) -> int:
        """A digest: equal for equal graphs."""
        return zlib.crc32(repr(self.document).encode(), zlib.crc32(self.data.tobytes()))


def flatten(
    root: Any, *, name: str, tables: Mapping[int, str] | None = None, most: float = math.inf
) -> FlatGraph:
    """A value and everything it refers to, copied.

    What is among the `tables`, names by id, is only named.
    Raises `Uncapturable` with the path, which begins with `name`, of the first thing that cannot
    be copied; also where there are more than `most` objects.
    """
    flattener = _Flattener(name, tables or {}, most)
    try:
        value = flattener.value(root)
        objects = flattener.objects()
    except Uncapturable as error:
        raise Uncapturable(f"{flattener.path()} {error}") from None
    # What an environment holds is somebody else's code, and looking at it may raise anything.
    except Exception as error:
        problem = f"cannot be looked at: {type(error).__name__}: {error}"
        raise Uncapturable(f"{flattener.path()} {problem}") from error
    arrays, data = flattener.arrays.pack()
    return FlatGraph({"value": value, "objects": objects, "arrays": arrays}, data)


class _Flattener:
    """Remembers which objects were met, and where each was met first."""

    def __init__(self, name: str, tables: Mapping[int, str], most: float) -> None:
        self.arrays = Packer()
        self._tables = tables
        self._most = most
        self._met: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._places: list[tuple[int, str]] = []
        self._here = (-1, name)

    def objects(self) -> list[dict[str, Any]]:
        """Every object that was met, in order; describing one may meet more."""
        described: list[dict[str, Any]] = []
        while len(described) < len(self._met):
            described.append(self._described(len(described)))
        return described

    def path(self) -> str:
        """The path of the value that was visited last."""
        parent, label = self._here
        labels = [label]
        while parent >= 0:
            parent, label = self._places[parent]
            labels.append(label)
        return "".join(reversed(labels))

    def value(self, value: Any) -> Any:
        """A value as JSON."""
        kind = type(value)
        if kind in _THEMSELVES:
            return value
        if kind is float:
            return ["float", struct.pack("<d", value).hex()] if math.isnan(value) else value
        if id(value) in self._tables:
            return ["scenery", self._tables[id(value)]]
        if kind is np.ndarray:
            return ["array", self.arrays.add(value)]
        if isinstance(value, np.generic):
            return ["scalar", dtype_of(value.dtype.str).str, value.tobytes().hex()]
        if kind is not tuple and fields.is_member(value):
            return ["member", name_of(kind), value.name]
        if isinstance(value, tuple):
            name = None if kind is tuple else name_of(kind)
            return ["tuple", name, [self.value(item) for item in value]]
        if kind in (bytes, complex, range, frozenset):
            return self._builtin(value)
        if fields.is_ignored(value):
            return ["ignored"]
        if kind is MethodType:
            return ["method", fields.name_of_kind(value.__func__), self.value(value.__self__)]
        scenery = fields.name_of_scenery(value)
        return ["ref", self._number(value)] if scenery is None else ["scenery", scenery]

    def _builtin(self, value: Any) -> list[Any]:
        if isinstance(value, bytes):
            return ["bytes", value.hex()]
        if isinstance(value, complex):
            return ["complex", self.value(value.real), self.value(value.imag)]
        if isinstance(value, range):
            return ["range", value.start, value.stop, value.step]
        return ["frozenset", [self.value(item) for item in _in_order(value)]]

    def _number(self, thing: Any) -> int:
        number = self._numbers.setdefault(id(thing), len(self._met))
        if number == len(self._met):
            if number >= self._most:
                raise Uncapturable(f"is one of more than {self._most} objects")
            self._met.append(thing)
            self._places.append(self._here)
        return number

    def _described(self, number: int) -> dict[str, Any]:
        thing, self._here = self._met[number], self._places[number]
        kind = fields.name_of_kind(thing)
        if isinstance(thing, CONTAINERS):
            return {"kind": kind} | self._container(number, thing)
        if isinstance(thing, generators.KINDS) and generators.is_known(thing):
            return {"kind": kind, "generator": self._plain(generators.state_of(thing))}
        engine = engines.state_of(thing)
        if engine is not None:
            return {"kind": kind, "engine": self._plain(engine)}
        if not fields.has_fields(thing):
            raise Uncapturable(f"is a {kind}")
        return {"kind": kind, "fields": self._fields(number, fields.read(thing))}

    def _container(self, number: int, thing: Any) -> dict[str, Any]:
        described: dict[str, Any] = {}
        if isinstance(thing, dict):
            described["pairs"] = [
                [self.value(key), self._at(number, f"[{key!r}]", item)]
                for key, item in thing.items()
            ]
        elif isinstance(thing, bytearray):
            described["bytes"] = thing.hex()
        elif isinstance(thing, set):
            described["set"] = [self._at(number, "{...}", item) for item in _in_order(thing)]
        else:
            described["items"] = [
                self._at(number, f"[{index}]", item) for index, item in enumerate(thing)
            ]
        own = getattr(thing, "__dict__", None)
        return described | ({"fields": self._fields(number, own)} if own else {})

    def _fields(self, number: int, values: dict[str, Any]) -> dict[str, Any]:
        """Fields in the order of their names: that of attributes depends on which came first."""
        return {name: self._at(number, f".{name}", values[name]) for name in sorted(values)}

    def _plain(self, value: Any) -> Any:
        """A value in which a dictionary has no identity: nobody else can refer to it."""
        if isinstance(value, dict):
            return ["dict", [[key, self._plain(item)] for key, item in value.items()]]
        return self.value(value)

    def _at(self, number: int, label: str, value: Any) -> Any:
        self._here = (number, label)
        return self.value(value)


def _in_order(members: Iterable[Any]) -> list[Any]:
    """The members of a set in its own order; if a set that is made of them anew has the same.

    Which order a set has depends on the hashes of its members and on all that was ever in it.
    """
    ordered = list(members)
    if not all(map(_hashes_by_value, ordered)) or [*set(ordered)] != ordered:
        raise Uncapturable("is a set whose order cannot be made again")
    return ordered


def _hashes_by_value(value: Any) -> bool:
    if isinstance(value, tuple | frozenset):
        return all(map(_hashes_by_value, value))
    return isinstance(value, int | float | str | bytes | np.number)
