"""What code a spec names: modules to import, and programs to run. Pure.

Whoever may name code runs it as the service's user, so naming it is one permission, and this is the
one place that says what it is about. Installed plugins are no such code: they are there already.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rl_orch.spec.model import Spec

REFERENCE = re.compile(r"([A-Za-z_][\w.]*):[A-Za-z_][\w./-]*")
"""`module:Name`, wherever it stands."""

ENV_ID = "env.id"
FREE_TEXT = frozenset({"name"})
"""Options that nobody takes for anything but text."""


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
    modules = list(named_in(spec.model_dump(mode="json")))
    if spec.runner.name == "local":
        return modules
    return [NamedCode("runner.name", spec.runner.name, None), *modules]


def named_in(document: Any, path: str = "") -> Iterator[NamedCode]:
    """The modules that a document names, a spec or a part of one.

    Every text of the form counts, also in options that are passed on as they are: an environment
    may take the id of another one that it makes.
    """
    if isinstance(document, Mapping):
        for key, value in document.items():
            yield from named_in(value, f"{path}.{key}" if path else str(key))
    elif isinstance(document, list | tuple):
        for index, value in enumerate(document):
            yield from named_in(value, f"{path}.{index}")
    elif isinstance(document, str) and path not in FREE_TEXT:
        module = _module(document, path)
        if module is not None:
            yield NamedCode(path, document, module)


def _module(text: str, path: str) -> str | None:
    """The module that a text names; in the id of an environment, all that is before a colon."""
    if path == ENV_ID:
        return text.rpartition(":")[0].strip() or None
    reference = REFERENCE.fullmatch(text.strip())
    return None if reference is None else reference[1]
