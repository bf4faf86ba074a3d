"""The parts of Python objects that are state, and how they are read and written.

Attributes are reached past properties and `__setattr__`: an object is taken for what it holds.
"""

import logging
import sys
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from functools import cache
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.envs.registration import EnvSpec, WrapperSpec

from rl_orch.rl.envs.state.graph.arrays import owner
from rl_orch.rl.envs.state.graph.errors import name_of

_IGNORED = (EnvSpec, WrapperSpec, logging.Logger)
_CONTAINERS = (list, dict, set, deque, bytearray, np.ndarray)


def is_ignored(value: Any) -> bool:
    """Whether a value only describes, so that an environment may keep whatever it has."""
    return isinstance(value, _IGNORED)


def name_of_scenery(value: Any) -> str | None:
    """The name of code or of a type, which never changes; None for anything else."""
    if isinstance(value, type):
        return name_of(value)
    if isinstance(value, FunctionType) and not value.__closure__:
        return _name_of_function(value)
    if isinstance(value, BuiltinFunctionType):
        plain = value.__self__ is None or isinstance(value.__self__, ModuleType)
        return f"{value.__module__}.{value.__qualname__}" if plain else None
    if isinstance(value, ModuleType | np.ufunc):
        return value.__name__
    return str(value) if isinstance(value, np.dtype) else None


def name_of_kind(value: Any) -> str:
    """The key that must agree for an object to take the state of another."""
    if isinstance(value, FunctionType):
        return _name_of_function(value)
    if isinstance(value, deque):
        return f"{name_of(type(value))}({value.maxlen})"
    return name_of(type(value))


def is_member(value: Any) -> bool:
    """Whether a value is a member of an enumeration, Python's or an extension's."""
    return isinstance(value, Enum) or (
        isinstance(getattr(type(value), "__members__", None), dict) and hasattr(value, "name")
    )


def member(kind: str, name: str, example: Any) -> Any:
    """The member of an enumeration that this process has loaded, or None."""
    kinds = [type(example), *_subclasses(Enum)]
    enumerations = (
        each for each in kinds if name_of(each) == kind and hasattr(each, "__members__")
    )
    return next((each.__members__.get(name) for each in enumerations), None)


def has_fields(value: Any) -> bool:
    """Whether everything that an object holds can be seen: `read` then says it."""
    return isinstance(value, FunctionType | Space) or _is_plain(type(value))


def is_object(value: Any) -> bool:
    """Whether a value is an object, not a description, of a Python class."""
    plain = _is_plain(type(value)) and not isinstance(value, type | FunctionType)
    return plain and not is_ignored(value) and not is_member(value)


def read(thing: Any) -> dict[str, Any]:
    """The fields of an object by name.

    Of a space these are its generators alone: what a space contains never changes.
    """
    if isinstance(thing, FunctionType):
        return {
            name: cell.cell_contents for name, cell in _cells(thing).items() if not _is_empty(cell)
        } | vars(thing)
    fields = {
        name: slot.__get__(thing)
        for name, slot in _slots(type(thing)).items()
        if _is_set(slot, thing)
    }
    fields |= getattr(thing, "__dict__", {})
    if isinstance(thing, Space):
        return {name: value for name, value in fields.items() if _has_generator(name, value)}
    return fields


def write(thing: Any, name: str, value: Any) -> None:
    """Set a field."""
    if isinstance(thing, FunctionType) and name in _cells(thing):
        _cells(thing)[name].cell_contents = value
    elif name in _slots(type(thing)):
        _slots(type(thing))[name].__set__(thing, value)
    else:
        thing.__dict__[name] = value


def delete(thing: Any, name: str) -> None:
    """Remove a field."""
    if isinstance(thing, FunctionType) and name in _cells(thing):
        del _cells(thing)[name].cell_contents
    elif name in _slots(type(thing)):
        _slots(type(thing))[name].__delete__(thing)
    else:
        del thing.__dict__[name]


def constants(kinds: Iterable[type]) -> set[int]:
    """The ids of containers and memory on classes and in their modules."""
    classes = {base for kind in kinds for base in kind.__mro__}
    modules = [sys.modules.get(kind.__module__) for kind in classes]
    namespaces = [vars(each) for each in (*classes, *modules) if each is not None]
    values = [value for names in namespaces for value in [*names.values()]]
    held = [value for value in values if isinstance(value, _CONTAINERS)]
    return {id(owner(value) if isinstance(value, np.ndarray) else value) for value in held}


def _is_python(kind: type) -> bool:
    """Whether objects of a class hold nothing but what Python code put into them.

    A class that is not written in Python reserves memory of its own in its objects.
    """
    pointer = np.dtype(np.intp).itemsize
    pointers = bool(kind.__dictoffset__) + bool(kind.__weakrefoffset__) + len(_slots(kind))
    return kind.__basicsize__ <= object.__basicsize__ + pointer * pointers and not kind.__itemsize__


_is_plain: Callable[[Any], bool] = cache(_is_python)


def _find_slots(kind: type) -> dict[str, Any]:
    return {
        name: slot
        for base in reversed(kind.__mro__)
        for name, slot in vars(base).items()
        if isinstance(slot, MemberDescriptorType)
    }


_slots: Callable[[Any], dict[str, Any]] = cache(_find_slots)


def _is_set(slot: Any, thing: Any) -> bool:
    try:
        slot.__get__(thing)
    except AttributeError:
        return False
    return True


def _cells(function: FunctionType) -> dict[str, Any]:
    return dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))


def _is_empty(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return True
    return False


def _has_generator(name: str, value: Any) -> bool:
    if name == "_np_random" or isinstance(value, Space):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return isinstance(value, dict | list | tuple) and any(isinstance(each, Space) for each in inner)


def _name_of_function(function: FunctionType) -> str:
    line = function.__code__.co_firstlineno
    return f"{function.__module__}.{function.__qualname__}, line {line}"


def _subclasses(kind: Any) -> list[Any]:
    subclasses: list[Any] = kind.__subclasses__()
    return [*subclasses, *(each for inner in subclasses for each in _subclasses(inner))]
