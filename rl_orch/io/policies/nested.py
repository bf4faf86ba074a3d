"""Observations with parts, as environments give them, by the flat names that graphs have for them.

A name joins the keys that lead to a part by `/`; the entries of a Tuple are numbered.
"""

from collections.abc import Mapping, Sequence
from typing import Any


def flattened(observation: Any, names: Sequence[str]) -> dict[str, Any] | None:
    """The parts of an observation by their flat names, nested or already flat; None where one of
    them is not in it, or where there are none."""
    parts = {name: part for name in names for part in _found(observation, name)}
    return parts if parts and len(parts) == len({*names}) else None


def _found(node: Any, name: str) -> list[Any]:
    """The part of that name, as a list of one; keys may have a `/` themselves."""
    if isinstance(node, Mapping):
        if name in node:
            return [] if isinstance(node[name], Mapping) else [node[name]]
        heads = [name[:at] for at, letter in enumerate(name) if letter == "/"]
        below = (_found(node[head], name[len(head) + 1 :]) for head in heads if head in node)
        return next((part for part in below if part), [])
    head, _, rest = name.partition("/")
    if not isinstance(node, Sequence) or not head.isdecimal() or int(head) >= len(node):
        return []
    return _found(node[int(head)], rest) if rest else [node[int(head)]]
