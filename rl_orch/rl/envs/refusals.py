"""Refusals of environments that could not be made: sentences that say what to do next."""

import difflib
import re
import sys
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import Any

import gymnasium
from gymnasium import error as gym_error
from gymnasium.envs.registration import find_highest_version, get_env_id, parse_env_id

from rl_orch import plugins
from rl_orch.errors import Problem, with_place
from rl_orch.rl.envs.packages import EnvPackage, package_of, package_with
from rl_orch.rl.envs.vector import full_id
from rl_orch.spec.model import Spec

EXTRAS = {"box2d": "box2d", "mujoco": "mujoco", "atari": "atari", "ale_py": "atari"}
"""What the path of an environment's code contains → the extra that brings what it needs."""

ID_FORMS = "'Name-v0', 'namespace/Name-v0' or 'module:Name-v0'"


MAKING = "making it"
SUFFIX = ".py"
VERSION = re.compile(r"-v[0-9]+$")
ALIKE = 0.75
"""How like ids are, but for their versions, of which one may be meant for the other."""


def explain(spec: Spec, error: BaseException, doing: str = MAKING) -> Problem:
    """The problem behind an error that importing or making the spec's environment raised, or
    `doing` something else with it, such as `its step 31`."""
    env_id = spec.env.id
    module, _, name = full_id(env_id).rpartition(":")
    if module.endswith(SUFFIX):
        own = f"{module.removesuffix(SUFFIX).rpartition('/')[2]}:{name}"
        return _about_id(env_id, f"{module!r} is a file, and not a module", f"Write {own!r}.")
    if isinstance(error, gym_error.DeprecatedEnv | gym_error.VersionNotFound):
        return _moved_on(env_id, module, name)
    if isinstance(error, gym_error.UnregisteredEnv):
        package = package_of(name)
        if package is not None and package.module not in sys.modules:
            return _unregistered(env_id, name, package)
        stem = VERSION.sub("", name)
        made = getattr(sys.modules.get(module), stem, None)
        if isinstance(made, type) and issubclass(made, gymnasium.Env):
            return _class_alone(env_id, module, stem, made)
        hint = _nearest(module, name) or _how_to_name(module, name)
        return _about_id(env_id, "no such environment is registered", hint)
    if isinstance(error, gym_error.DependencyNotInstalled):
        return _missing_dependency(env_id, name, error)
    if not _well_formed(module, name, env_id):
        return _about_id(env_id, f"an id looks like {ID_FORMS}", _nearest("", name.strip()))
    if module and name not in gymnasium.registry:
        return _broken_module(env_id, module, error)
    if isinstance(error, TypeError) and spec.env.kwargs and doing == MAKING:
        message = f"env.kwargs is {spec.env.kwargs}; {env_id} refuses it: {_first_line(error)}"
        return Problem("env.kwargs", spec.env.kwargs, message)
    what = f"{doing} failed: {with_place(error, _first_line(error))}"
    return _about_id(env_id, what, _newer(module, name))


def how_to_see(env_id: str, parts: Sequence[str]) -> str:
    """What to do about observations that networks cannot see, but for these parts of them."""
    module, _, name = full_id(env_id).rpartition(":")
    package = package_with(module) or package_of(name)
    if package is not None and package.module == "minigrid":
        return "Take its images alone, with env.wrappers=[minigrid.wrappers:ImgObsWrapper]."
    if parts:
        keys = ", ".join(key if key.isidentifier() else f"'{key}'" for key in parts)
        return (
            "Take what can be learned from with a wrapper: "
            f"'env.wrappers=[{{name: FilterObservation, filter_keys: [{keys}]}}]'."
        )
    return (
        "Make numbers of them in a wrapper of your own, env.wrappers=[module:Class]; "
        "see docs/custom-environments.md."
    )


def did_you_mean(word: str, words: Iterable[str]) -> str | None:
    """A question that names the nearest word, case ignored; None if none is near."""
    near = _close(word, words)
    return f"Did you mean {near!r}?" if near else None


def _about_id(env_id: str, what: str, hint: str | None) -> Problem:
    return Problem("env.id", env_id, f"env.id is {env_id!r}; {what}", hint)


def _nearest(module: str, name: str) -> str | None:
    near = _close(name, gymnasium.registry)
    if near is None or _likeness(near, name) < ALIKE:
        return None
    return f"Did you mean {_with_module(module, near)!r}?"


def _class_alone(
    env_id: str, module: str, name: str, made: type[gymnasium.Env[Any, Any]]
) -> Problem:
    """A class of a module in the place of an id that makes it."""
    what = f"{name} is a class of {module}, and no id that is registered"
    points = (f"{module}:{name}", made)
    for own, registered in gymnasium.registry.items():
        if registered.entry_point in points:
            return _about_id(env_id, what, f"Did you mean {_with_module(module, own)!r}?")
    line = f'gymnasium.register(id="{name}-v0", entry_point="{module}:{name}")'
    written = f"{module}:{name}-v0"
    return _about_id(env_id, what, f"Add to {module}: `{line}`, and write {written!r}.")


def _likeness(one: str, other: str) -> float:
    """How like two ids are but for their versions, which are like each other in all."""
    first, second = (VERSION.sub("", name.lower()) for name in (one, other))
    return difflib.SequenceMatcher(None, first, second).ratio()


def _how_to_name(module: str, name: str) -> str:
    if module:
        return f"An id looks like {ID_FORMS}; {module} is imported, and registers none like it."
    namespace = name.rpartition("/")[0]
    own = namespace if namespace.isidentifier() else "my_module"
    return (
        "One of your own is named by the module that registers it, such as "
        f"'{own}:{name}' for {own}.py. Others look like {ID_FORMS}."
    )


def _close(word: str, words: Iterable[str]) -> str | None:
    by_lower = {name.lower(): name for name in words}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1)
    return by_lower[near[0]] if near else None


def _with_module(module: str, name: str) -> str:
    return f"{module}:{name}" if module else name


def _moved_on(env_id: str, module: str, name: str) -> Problem:
    namespace, stem, version = parse_env_id(name)
    latest = find_highest_version(namespace, stem)
    newest = _with_module(module, get_env_id(namespace, stem, latest))
    if latest is not None and version is not None and version < latest:
        return _about_id(env_id, f"it has moved on to {newest!r}", f"Write {newest!r}.")
    return _about_id(env_id, "no such version is registered", f"The newest is {newest!r}.")


def _newer(module: str, name: str) -> str | None:
    namespace, stem, version = parse_env_id(name)
    latest = find_highest_version(namespace, stem)
    if latest is None or latest == version:
        return None
    return f"The newest is {_with_module(module, get_env_id(namespace, stem, latest))!r}."


def _unregistered(env_id: str, name: str, package: EnvPackage) -> Problem:
    """An id of a package that is not installed, or that nobody has imported."""
    written = f"{package.module}:{name}"
    if find_spec(package.module) is None:
        hint = f"Install it with `pip install {package.pip}`, and write {written!r}."
        return _about_id(env_id, f"it is of {package.module}, which is not installed", hint)
    what = f"{package.module}, which registers it, is not imported"
    return _about_id(env_id, what, f"Write {written!r}.")


def _missing_dependency(env_id: str, name: str, error: BaseException) -> Problem:
    registered = gymnasium.registry.get(name)
    code = str(registered.entry_point) if registered else ""
    extra = next((extra for part, extra in EXTRAS.items() if part in code), None)
    if extra is None:
        return _about_id(env_id, f"it lacks a dependency: {_first_line(error)}", None)
    hint = f"Install it with `pip install 'rl-orch[{extra}]'`."
    return _about_id(env_id, f"it needs {extra}, which is not installed", hint)


def _well_formed(module: str, name: str, env_id: str) -> bool:
    if ":" in module or (":" in env_id and not module):
        return False
    try:
        parse_env_id(name)
    except gym_error.Error:
        return False
    return True


def _broken_module(env_id: str, module: str, error: BaseException) -> Problem:
    cause = error.__cause__ or error
    if isinstance(cause, ModuleNotFoundError) and cause.name == module.partition(".")[0]:
        package = package_with(module)
        if package is not None:
            hint = f"Install it with `pip install {package.pip}`."
            return _about_id(env_id, f"{module} is not installed", hint)
        looked = ", ".join(plugins.searched_folders()) or "no folder"
        hint = (
            f"Besides what is installed, {looked} was searched. Run from the folder that holds it, "
            "or install it; a service that is asked with a token searches those of its "
            "--module-path."
        )
        return _about_id(env_id, f"there is no module {module!r}", hint)
    what = f"importing {module!r} failed: {with_place(cause, _first_line(cause))}"
    return _about_id(env_id, what, None)


def _first_line(error: BaseException) -> str:
    source = error.__cause__ if isinstance(error.__cause__, TypeError) else error
    return (str(source).strip().splitlines() or ["no message"])[0]
