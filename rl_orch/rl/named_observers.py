"""`Observers`: those that a spec names, made, protected from each other, and remembered.

What an observer is, is in `observe.py`.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np

from rl_orch import plugins
from rl_orch.errors import RlctlError, with_place
from rl_orch.rl.data.batch import ARRAY_FIELDS, Batch, mapped
from rl_orch.rl.finite_numbers import FiniteNumbers
from rl_orch.rl.observe import FIELD_HOOKS, REQUESTS, Callback, CallbackRequests, Observer
from rl_orch.rl.snapshot import TrainingSnapshot
from rl_orch.spec.groups import ObserverChoice
from rl_orch.spec.model import Spec

HOOKS = plugins.OBSERVER_HOOKS


MOST_STATE_BYTES = 32 << 20
"""Of all observers' states together, as JSON: checkpoints hold them in their document."""


DEEPEST_STATE = 100

PLAIN = (str, int, float, tuple, list, dict, set, deque, np.ndarray)
"""Values in a class that an observer may remember something by."""


class Observers:
    """The hooks of several observers, in their order; those that do nothing are left out."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.named = [each for each in observers if isinstance(each, _Named)]
        self.before = _hooks(observers, "before")
        self.collected = _hooks(observers, "collected")
        self.updated = _hooks(observers, "updated")
        self.evaluated = _hooks(observers, "evaluated")
        self.saved = _hooks(observers, "saved")

    def requests(self) -> Iterator[tuple[str, CallbackRequests]]:
        """New requests of callbacks, by the name of each."""
        for each in self.named:
            if isinstance(each.made, Callback) and (asked := vars(each.made).pop(REQUESTS, None)):
                yield each.name, asked

    def refuse_requests(self) -> None:
        """Raise where a callback has asked for something that no snapshot would know of."""
        for name, _ in self.requests():
            raise RlctlError(
                f"the observer {name!r} would log or stop while a snapshot is saved, which could "
                "not know of it: a resumed run would go on otherwise",
                path="train.observers",
                hint="Do so in another hook; before('save', …) is the last that is in a snapshot.",
            )

    def reconfigure(self, spec: Spec) -> None:
        """Let each go on by other options, as those of a resumed training would."""
        for each in self.named:
            each.reconfigure(spec)

    def hearing(self, *hooks: str) -> list[str]:
        """The names of those that have any of these hooks."""
        return [each.name for each in self.named if any(_hears(each, hook) for hook in hooks)]

    def state(self) -> dict[str, Any]:
        """What each remembers that can say it, by its name."""
        states, room = {}, MOST_STATE_BYTES
        for each in self.named:
            if each.has_state:
                states[each.key], size = each.state(room)
                room -= size
        return states

    def load_state(self, states: Mapping[str, Any]) -> None:
        """Let each remember what it once said."""
        for each in self.named:
            if each.has_state and each.key in states:
                _telling(each.name, "load_state", each.made.load_state)(states[each.key])

    def forgetful(self) -> list[str]:
        """The names of those that remember something by now, and cannot say what."""
        return [each.name for each in self.named if each.is_forgetful]


def observers_of(spec: Spec) -> list[Observer]:
    """The finite checks, and the observers that a spec names."""
    named: list[_Named] = []
    for chosen in spec.train.chosen_observers:
        same = sum(each.name == chosen.name for each in named)
        named.append(_Named(chosen, spec, f"{chosen.name}#{same + 1}" if same else chosen.name))
    return [FiniteNumbers(spec.rollout.steps), *named]


class _Named(Observer):
    """A plugin's observer, whose failures name it. `key` is what its state is kept by."""

    def __init__(self, chosen: ObserverChoice, spec: Spec, key: str) -> None:
        name, make = chosen.name, plugins.load("observers", chosen.name)
        made = _telling(name, "__init__", make)(spec, **chosen.kwargs)
        self.name, self.made, self.key = name, made, key
        for hook in HOOKS:
            if _hears(made, hook):
                heard = _protected(hook, getattr(made, hook))
                setattr(self, hook, _telling(name, _written(made, hook), heard))
        self.has_state = all(callable(getattr(made, f, None)) for f in ("state", "load_state"))
        self._before = None if self.has_state else _copied(made)

    def reconfigure(self, spec: Spec) -> None:
        """Give it another spec: by its `reconfigure`, or as its attribute of that name."""
        forgetful = self.is_forgetful
        if callable(hear := getattr(self.made, "reconfigure", None)):
            _telling(self.name, "reconfigure", hear)(spec)
        elif isinstance(getattr(self.made, "spec", None), Spec):
            _telling(self.name, "reconfigure", setattr)(self.made, "spec", spec)
        if not forgetful and not self.has_state:
            self._before = _copied(self.made)

    def state(self, room: int) -> tuple[Any, int]:
        """What it remembers, as JSON has it, and its size, of which there is room for so much."""
        told = _telling(self.name, "state", self.made.state)()
        try:
            text = json.dumps(told, allow_nan=False, ensure_ascii=False).encode()
            state = json.loads(text)
        except RecursionError:
            raise self._unkept(f"is nested deeper than {DEEPEST_STATE} levels") from None
        except (TypeError, ValueError) as error:
            raise self._unkept(f"JSON cannot hold: {error}") from error
        if len(text) > room:
            raise self._unkept(
                f"has {len(text):,} bytes as JSON; those of all observers may have "
                f"{MOST_STATE_BYTES:,} together"
            )
        if _is_deep(state):
            raise self._unkept(f"is nested deeper than {DEEPEST_STATE} levels")
        return state, len(text)

    def _unkept(self, why: str) -> RlctlError:
        return RlctlError(
            f"the observer {self.name!r} has a state that {why}",
            path="train.observers",
            hint="Give plain numbers, text, lists and dicts; an array as a list.",
        )

    @property
    def is_forgetful(self) -> bool:
        """Whether it has changed since it was made, and cannot say how."""
        if self.has_state:
            return False
        try:
            return self._before is None or bool(self._before != _copied(self.made))
        except Exception:  # Comparing is the objects' own code; arrays cannot say yes or no.
            return True


def _hooks(observers: Sequence[Any], name: str) -> tuple[Callable[..., None], ...]:
    return tuple(getattr(each, name) for each in observers if _hears(each, name))


def _hears(observer: Any, name: str) -> bool:
    own = _function(observer, name)
    if name in FIELD_HOOKS and own is getattr(Callback, name):
        return _function(observer, FIELD_HOOKS[name]) is not getattr(Callback, FIELD_HOOKS[name])
    return own is not None and own is not getattr(Observer, name)


def _written(observer: Any, name: str) -> str:
    """A hook by the name that its author gave it."""
    by_callback = name in FIELD_HOOKS and _function(observer, name) is getattr(Callback, name)
    return FIELD_HOOKS[name] if by_callback else name


def _function(observer: Any, name: str) -> Any:
    own = getattr(observer, name, None)
    return getattr(own, "__func__", own)


def _copied(made: Any) -> dict[str, Any] | None:
    """A copy of what an object has, in slots too; None where something cannot be copied."""
    try:
        return deepcopy(held(made))
    except Exception:  # Copying is the objects' own code.
        return None


def held(made: Any) -> dict[str, Any]:
    """What an observer has, as plain data of its class too, but for its spec."""
    own = _shared(type(made)) | attributes(made)
    return {name: value for name, value in own.items() if name not in (REQUESTS, "spec")}


def attributes(made: Any) -> dict[str, Any]:
    """The attributes of an object, in slots too."""
    state = object.__getstate__(made)
    parts = state if isinstance(state, tuple) else (state,)
    return {name: value for part in parts for name, value in (part or {}).items()}


def _shared(kind: type) -> dict[str, Any]:
    """The numbers, texts and containers that stand in a class, and those that it inherits."""
    named = {name: value for each in reversed(kind.__mro__) for name, value in vars(each).items()}
    return {n: v for n, v in named.items() if isinstance(v, PLAIN) and not n.startswith("__")}


def _telling(name: str, hook: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function, updated=())
    def call(*given: Any, **named: Any) -> Any:
        try:
            return function(*given, **named)
        except RlctlError:
            raise
        except Exception as error:
            raise RlctlError(
                f"the observer {name!r} failed in {hook!r}: {with_place(error)}",
                path="train.observers",
                hint="Mend it, or leave it out of train.observers.",
            ) from error

    return call


def _protected(hook: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The hook, which hears what it cannot write to: views of arrays, a copy of metrics."""
    protect: Mapping[str, Callable[[Any], Any]]
    protect = {"collected": _read_only_batch, "updated": dict, "saved": _read_only_snapshot}
    if hook not in protect:
        return function

    def hear(given: Any, step: int) -> Any:
        return function(protect[hook](given), step)

    return hear


def _read_only_batch(batch: Batch) -> Batch:
    columns = {name: getattr(batch, name) for name in (*ARRAY_FIELDS, "extras")}
    held = {name: mapped(c, _read_only) for name, c in columns.items() if c is not None}
    return replace(batch, **held)


def _read_only_snapshot(snapshot: TrainingSnapshot) -> TrainingSnapshot:
    return replace(snapshot, tensors=mapped(snapshot.tensors, _read_only))


def _read_only(array: Any) -> Any:
    """A view that cannot be written to; tensors have none such."""
    if not isinstance(array, np.ndarray):
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def _is_deep(tree: Any) -> bool:
    level = [tree] if isinstance(tree, dict | list) else []
    for _ in range(DEEPEST_STATE):
        nodes = (node.values() if isinstance(node, dict) else node for node in level)
        level = [part for node in nodes for part in node if isinstance(part, dict | list)]
        if not level:
            return False
    return True
