"""State on classes and in modules, which no copy of an environment takes along."""

import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from rl_orch.rl.envs.state.graph.errors import Uncapturable
from rl_orch.rl.envs.state.graph.flatten import flatten

_MOST = 10_000
"""Objects behind one name; where there are more, nobody looks."""

_CODE = (FunctionType, ModuleType, type, property, classmethod, staticmethod)


def class_state(env: Any) -> dict[str, int]:
    """Digests of what the modules of an environment and its wrappers hold, and their classes.

    The names are `module.Class.name` and `module.name`. Two answers that differ name what changed.
    """
    bases = {base for layer in _layers(env) for base in type(layer).__mro__ if base is not object}
    named: dict[str, Any] = {}
    for module in sorted({base.__module__ for base in bases}):
        names = vars(sys.modules[module]) if module in sys.modules else {}
        named |= _data(module, names)
        own = {each for each in names.values() if isinstance(each, type)} | bases
        for kind in sorted(own, key=lambda kind: kind.__qualname__):
            if kind.__module__ == module:
                named |= _data(f"{module}.{kind.__qualname__}", vars(kind))
    return {name: _digest(value) for name, value in named.items()}


def _layers(env: Any) -> Iterator[Any]:
    while env is not None:
        yield env
        env = vars(env).get("env")


def _data(prefix: str, names: Any) -> dict[str, Any]:
    return {
        f"{prefix}.{name}": value
        for name, value in names.items()
        if not name.startswith("__") and not isinstance(value, _CODE)
    }


def _digest(value: Any) -> int:
    """A digest, equal for equal values; of what is opaque, its identity."""
    try:
        return flatten(value, name="it", most=_MOST).crc32()
    except Uncapturable:
        return id(value)
