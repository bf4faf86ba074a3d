"""The curves that events draw: which numbers an event holds, and the name that each is shown under.

Every tracker, screen and index asks here, so that a curve has one name wherever it is looked at.
"""

from collections.abc import Sequence
from functools import lru_cache

from rl_orch.io.run.history import number_of
from rl_orch.records import Event, EventKind

EPISODIC_RETURN = "charts/episodic_return"
EPISODIC_LENGTH = "charts/episodic_length"
NUMERIC = frozenset({EventKind.METRIC, EventKind.LOG, EventKind.EVAL})
"""Kinds of events whose value is shown under their key."""

KEY_CHARS = 256
"""A longer key is the name of no curve."""


def of_event(event: Event) -> Sequence[tuple[str, float]]:
    """The numbers of an event, each after the name of its curve."""
    name, value = name_of(event.kind, event.key), event.value
    if name is None:
        return ()
    if type(value) is float and event.kind is not EventKind.EPISODE:
        return ((name, value),)  # As nearly every event is.
    named = [(name, number_of(value))]
    if event.kind is EventKind.EPISODE:
        named.append((EPISODIC_LENGTH, number_of(event.tags.get("length"))))
    return [(name, number) for name, number in named if number is not None]


@lru_cache
def name_of(kind: str, key: str) -> str | None:
    """The curve that the value of an event is on; None if it is on none."""
    if kind == EventKind.EPISODE:
        return EPISODIC_RETURN
    return key if kind in NUMERIC and len(key) <= KEY_CHARS else None
