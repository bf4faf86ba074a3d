"""Documents and overrides as they may be written down: without the address of a database, which may
hold a password. A resolved spec leaves it out itself; these are of specs as users write them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rl_orch.addresses import is_url
from rl_orch.spec.aliases import WRAPPER
from rl_orch.spec.layers import from_overrides
from rl_orch.spec.options import is_group, path_of

PATH = "registry.db_path"


def without_address(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a spec, in any spelling, without the address; a path of a file stays."""
    return _kept(document, "")


def without_address_in(overrides: Sequence[str]) -> tuple[str, ...]:
    """The overrides but for those that give the address."""
    return tuple(text for text in overrides if not _gives_address(text))


def without_address_at(settings: Sequence[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
    """The overrides of steps but for those that give the address."""
    return tuple((step, text) for step, text in settings if not _gives_address(text))


def _kept(document: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in document.items():
        typed = f"{prefix}{key}"
        path = path_of(typed)
        if path == PATH and is_url(value):
            continue
        inside = isinstance(value, Mapping) and (path == WRAPPER or is_group(path))
        kept[key] = _kept(value, f"{typed}.") if inside else value
    return kept


def _gives_address(override: str) -> bool:
    given = from_overrides([override]).values.get(PATH) if is_url(override) else None
    return given is not None and is_url(given.value)
