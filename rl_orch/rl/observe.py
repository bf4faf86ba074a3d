"""The `Observer` seam: hooks around collect, update, evaluate and save; and the finite checks.

An observer hears and may raise; it changes nothing. One that has no hook of a name is not called.
A `Callback` is one in the field's words, which may also report metrics and end the training.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rl_orch import plugins
from rl_orch.errors import Diverged, RlctlError
from rl_orch.records import EvalReport
from rl_orch.rl.data.batch import ARRAY_FIELDS, Batch, mapped, on_host, rows_of
from rl_orch.rl.snapshot import TrainingSnapshot
from rl_orch.spec.groups import ObserverChoice
from rl_orch.spec.model import Spec

Phase: TypeAlias = Literal["collect", "update", "evaluate", "save"]


class Observer(Protocol):
    """A callback of the training loop. `step` is the clock of the training at that moment."""

    def before(self, phase: Phase, step: int) -> None:
        """A phase begins."""
        return None

    def collected(self, batch: Batch, step: int) -> None:
        """Experience was collected, and is about to be learned from."""
        return None

    def updated(self, metrics: Mapping[str, float], step: int) -> None:
        """The learner has learned, or, without metrics, has not."""
        return None

    def evaluated(self, report: EvalReport, step: int) -> None:
        """The policy was evaluated, and is about to be saved."""
        return None

    def saved(self, snapshot: TrainingSnapshot, step: int) -> None:
        """A snapshot is with the recorder; a callback that logs or stops here is refused."""
        return None


class Callback(Observer):
    """An observer with the hooks of the field: `on_step`, `on_update` and `on_evaluation`.

    Each may call `log` and `stop`. What a callback remembers is `state()`, plain data as JSON has
    it, which `load_state` takes back: without them, a run with one that remembers is resumed as
    `approximate`, and says so. Arguments that a spec gives are keywords besides the spec:
    `def __init__(self, spec, threshold=0.5)`, which begins with `super().__init__(spec)`.
    """

    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def reconfigure(self, spec: Spec) -> None:
        """Go on by the options of that spec, some of which were changed as the run goes on."""
        self.spec = spec

    def on_step(self, batch: Batch, step: int) -> None:
        """`rollout.steps` steps of every copy were taken; the batch has all of them."""
        return None

    def on_update(self, metrics: Mapping[str, float], step: int) -> None:
        """The learner has learned; its metrics are there, or none where it only collects yet."""
        return None

    def on_evaluation(self, report: EvalReport, step: int) -> None:
        """The policy was evaluated."""
        return None

    def log(self, name: str, value: float) -> None:
        """Report a metric at the present step, as losses are; it is on every screen and tracker."""
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
            raise _refusal(
                self,
                f"logs a metric by the name {name!r:.80}; must be printable text of at most "
                f"{LONGEST_NAME} characters",
            )
        try:
            number = float(value if not isinstance(value, str | bytes) else "")
        except (TypeError, ValueError, RuntimeError):
            raise _refusal(self, f"logs {name!r} as {value!r:.80}; must be a number") from None
        requests_of(self).metrics.append((name, number))

    def stop(self, why: str) -> None:
        """End the training as if its budget ended here: it is evaluated, judged and registered."""
        if not isinstance(why, str) or (not why.isascii() and any(map(_is_surrogate, why))):
            raise _refusal(self, f"ends the training with {why!r:.80}; must be text")
        requests_of(self).stop = why

    def collected(self, batch: Batch, step: int) -> None:
        """As `on_step`."""
        self.on_step(batch, step)

    def updated(self, metrics: Mapping[str, float], step: int) -> None:
        """As `on_update`."""
        self.on_update(metrics, step)

    def evaluated(self, report: EvalReport, step: int) -> None:
        """As `on_evaluation`."""
        self.on_evaluation(report, step)


@dataclass(slots=True)
class CallbackRequests:
    """Metrics that a callback reports, and why it ends the training, if it does."""

    metrics: list[tuple[str, float]] = field(default_factory=list)
    stop: str | None = None


REQUESTS = "_requests"


def requests_of(callback: Any) -> CallbackRequests:
    """The requests of a callback that nobody has heeded yet; none of any other observer."""
    if not isinstance(callback, Callback):
        return CallbackRequests()
    requests: CallbackRequests = vars(callback).setdefault(REQUESTS, CallbackRequests())
    return requests


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


class FiniteNumbers(Observer):
    """Raises `Diverged` on the first number that nothing could be learned from."""

    def __init__(self, steps: int) -> None:
        """`steps` are those of each copy in a batch."""
        self._steps = steps

    def collected(self, batch: Batch, step: int) -> None:
        """Observations and rewards; of what follows a row, that which is no row itself."""
        ends = self._ends(batch)
        assert batch.next_observations is not None
        finals = rows_of(batch.next_observations, ends)
        if not all(map(_finite, (batch.observations, batch.rewards, finals))):
            raise self._refusal(batch, ends, step)

    def updated(self, metrics: Mapping[str, float], step: int) -> None:
        """All that an update reports; but what is charted, rates and schedules, teaches nothing."""
        if all(map(math.isfinite, metrics.values())):
            return
        for name, value in metrics.items():
            if not name.startswith("charts/") and not math.isfinite(value):
                raise Diverged(
                    f"{name} became {value} in the update at step {step}",
                    hint="Lower train.lr, set train.max_grad_norm, or normalise observations.",
                )

    def _ends(self, batch: Batch) -> NDArray[np.bool_]:
        """(B,): where an episode or the rollout ends."""
        ends = on_host(batch.dones).copy()
        ends[self._steps - 1 :: self._steps] = True
        return ends

    def _refusal(self, batch: Batch, ends: NDArray[np.bool_], step: int) -> Diverged:
        """The error that names the first of them: observations before rewards before what ends."""

        def by_time(column: Any) -> NDArray[Any]:
            return np.swapaxes(column.reshape(-1, self._steps, *column.shape[1:]), 0, 1)

        valid, dones = by_time(on_host(batch.column("valid"))), by_time(on_host(batch.dones))
        before = max(step - int(valid.sum()), 0)
        assert batch.next_observations is not None
        kept = mapped(batch.next_observations, lambda c: np.where(_wide(ends, c), c, 0))
        columns = (("observation", batch.observations, 0), ("reward", batch.rewards, 1))
        for kind, column, late in (*columns, ("final observation", kept, 1)):
            for what, values in _parts(kind, column):
                timed = by_time(values)
                for t, copy, *_ in np.argwhere(~np.isfinite(timed)).tolist():
                    if kind.startswith("final") and not dones[t, copy]:
                        what = what.removeprefix("final ")
                    at = before + int(valid[: t + late].sum())
                    return Diverged(
                        f"the environment gave a non-finite {what} at step {at}, copy {copy}: "
                        f"{timed[t, copy]}",
                        step=at,
                    )
        raise AssertionError("every number is finite")


class _Named(Observer):
    """A plugin's observer, whose failures name it. `key` is what its state is kept by."""

    def __init__(self, chosen: ObserverChoice, spec: Spec, key: str) -> None:
        name, make = chosen.name, plugins.load("observers", chosen.name)
        made = _telling(name, "__init__", make)(spec, **chosen.kwargs)
        self.name, self.made, self.key = name, made, key
        for hook in HOOKS:
            if _hears(made, hook):
                heard = _protected(hook, getattr(made, hook))
                setattr(self, hook, _telling(name, hook, heard))
        self.has_state = all(callable(getattr(made, f, None)) for f in ("state", "load_state"))
        self._before = None if self.has_state else _attributes(made)

    def reconfigure(self, spec: Spec) -> None:
        """Give it another spec: by its `reconfigure`, or as its attribute of that name."""
        forgetful = self.is_forgetful
        if callable(hear := getattr(self.made, "reconfigure", None)):
            _telling(self.name, "reconfigure", hear)(spec)
        elif isinstance(getattr(self.made, "spec", None), Spec):
            _telling(self.name, "reconfigure", setattr)(self.made, "spec", spec)
        if not forgetful and not self.has_state:
            self._before = _attributes(self.made)

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
            return self._before is None or bool(self._before != _attributes(self.made))
        except Exception:  # Comparing is the objects' own code; arrays cannot say yes or no.
            return True


HOOKS = plugins.OBSERVER_HOOKS

FIELD_HOOKS = {"collected": "on_step", "updated": "on_update", "evaluated": "on_evaluation"}
"""The hooks of a callback, by those of an observer that call them."""

LONGEST_NAME = 200
"""Characters in the name of a metric."""

MOST_STATE_BYTES = 32 << 20
"""Of all observers' states together, as JSON: checkpoints hold them in their document."""

DEEPEST_STATE = 100


def _hooks(observers: Sequence[Any], name: str) -> tuple[Callable[..., None], ...]:
    return tuple(getattr(each, name) for each in observers if _hears(each, name))


def _hears(observer: Any, name: str) -> bool:
    own = _function(observer, name)
    if name in FIELD_HOOKS and own is getattr(Callback, name):
        return _function(observer, FIELD_HOOKS[name]) is not getattr(Callback, FIELD_HOOKS[name])
    return own is not None and own is not getattr(Observer, name)


def _function(observer: Any, name: str) -> Any:
    own = getattr(observer, name, None)
    return getattr(own, "__func__", own)


def _attributes(made: Any) -> dict[str, Any] | None:
    """A copy of what an object has, in slots too; None where something cannot be copied."""
    try:
        return deepcopy(held(made))
    except Exception:  # Copying is the objects' own code.
        return None


def held(made: Any) -> dict[str, Any]:
    """What an observer has, in slots too, but for its spec."""
    own = {name: getattr(made, name) for name in _slots(type(made)) if hasattr(made, name)}
    own |= getattr(made, "__dict__", {})
    return {name: value for name, value in own.items() if name not in (REQUESTS, "spec")}


def _slots(kind: type) -> Iterator[str]:
    """The attributes of a class for which its instances have no dictionary."""
    for each in kind.__mro__:
        slots = vars(each).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.endswith("__"):
                yield f"_{each.__name__.lstrip('_')}{name}" if name.startswith("__") else name


def _telling(name: str, hook: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function, updated=())
    def call(*given: Any, **named: Any) -> Any:
        try:
            return function(*given, **named)
        except RlctlError:
            raise
        except Exception as error:
            kind = type(error).__name__
            raise RlctlError(
                f"the observer {name!r} failed in {hook!r}: {kind}: {error}",
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


def _is_surrogate(letter: str) -> bool:
    return "\ud800" <= letter <= "\udfff"


def _refusal(callback: Callback, why: str) -> RlctlError:
    kind = type(callback)
    name = f"{kind.__module__}:{kind.__qualname__}"
    return RlctlError(f"the callback {name} {why}", path="train.observers")


def _parts(what: str, column: Any) -> Iterator[tuple[str, NDArray[Any]]]:
    """The arrays of numbers that may not be finite, and what to call each."""
    if isinstance(column, Mapping):
        for name, part in column.items():
            yield from _parts(f"{what} {name!r}", part)
    elif (array := on_host(column)).dtype.kind == "f":
        yield what, array


def _finite(column: Any) -> bool:
    return all(np.isfinite(array).all() for _, array in _parts("", column))


def _wide(flags: NDArray[np.bool_], column: Any) -> NDArray[np.bool_]:
    return flags.reshape(-1, *[1] * (column.ndim - 1))
