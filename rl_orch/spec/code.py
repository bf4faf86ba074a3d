"""What code a spec names: modules to import, and programs to run. Pure.

Whoever may name code runs it as the service's user, so naming it is one permission, and this is the
one place that says what it is about. Installed plugins are no such code: they are there already.
Wrappers of Gymnasium's that do more than wrap are: one of them writes videos into any folder.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rl_orch.spec.layers import from_overrides
from rl_orch.spec.model import Spec
from rl_orch.spec.overrides import parse_override
from rl_orch.spec.wrappers import FREE, choice, wrapper

FREE_TEXT = (
    *("name", "tags", "parent", "resources.device", "schedule.queue", "schedule.after"),
    "start.from",
)
"""Options that nobody imports anything for."""

PROGRAM = frozenset(f"runner.{word}" for word in ("name", "command", "policy", "cwd", "env"))
"""Options that say which program is run, and how."""


@dataclass(frozen=True, slots=True)
class NamedCode:
    """Code that is named at a path; `module` is None for what no module is imported for."""

    path: str
    value: str
    module: str | None

    def is_within(self, allowed: Iterable[str]) -> bool:
        """Whether it is one of the allowed modules, or inside one."""
        inside = [name for name in allowed if f"{self.module}.".startswith(f"{name}.")]
        return self.module is not None and bool(inside)


def named_by(spec: Spec) -> list[NamedCode]:
    """The code that a spec names."""
    modules = [*named_in(spec.model_dump(mode="json")), *_wrappers(spec.env.wrappers)]
    if not spec.runner.traits.privileged:
        return modules
    return [NamedCode("runner.name", spec.runner.name, None), *modules]


def named_by_overrides(overrides: Sequence[str]) -> Iterator[NamedCode]:
    """The code that overrides name, whatever they call the options that they are about.

    They are read as they are when a spec is made of them: what is not an option here is none there.
    """
    for text in overrides:
        parse_override(text)  # What is none is refused as such.
    layer = from_overrides(overrides)
    values = [(path, given.value) for path, given in layer.values.items()]
    values += [(entry.path, [*entry.keys, entry.given.value]) for entry in layer.entries]
    for path, value in values:
        if path in PROGRAM:
            yield NamedCode(path, str(value), None)
        yield from named_in({path: value})
        if path == "env.wrappers":
            held = _as_held(value)
            yield from named_in({path: held})
            yield from _wrappers(held)


def _wrappers(held: Iterable[Any]) -> Iterator[NamedCode]:
    """Wrappers that are named by their class alone, and do more than wrap."""
    for index, entry in enumerate(held):
        name = choice(entry).name
        if ":" not in name and name not in FREE:
            yield NamedCode(f"env.wrappers.{index}", name, None)


def _as_held(wrappers: Any) -> list[Any]:
    """Wrappers in the one spelling in which a spec holds them: dotted names have their colon."""
    held = []
    for entry in wrappers if isinstance(wrappers, list | tuple) else [wrappers]:
        with suppress(ValueError):  # It is none, and is refused as such.
            held.append(wrapper(entry))
    return [entry for entry in held if isinstance(entry, str | dict)]


def named_in(document: Any, path: str = "") -> Iterator[NamedCode]:
    """The modules that a document names, a spec or a part of one.

    Every text with a colon counts, keys too, and also in options that are passed on as they are: an
    environment may take the id of another one that it makes, and to import what is before the colon
    is the first thing that Gymnasium does with an id.
    """
    if isinstance(document, Mapping):
        for key, value in document.items():
            inner = f"{path}.{key}" if path else str(key)
            yield from named_in(value, inner)
            yield from named_in(str(key), inner) if path else ()
    elif isinstance(document, list | tuple):
        for index, value in enumerate(document):
            yield from named_in(value, f"{path}.{index}")
    elif isinstance(document, str) and ":" in document and not path.startswith(FREE_TEXT):
        yield NamedCode(path, document, document.rpartition(":")[0].strip())
