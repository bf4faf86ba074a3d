"""What to list of runs and models, in which order, and the cursors between pages. Pure."""

import base64
import difflib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_orch.errors import BadInput
from rl_orch.records import Run, State
from rl_orch.spec.aliases import algorithm_named

SORTS: Mapping[str, type] = {
    "created_at": float,
    "updated_at": float,
    "name": str,
    "env_steps": int,
    "state": str,
}
"""What a page may be sorted by, and of which type that is; a leading `-` turns the order round."""

LONGEST_CURSOR = 16_384
LARGEST_PAGE = 10_000
BIGGEST = 2**63
"""The first integer that no database holds."""


@dataclass(frozen=True, slots=True)
class Query:
    """Which runs to list: those that match everything that is given, in an order, from a cursor on.

    `tags` are written `name=value`; `since` and `until` bound when runs were made, in seconds since
    the epoch, the second one excluded. The columns of `sort` are in `SORTS`; runs that are alike in
    it come in the order of their ids. `algo` may have any of its names, and an `env` without a
    version is that of any.
    """

    limit: int = 50
    after: str | None = None
    states: tuple[State, ...] = ()
    group: str | None = None
    queue: str | None = None
    env: str | None = None
    algo: str | None = None
    name: str | None = None
    sort: str = "-created_at"
    parent: str | None = None
    role: str | None = None
    tags: tuple[str, ...] = ()
    since: float | None = None
    until: float | None = None

    def __post_init__(self) -> None:
        if self.algo is not None:
            object.__setattr__(self, "algo", algorithm_named(self.algo))

    @property
    def column(self) -> str:
        """The name of the column to sort by."""
        return self.sort.removeprefix("-")

    @property
    def descending(self) -> bool:
        """Whether the largest comes first."""
        return self.sort.startswith("-")


@dataclass(frozen=True, slots=True)
class ModelQuery:
    """Which models to list: those that match everything that is given, the newest first.

    With `top_n`, the best so many of each environment by mean reward, since only those compare.
    """

    validated: bool = False
    top_n: int | None = None
    env: str | None = None
    algo: str | None = None
    alias: str | None = None
    run: str | None = None
    limit: int = 1000

    def __post_init__(self) -> None:
        if self.algo is not None:
            object.__setattr__(self, "algo", algorithm_named(self.algo))


NEWEST = Query()
"""Every run, the newest first."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some runs, in the order asked for, and the cursor that continues after them."""

    runs: tuple[Run, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class QueryRows:
    """Some rows of a listing, newest first, and the cursor that continues after them.

    The runs of a group are one row, by seed; any other run is a row by itself. So is each of
    `single`, by their ids: runs of a group of which others do not match.
    """

    rows: tuple[tuple[Run, ...], ...]
    next: str | None
    single: frozenset[str] = frozenset()

    def is_group(self, row: Sequence[Run]) -> bool:
        """Whether a row is a group."""
        return row[0].group is not None and row[0].id not in self.single


def refuse(query: Query) -> None:
    """Raise if there is no such order, or no page of that size."""
    if query.column not in SORTS:
        raise BadInput(
            f"sort is {query.sort!r}; must be one of {', '.join(SORTS)}, or one of them with a "
            "leading -",
            path="sort",
        )
    refuse_limit(query.limit)


def state_named(word: str, path: str) -> State:
    """The state that a word names; raises with the nearest if there is none."""
    if word in list(State):
        return State(word)
    near = difflib.get_close_matches(word.lower(), list(State), n=1)
    hint = f"Did you mean {str(near[0])!r}?" if near else None
    raise BadInput(f"{path} is {word!r:.80}; must be of {', '.join(State)}", path=path, hint=hint)


def refuse_limit(limit: int) -> None:
    """Raise if there is no page of that size."""
    if not 1 <= limit <= LARGEST_PAGE:
        raise BadInput(f"limit is {limit}; must be from 1 to {LARGEST_PAGE}", path="limit")


def cursor(sort: str, value: object, key: str) -> str:
    """The cursor that continues after a row. It has no character that a shell or a URL minds."""
    text = json.dumps([sort, value, key], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def position(text: str, sort: str) -> tuple[Any, str]:
    """Where a cursor continues: the value that is sorted by, and the id."""
    try:
        if len(text) > LONGEST_CURSOR:
            raise ValueError
        padded = text + "=" * (-len(text) % 4)
        known, value, key = json.loads(base64.b64decode(padded, altchars="-_", validate=True))
    except (ValueError, TypeError, RecursionError):
        known = value = key = None
    kind = SORTS[sort.removeprefix("-")]
    if known != sort or type(key) is not str or not _holds(value, kind):
        raise BadInput(
            f"cursor {text[:100]!r} is not one of ours for runs by {sort}",
            path="after",
            hint="Use the `next` of the page before, with the same sort.",
        )
    return value, key


def _holds(value: Any, kind: type) -> bool:
    """Whether a column of that type can be compared with a value."""
    if isinstance(value, bool) or not isinstance(value, float | int | str):
        return False
    fits = isinstance(value, str) or (math.isfinite(value) and abs(value) < BIGGEST)
    return fits and isinstance(value, kind)
