"""Plugins that a spec names as `module:Class`, held against what their kind needs before anything
is spent on a run. Runs in the child that checks, and loads no torch of its own accord."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from rl_orch import plugins
from rl_orch.errors import Problem, RlctlError
from rl_orch.spec.model import Spec
from rl_orch.spec.named_plugins import NamedPlugin, importable

GIVEN = {
    "algorithms": ("policy", "setup"),
    "collectors": ("spec", "method", "traced"),
    "encoders": ("pipeline", "feature", "generator"),
    "engines": (),
    "metrics": (),
    "observers": ("spec",),
    "vector_envs": ("spec", "num_envs"),
}
"""The positional arguments that a plugin of each kind is called with."""

STEP = ("action", "reward", "terminated", "truncated", "info")


class _Unfit(Exception):
    """A plugin that is not what its kind must be; the text says how."""


def problems(spec: Spec) -> list[Problem]:
    """The plugins that cannot be imported, or are not what their option needs.

    Trackers are not the run's: a process of their own holds them to theirs (`tasks/track.py`).
    """
    asked = (named for named in importable(spec) if named.kind in GIVEN)
    return [problem for named in asked for problem in _problems(named, spec)]


def _problems(named: NamedPlugin, spec: Spec) -> Iterator[Problem]:
    path, kind, name, _ = named
    try:
        plugin = plugins.load(kind, name)
    except RlctlError as error:
        yield Problem(path, name, f"{path} is {error.message}", error.hint)
        return
    try:
        _refuse_uncallable(named, plugin)
        if kind in _MADE:
            _MADE[kind](named, plugin, spec)
    except _Unfit as error:
        hint = f"It must be {plugins.KINDS[kind]}."
        yield Problem(path, name, f"{path} is {name!r}, {error}", hint)
    except RlctlError as error:
        yield Problem(path, name, f"{path} is {name!r}: {error.message}", error.hint)
    except (Exception, SystemExit) as error:  # It is somebody's code.
        why = f"it failed with {type(error).__name__}: {error}"
        yield Problem(path, name, f"{path} is {name!r}; when it was tried, {why}")


def _refuse_uncallable(named: NamedPlugin, plugin: Any) -> None:
    if not callable(plugin):
        raise _Unfit(f"a {type(plugin).__name__}, which cannot be called")
    if inspect.isbuiltin(plugin):
        raise _Unfit("a function that is built into Python")
    given = GIVEN[named.kind]
    arguments = named.options if named.kind == "observers" else {}
    _refuse_signature(plugin, given, arguments)


def _refuse_signature(function: Callable[..., Any], given: tuple[str, ...], named: Any) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # It has none that Python knows of.
        return
    try:
        signature.bind(*given, **named)
    except TypeError as error:
        words = ", ".join([*given, *(f"{name}=…" for name in named)])
        raise _Unfit(f"which takes {signature} and is called with ({words}): {error}") from None


def _refuse_missing(made: Any, *methods: str) -> None:
    for method in methods:
        if not callable(getattr(made, method, None)):
            raise _Unfit(f"which has no {method}()")


def _try_observer(named: NamedPlugin, plugin: Any, spec: Spec) -> None:
    made = plugin(spec, **named.options)
    if not any(callable(getattr(made, hook, None)) for hook in plugins.OBSERVER_HOOKS):
        hooks = ", ".join(plugins.OBSERVER_HOOKS)
        raise _Unfit(f"which makes a {type(made).__name__} that has none of {hooks}")


def _try_metric(_named: NamedPlugin, plugin: Any, _spec: Spec) -> None:
    made = plugin()
    _refuse_missing(made, "step", "value")
    _refuse_signature(made.step, STEP, {})


_MADE: dict[str, Callable[[NamedPlugin, Any, Spec], None]] = {
    "metrics": _try_metric,
    "observers": _try_observer,
}
"""Kinds that are cheap to make."""
