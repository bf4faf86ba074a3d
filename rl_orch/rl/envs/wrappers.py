"""Wrappers that a spec names, put around each copy of its environment, wherever one is made."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import gymnasium
from gymnasium import wrappers as gymnasiums

from rl_orch import plugins
from rl_orch.errors import BadInput
from rl_orch.spec.mistakes import closest
from rl_orch.spec.model import Spec
from rl_orch.spec.wrappers import INSTEAD, WrapperChoice

SingleEnv: TypeAlias = gymnasium.Env[Any, Any]
Wrap: TypeAlias = Callable[[SingleEnv], SingleEnv]


def wrappers_of(spec: Spec) -> list[Wrap]:
    """The wrappers of the spec, the innermost first; a refusal if one cannot be found."""
    return [
        partial(_wrapped, made=_class_of(chosen), chosen=chosen)
        for chosen in spec.env.chosen_wrappers
    ]


def wrapped(env: SingleEnv, spec: Spec) -> SingleEnv:
    """An environment inside the wrappers of the spec."""
    for wrap in wrappers_of(spec):
        env = wrap(env)
    return env


def _wrapped(env: SingleEnv, made: Callable[..., SingleEnv], chosen: WrapperChoice) -> SingleEnv:
    try:
        return made(env, **chosen.kwargs)
    except BadInput:
        raise
    # A wrapper is somebody else's code: making it may raise anything.
    except Exception as error:
        why = (str(error).strip().splitlines() or ["no message"])[0]
        given = f" with {dict(chosen.kwargs)}" if chosen.kwargs else ""
        what = f"which cannot be made{given}: {type(error).__name__}: {why}"
        raise _refused(chosen.name, what) from error


def _class_of(chosen: WrapperChoice) -> Callable[..., SingleEnv]:
    if not plugins.is_importable(chosen.name):
        return _gymnasiums(chosen.name)
    try:
        found = plugins.load("wrappers", chosen.name)
    except BadInput as error:
        message = f"env.wrappers has {error.message}"
        hint = INSTEAD.get(chosen.name, error.hint)
        raise BadInput(message, path="env.wrappers", hint=hint) from error
    if not callable(found):
        raise _refused(chosen.name, f"which is a {type(found).__name__}; must be a class")
    made: Callable[..., SingleEnv] = found
    return made


def _gymnasiums(name: str) -> Callable[..., SingleEnv]:
    try:
        found = getattr(gymnasiums, name, None)
    except gymnasium.error.DependencyNotInstalled as error:
        raise _refused(name, f"which lacks a dependency: {error}") from error
    if isinstance(found, type) and issubclass(found, gymnasium.Wrapper):
        return found
    near = closest(name, [known for known in gymnasiums.__all__ if known[0].isupper()])
    hint = f"Did you mean {near}? " if near else ""
    what = "which gymnasium.wrappers does not have"
    raise _refused(name, what, f"{hint}One of yours is written as `module:Class`.")


def _refused(name: str, what: str, hint: str | None = None) -> BadInput:
    return BadInput(f"env.wrappers has {name!r}, {what}", path="env.wrappers", hint=hint)
