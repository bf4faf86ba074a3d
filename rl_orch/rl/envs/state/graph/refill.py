"""`refill`: a flattened graph of objects, put into one that was made alike.

Objects are never made from names in the data: those that the counterpart has are filled. Only
containers, arrays and random generators are made anew where it has none.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any

from rl_orch.rl.envs.state.graph import engines, fields, generators, values
from rl_orch.rl.envs.state.graph.arrays import Unpacker
from rl_orch.rl.envs.state.graph.errors import Uncapturable, name_of
from rl_orch.rl.envs.state.graph.flatten import FlatGraph
from rl_orch.rl.envs.state.graph.pairing import Pairing

_NEW: dict[str, Callable[[], Any]] = {
    name_of(kind): kind for kind in (list, dict, set, bytearray, OrderedDict, Counter)
}
_DEQUE = name_of(deque)
_ABSENT = object()


def refill(
    flat: FlatGraph, counterpart: Any = None, *, name: str, tables: Mapping[int, str] | None = None
) -> Any:
    """The value that was flattened; what of it the counterpart has is the same object, filled.

    `tables` are those of the counterpart: what was named only must be there under that name.
    Raises `Uncapturable` with the path, which begins with `name`, of the first thing that the
    counterpart lacks.
    """
    return _Refiller(flat, counterpart, name, tables or {}).filled()


class _Refiller:
    """Fills each object of a document once all of them are there."""

    def __init__(
        self, flat: FlatGraph, counterpart: Any, name: str, tables: Mapping[int, str]
    ) -> None:
        self._document = flat.document
        self._objects: list[dict[str, Any]] = flat.document["objects"]
        self._arrays = Unpacker(flat.document["arrays"], flat.data)
        self._counterpart = counterpart
        self._tables = tables
        self._here = (-1, name)
        self._name = name
        self._things: dict[int, Any] = {}

    def filled(self) -> Any:
        """The root."""
        try:
            pairing = Pairing(self._objects, self._arrays)
            pairing.walk(self._document["value"], self._counterpart)
            self._things = pairing.resolve()
            for number, described in enumerate(self._objects):
                self._here = (number, "")
                self._things[number] = self._existing(number, described)
            for number, described in enumerate(self._objects):
                self._fill(number, described, self._things[number])
            self._here = (-1, self._name)
            return self._value(self._document["value"], self._counterpart)
        except Uncapturable as error:
            raise Uncapturable(f"{self._path()} {error}") from None
        # The counterpart is somebody else's code, of another version perhaps.
        except Exception as error:
            problem = f"cannot be filled: {type(error).__name__}: {error}"
            raise Uncapturable(f"{self._path()} {problem}") from error

    def _path(self) -> str:
        number, label = self._here
        return values.path_of(self._document, number, self._name) + label

    def _existing(self, number: int, described: dict[str, Any]) -> Any:
        """The counterpart of an object, or a new one if it may be made."""
        kind, thing = described["kind"], self._things.get(number, _ABSENT)
        if "generator" in described:
            state = self._value(described["generator"], None)
            if thing is _ABSENT or not generators.can_take(thing, state):
                return generators.create(kind.rpartition(".")[2], state)
        if thing is not _ABSENT:
            return thing
        if kind in _NEW:
            return _NEW[kind]()
        if kind.startswith(f"{_DEQUE}("):
            most = kind[len(_DEQUE) + 1 : -1]
            return deque(maxlen=None if most == "None" else int(most))
        raise Uncapturable(f"is a {kind}, which a new copy of the environment does not have")

    def _fill(self, number: int, described: dict[str, Any], thing: Any) -> None:
        self._here = (number, "")
        if "generator" in described:
            generators.set_state(thing, self._value(described["generator"], None))
        if "engine" in described:
            engines.set_state(thing, self._value(described["engine"], None))
        if "fields" in described:
            self._fill_fields(number, described["fields"], thing)
        if "items" in described:
            self._fill_items(number, described["items"], thing)
        if "pairs" in described:
            self._fill_pairs(number, described["pairs"], thing)
        if "set" in described:
            members = [self._value(value, None) for value in described["set"]]
            thing.clear()
            thing.update(members)
        if "bytes" in described:
            thing[:] = bytes.fromhex(described["bytes"])

    def _fill_fields(self, number: int, described: dict[str, Any], thing: Any) -> None:
        present = fields.read(thing)
        for name in present.keys() - described.keys():
            fields.delete(thing, name)
        for name, value in described.items():
            self._here = (number, f".{name}")
            before = present.get(name, _ABSENT)
            if value == ["ignored"]:
                continue
            after = self._value(value, before)
            if after is not before:
                fields.write(thing, name, after)

    def _fill_items(self, number: int, described: list[Any], thing: Any) -> None:
        present = [*thing]
        items = []
        for index, value in enumerate(described):
            self._here = (number, f"[{index}]")
            before = present[index] if index < len(present) else _ABSENT
            items.append(self._value(value, before))
        thing.clear()
        thing.extend(items)

    def _fill_pairs(self, number: int, described: list[Any], thing: Any) -> None:
        present = dict(thing)
        pairs = []
        for key, value in described:
            self._here = (number, "")
            own_key = self._value(key, _ABSENT)
            self._here = (number, f"[{own_key!r}]")
            pairs.append((own_key, self._value(value, present.get(own_key, _ABSENT))))
        thing.clear()
        for own_key, item in pairs:
            thing[own_key] = item

    def _value(self, value: Any, before: Any) -> Any:
        """The value for one of the document; `before` is in its place now."""
        if not isinstance(value, list):
            return value
        match value:
            case ["ref", number]:
                return self._things[number]
            case ["array", number]:
                return self._arrays.get(number)
            case ["tuple", kind, items]:
                return self._tuple(kind, items, before)
            case ["frozenset", items]:
                return frozenset(self._value(item, _ABSENT) for item in items)
            case ["dict", pairs]:
                return {key: self._value(item, None) for key, item in pairs}
            case ["member", kind, name]:
                return self._present(fields.member(kind, name, before), f"{kind}.{name}")
            case ["ignored"] if before is not _ABSENT:
                return before
            case ["scenery", name]:
                own = self._tables.get(id(before)) or fields.name_of_scenery(before)
                return self._present(before if own == name else None, name)
            case ["method", name, bound]:
                return self._method(name, bound, before)
        try:
            return values.simple(value)
        except values.NotSimple as error:
            raise Uncapturable(f"holds {error}, which a new copy does not have") from None

    def _tuple(self, kind: str | None, items: list[Any], before: Any) -> tuple[Any, ...]:
        present = before if isinstance(before, tuple) else ()
        padded = (*present, *[_ABSENT] * (len(items) - len(present)))
        inner = [self._value(*pair) for pair in zip(items, padded, strict=False)]
        if kind is None:
            return tuple(inner)
        if name_of(type(before)) != kind:
            raise Uncapturable(f"is a {kind}, which a new copy of the environment does not have")
        return tuple.__new__(type(before), inner)

    def _method(self, name: str, bound: Any, before: Any) -> Any:
        function = before.__func__ if isinstance(before, MethodType) else None
        same = function is not None and fields.name_of_kind(function) == name
        self._present(function if same else None, name)
        return MethodType(before.__func__, self._value(bound, before.__self__))

    def _present(self, thing: Any, name: str) -> Any:
        if thing is None:
            raise Uncapturable(
                f"was {name}, which a new copy of the environment does not have there"
            )
        return thing
