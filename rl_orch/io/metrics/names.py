"""The curves that events draw: which numbers an event holds, and the name that each is shown under.

Every tracker, screen and index asks here, so that a curve has one name wherever it is looked at.
"""

from functools import lru_cache

from rl_orch.io.run.history import number_of
from rl_orch.records import Event, EventKind

EPISODIC_RETURN = "charts/episodic_return"
EPISODIC_LENGTH = "charts/episodic_length"
NUMERIC = frozenset({EventKind.METRIC, EventKind.LOG, EventKind.EVAL})
"""Kinds of events whose value is shown under their key."""

KEY_CHARS = 256
"""A longer key is the name of no curve."""


def of_event(event: Event) -> dict[str, float]:
    """The numbers of an event by the names of their curves."""
    name = name_of(event.kind, event.key)
    if name is None:
        return {}
    named = {name: number_of(event.value)}
    if event.kind is EventKind.EPISODE:
        named[EPISODIC_LENGTH] = number_of(event.tags.get("length"))
    return {name: number for name, number in named.items() if number is not None}


@lru_cache
def name_of(kind: str, key: str) -> str | None:
    """The curve that the value of an event is on; None if it is on none."""
    if kind == EventKind.EPISODE:
        return EPISODIC_RETURN
    return key if kind in NUMERIC and len(key) <= KEY_CHARS else None
