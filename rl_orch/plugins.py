"""Modules that are loaded only when asked for by name: plugins of anybody's, and parts of ours.

A package adds an algorithm with an entry point in the group `rl_orch.algorithms`, a tracker with
one in `rl_orch.trackers`, which a spec then names. Our own are found the same way. What each kind
must provide is the protocol named in `KINDS`. Without a package, `module:Class` names one wherever
a name does, but for the kinds in `INSTALLED`; its module is found as those of environments are.

Modules of ours are named by strings here alone, in `KINDS`, `PARTS`, `COMMANDS`, `PROGRAMS` and
`PRELOADED`; a test holds every other module to that.
"""

import difflib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, distributions, entry_points
from pkgutil import walk_packages
from typing import Any

from rl_orch.errors import BadInput, NotFound

KINDS = {
    "algorithms": "rl_orch.rl.learn.learner.Algorithm",
    "collectors": "a callable (spec, method, traced) -> rl_orch.rl.collect.collector.Collector",
    "encoders": "a callable (pipeline, feature, generator) -> rl_orch.rl.policies.nets.Net",
    "engines": "rl_orch.rl.learn.engine.Engine",
    "metrics": "rl_orch.rl.collect.episodes.Metric",
    "observers": "a callable (spec, **arguments) -> rl_orch.rl.observe.Observer",
    "runners": "rl_orch.core.ports.Runner",
    "trackers": "rl_orch.io.trackers.pump.Tracker",
    "vector_envs": "a callable (spec, num_envs) -> gymnasium.vector.VectorEnv",
}

INSTALLED = frozenset({"runners"})
"""Kinds of which no `module:Class` is imported: they work inside whoever supervises, and what they
declare is read before it is known whether the one who names them may."""

OWN = {
    "trackers": "tensorboard is there; another one is a class of yours, named as module:Class: "
    "docs/extending.md has one in 25 lines.",
}
"""What to do where a plugin of a kind is looked for that many people have elsewhere."""

OBSERVER_HOOKS = ("before", "collected", "updated", "evaluated", "saved")
"""What an observer may have, and must have one of."""

PARTS = {
    "client": "rl_orch.client",
    "client jobs": "rl_orch.client.jobs",
    "client probe": "rl_orch.client.probe",
    "encoder check": "rl_orch.worker.checks.encoder",
    "group summary": "rl_orch.cli.views.group_summary",
    "job kinds": "rl_orch.core.jobs.kinds",
    "kernel compiler": "rl_orch.rl.jit",
    "kernel layers": "rl_orch.rl.kernels.precompile",
    "metric index": "rl_orch.io.metrics.index",
    "native dynamics": "rl_orch.rl.envs.native.dynamics",
    "orchestrator": "rl_orch.orchestrator",
    "policy loading": "rl_orch.interactive.policy",
    "precompile": "rl_orch.worker.warm.precompile",
    "preflight": "rl_orch.core.preflight.facts",
    "run summary": "rl_orch.cli.views.run_summary",
    "service": "rl_orch.cli.service",
    "tensorboard files": "rl_orch.io.trackers.tensorboard",
    "warm start check": "rl_orch.worker.checks.warm_start",
}
"""Parts that most processes never need, and that would make every one of them wait."""

COMMANDS = "rl_orch.cli.commands"

PROGRAMS = {
    "assess": "rl_orch.worker.tasks.assess",
    "check device": "rl_orch.worker.checks.device",
    "check environment": "rl_orch.worker.checks.environment",
    "check served policy": "rl_orch.worker.checks.served_policy",
    "evaluate": "rl_orch.worker.evaluate",
    "export": "rl_orch.worker.tasks.export",
    "fit foreign": "rl_orch.worker.tasks.fit_foreign",
    "gather": "rl_orch.worker.tasks.gather",
    "infer": "rl_orch.worker.tasks.infer",
    "job": "rl_orch.runners.job",
    "play": "rl_orch.worker.tasks.play",
    "profile": "rl_orch.worker.tasks.profile",
    "read foreign": "rl_orch.worker.tasks.read_foreign",
    "run process": "rl_orch.io.processes.run_process",
    "standby": "rl_orch.worker.warm.standby",
    "subreaper": "rl_orch.io.processes.subreaper",
    "track": "rl_orch.worker.tasks.track",
    "train": "rl_orch.worker.train",
    "train external": "rl_orch.worker.external.train",
}
"""Modules that are run as processes of their own, by `python -m`."""


PRELOADED = (
    "rl_orch.rl",
    "rl_orch.worker.attempt",
    "gymnasium.envs.classic_control",
)
"""What the program `train` loads, but not itself: it is run as the main module."""


_PROVIDED: dict[tuple[str, str], Any] = {}


_IMPORTABLE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_importable(name: str) -> bool:
    """Whether a name is of the form `module:Class`, and so of code that need not be installed."""
    return _IMPORTABLE.fullmatch(name) is not None


def names(kind: str) -> list[str]:
    """The names that can be loaded, ours and those of installed packages."""
    installed = {entry.name for entry in entry_points(group=f"rl_orch.{kind}")}
    return sorted(installed | {name for known, name in _PROVIDED if known == kind})


def load(kind: str, name: str) -> Any:
    """The object that a plugin of that name provides; importing it happens here and not before."""
    if (kind, name) in _PROVIDED:
        return _PROVIDED[kind, name]
    if is_importable(name) and kind not in INSTALLED:
        return _imported(name)
    group = f"rl_orch.{kind}"
    # Looking takes as long as making a small training: what was found once is there still.
    known_entry = _installed(tuple(sys.path)).get((group, name))
    for entry in [known_entry] if known_entry else entry_points(group=group, name=name):
        return entry.load()
    raise _unknown(kind, name, names(kind))


def refuse_unknown(kind: str, chosen: Sequence[str | Mapping[str, Any]], *, path: str) -> None:
    """Raise if a name at that path of a spec, or the `name` of a map, is of no plugin; none is
    loaded for it."""
    known = names(kind) if chosen else []
    for name in (each if isinstance(each, str) else each["name"] for each in chosen):
        if name not in known and (kind in INSTALLED or not is_importable(name)):
            raise _unknown(kind, name, known, path=path)


def searched_folders() -> list[str]:
    """The folders that modules are searched for in, besides what is installed."""
    installed = (sys.prefix, sys.base_prefix)
    return [f for f in sys.path if os.path.isdir(f) and not f.startswith(installed)]


def _imported(name: str) -> Any:
    """What `module:Class` names. Somebody's code may raise anything when it is imported."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise _broken(name, error) from error
        looked = ", ".join(searched_folders()) or "nowhere"
        if module.endswith(".py"):
            advice = f"Write '{module.removesuffix('.py')}:{attribute}': a module, and not a file."
            raise BadInput(f"{name!r}: {module} is no module", hint=advice) from None
        where = (
            f"Besides what is installed, these folders were searched: {looked}. Run from the "
            "folder that holds it, or install it."
        )
        raise NotFound(f"{name!r}: there is no module {error.name!r}", hint=where) from None
    except AttributeError as error:
        known = vars(sys.modules[module]) if module in sys.modules else {}
        if attribute in known or module not in sys.modules:
            raise _broken(name, error) from error
        near = difflib.get_close_matches(attribute, known, n=1)
        hint = f"Did you mean '{module}:{near[0]}'?" if near else None
        raise BadInput(f"{name!r}: {module} has no {attribute!r}", hint=hint) from None
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from error


def _broken(name: str, error: BaseException) -> BadInput:
    return BadInput(f"{name!r} cannot be imported: {type(error).__name__}: {error}")


def _unknown(kind: str, name: str, known: Sequence[str], path: str | None = None) -> BadInput:
    near = difflib.get_close_matches(name, known, n=1)
    said = f"no plugin {name!r} of kind {kind}; installed: {', '.join(known) or 'none'}"
    hint = f"Did you mean {near[0]!r}?" if near else OWN.get(kind)
    return BadInput(said if path is None else f"{path}: {said}", path=path, hint=hint)


@cache
def _installed(_path: tuple[str, ...]) -> dict[tuple[str, str], EntryPoint]:
    """The entry points of our kinds, by group and name, as a search path has them."""
    found: dict[tuple[str, str], EntryPoint] = {}
    for entry in (entry for distribution in distributions() for entry in distribution.entry_points):
        if entry.group.startswith("rl_orch."):
            found.setdefault((entry.group, entry.name), entry)
    return found


@contextmanager
def provided(kind: str, name: str, plugin: Any) -> Iterator[None]:
    """Let a plugin that is not installed be found in this process, for a while."""
    _PROVIDED[kind, name] = plugin
    try:
        yield
    finally:
        del _PROVIDED[kind, name]


def part(name: str) -> Any:
    """The module of a part of ours, imported here and not before."""
    return import_module(PARTS[name])


def command(name: str) -> Any:
    """The module of a command."""
    return import_module(f"{COMMANDS}.{name}")


def load_all(package: str) -> None:
    """Import a package and all modules in it; one that cannot be loaded is passed over."""
    found = import_module(package)
    for module in walk_packages(getattr(found, "__path__", ()), f"{package}.", lambda _name: None):
        with suppress(ImportError):
            import_module(module.name)


def exports(package: str, places: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose names come from modules of it, by module."""
    module_of = {name: module for module, names in places.items() for name in names}

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{module_of[name]}"), name)

    return get
