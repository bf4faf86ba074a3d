"""The curves that events draw: which numbers an event holds, and the name that each is shown under.

Every tracker, screen and index asks here, so that a curve has one name wherever it is looked at.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from rl_orch.records import Event, EventKind

EPISODIC_RETURN = "charts/episodic_return"
EPISODIC_LENGTH = "charts/episodic_length"
NUMERIC = frozenset({EventKind.METRIC, EventKind.LOG, EventKind.EVAL})
"""Kinds of events whose value is shown under their key."""

KEY_CHARS = 256
"""A longer key is the name of no curve."""


def of_event(event: Event) -> dict[str, float]:
    """The numbers of an event by the names of their curves."""
    return of_fields(event.kind, event.key, event.value, event.tags)


def of_fields(kind: str, key: str, value: Any, tags: Mapping[str, Any]) -> dict[str, float]:
    """As `of_event`, from the fields of an event as they are in its line."""
    name = name_of(kind, key)
    if name is None:
        return {}
    named = {name: number_of(value)}
    if kind == EventKind.EPISODE:
        named[EPISODIC_LENGTH] = number_of(tags.get("length"))
    return {name: number for name, number in named.items() if number is not None}


@lru_cache
def name_of(kind: str, key: str) -> str | None:
    """The curve that the value of an event is on; None if it is on none."""
    if kind == EventKind.EPISODE:
        return EPISODIC_RETURN
    return key if kind in NUMERIC and len(key) <= KEY_CHARS else None


def number_of(value: Any) -> float | None:
    """The value as a number, or None if it is none. Not finite ones are shown as such."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float) or value in ("NaN", "Infinity", "-Infinity"):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    return None
