"""`RunFilters`: which runs `rl_orch.runs.list` lists, in the words of `rlctl ls`."""

import difflib
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypedDict

from rl_orch.errors import BadInput
from rl_orch.records import State
from rl_orch.records.moments import moment
from rl_orch.records.queries import BIGGEST, Query, state_named
from rl_orch.spec.tags import pair

Moment: TypeAlias = str | float | datetime | timedelta
"""`12h` or a timedelta is so long ago; a date and a time, or seconds since the epoch."""


class RunFilters(TypedDict, total=False):
    """What a run must match, all of it. `state` and `tag` may be several: any of the states, each
    of the tags, which are `name=value` or a mapping."""

    state: str | Iterable[str]
    tag: str | Iterable[str] | Mapping[str, str]
    env: str
    algo: str
    name: str
    since: Moment
    until: Moment
    parent: str
    role: str
    group: str
    queue: str
    sort: str
    after: str


PLURALS = {"states": "state", "tags": "tag"}
"""What two of them are called in a `Query`."""


def query_of(limit: int, filters: Mapping[str, Any]) -> Query:
    """The query that the filters ask for; None is no filter."""
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise BadInput(f"limit is {limit!r:.80}; must be a whole number", path="limit")
    fields: dict[str, Any] = {}
    for typed, value in filters.items():
        name = PLURALS.get(typed, typed)
        if name not in RunFilters.__annotations__:
            raise _unknown(typed)
        if value is not None:
            field, read = _READERS.get(name, (name, _text))
            fields[field] = read(name, value)
    return Query(limit=limit, **fields)


def _unknown(typed: str) -> BadInput:
    known = ["limit", *RunFilters.__annotations__]
    near = difflib.get_close_matches(typed, known, n=1)
    hint = f"Did you mean {near[0]}?" if near else None
    return BadInput(f"{typed} is no filter of runs; there are {', '.join(known)}", hint=hint)


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    raise BadInput(f"{name} is {value!r:.80}; must be text", path=name)


def _states(name: str, value: Any) -> tuple[State, ...]:
    return tuple(state_named(_text(name, each), name) for each in _several(name, value))


def _tags(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, Mapping):
        return tuple(f"{_text(name, key)}={_text(name, value[key])}" for key in value)
    tags = tuple(_text(name, each) for each in _several(name, value))
    for tag in tags:
        pair(tag)
    return tags


def _several(name: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Iterable):
        return tuple(value)
    raise BadInput(f"{name} is {value!r:.80}; must be text, or a list of it", path=name)


def _moment(name: str, value: Any) -> float:
    if isinstance(value, str):
        return moment(value, flag=name)
    seconds = value
    if isinstance(value, timedelta):
        seconds = time.time() - value.total_seconds()
    with suppress(OverflowError, ValueError, OSError):
        if isinstance(value, datetime):
            seconds = value.timestamp()
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if is_number and -BIGGEST < seconds < BIGGEST:  # Which NaN is not.
        return float(seconds)
    raise BadInput(
        f"{name} is {value!r:.80}; must be text such as '12h' or '2026-11-18T09:30', a datetime, a "
        "timedelta or seconds since the epoch",
        path=name,
    )


_READERS: dict[str, tuple[str, Callable[[str, Any], Any]]] = {
    "state": ("states", _states),
    "tag": ("tags", _tags),
    "since": ("since", _moment),
    "until": ("until", _moment),
}
"""The field of a `Query` that a filter becomes, and how it is read; others are text."""
