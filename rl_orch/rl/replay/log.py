"""`RowLog`: everything that happened, row by row, as far back as there is memory for.

Rows are numbered from 0 on and never change; row i stands at position i % capacity of a ring, until
row i + capacity takes its place. All copies of the environment share the ring; a row knows the one
before it in its episode. Which rows can be drawn, and how, is in `buffer.py`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from rl_orch.errors import Damaged
from rl_orch.rl.data.batch import Batch, Column, host_column, on_host
from rl_orch.rl.envs.actions import choices_of
from rl_orch.rl.envs.observations import flat_space
from rl_orch.rl.policies.policy import Setup

Numbers: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]
Bounds: TypeAlias = tuple[int, int]

FIRST, UNKNOWN = -1, -2
"""In place of the row before: the episode begins here; or it does not, but that row is not kept."""

TERMINATED, TRUNCATED, FINAL = 1, 2, 4
"""Flags of a row. A final row holds the last observation of an episode, and no action."""

PART = 1 << 16
"""Rows that are looked at together where all are looked at."""


@dataclass(frozen=True, slots=True)
class LogSegment:
    """Consecutive rows, copied out of the log; its name says which, the last included."""

    name: str
    arrays: Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class LogRows:
    """Rows that are to be appended: which row of the batch each comes from, of which copy; whether
    an episode begins with it, or it holds the final observation of one."""

    source: Numbers
    copies: Numbers
    begins: Flags | None
    final: Flags

    def __len__(self) -> int:
        return len(self.source)

    def parts(self, size: int) -> "Iterator[LogRows]":
        """The same in parts of at most that many."""
        if len(self) <= size:
            yield self
            return
        for start in range(0, len(self), size):
            rows = slice(start, start + size)
            begins = None if self.begins is None else self.begins[rows]
            yield LogRows(self.source[rows], self.copies[rows], begins, self.final[rows])


def rows_of_batch(batch: Batch, copies: int) -> LogRows:
    """The rows to append for a batch, in the order of time: each valid one and, behind the last of
    an episode, its final observation."""
    if len(batch) % copies:
        raise ValueError(f"a batch has {len(batch)} rows; must be a multiple of {copies} copies")
    by_time = np.arange(len(batch)).reshape(copies, -1).T.ravel()
    if "valid" in batch.extras:
        by_time = by_time[on_host(batch.column("valid"))[by_time]]
    ended = on_host(batch.dones)[by_time]
    source, final = by_time, np.zeros(len(by_time), np.bool_)
    if ended.any():
        source = np.repeat(by_time, 1 + ended)
        final = np.zeros(len(source), np.bool_)
        final[np.cumsum(1 + ended)[ended] - 1] = True
    begins = None
    if "first" in batch.extras:
        begins = on_host(batch.column("first"))[source] & ~final
    return LogRows(source, source // (len(batch) // copies), begins, final)


class RowLog:
    """The last `buffer.size` rows: transitions, and one more for each episode's end."""

    def __init__(self, setup: Setup) -> None:
        spec = setup.spec
        self.capacity = spec.buffer.size
        self.stack = spec.obs.stack_frames or 1
        self.columns = _columns(setup, self.capacity)
        self.row_bytes = sum(array[:1].nbytes for array in self.columns.values())
        self.flags, self._previous = self.columns["flags"], self.columns["previous"]
        self.masks = self.columns.get("masks")
        self._frames = {
            name.removeprefix("observations").removeprefix("/"): array
            for name, array in self.columns.items()
            if name.startswith("observations")
        }
        self._following = setup.allocate("following", (self.capacity,), np.int64)
        self.oldest = 0
        self.total = 0
        self.newest = np.full(spec.env.num_envs, UNKNOWN, np.int64)
        self._sealed = 0
        self._segments: list[Bounds] = []

    def at(self, numbers: Numbers) -> Numbers:
        """The positions of rows."""
        return numbers % self.capacity

    def before(self, numbers: Numbers) -> Numbers:
        """The rows before these in their episodes; less than `oldest` where there is none."""
        previous: Numbers = self._previous[self.at(numbers)]
        return previous

    def after(self, numbers: Numbers) -> Numbers:
        """The rows after these in their episodes; negative where there is none yet."""
        following: Numbers = self._following[self.at(numbers)]
        return following

    def live(self) -> Numbers:
        """The numbers of all rows that are there."""
        return np.arange(self.oldest, self.total)

    def has_stack(self, numbers: Numbers) -> Flags:
        """Whether all frames of their stacks are there."""
        there = np.ones(len(numbers), np.bool_)
        for _ in range(self.stack - 1):
            before = self.before(numbers)
            kept = before >= self.oldest
            there &= kept | (before == FIRST)
            numbers = np.where(kept, before, numbers)
        return there

    def observations(self, numbers: Numbers) -> Column:
        """Observations of these rows: frames, or stacks of them, oldest first; before the
        first frame of an episode, it is repeated."""
        at = self.at(numbers)
        if self.stack > 1:
            stacks = np.empty((len(numbers), self.stack), np.int64)
            stacks[:, -1] = at
            for frame in range(self.stack - 2, -1, -1):
                before = self._previous[at]
                at = np.where(before == FIRST, at, self.at(before))
                stacks[:, frame] = at
            at = stacks
        seen = {name: frames.take(at, axis=0) for name, frames in self._frames.items()}
        return seen.get("", seen)

    def make_room(self, count: int) -> Numbers:
        """Let go of so many rows that further ones can be appended; returns which."""
        oldest = max(self.oldest, self.total + count - self.capacity)
        gone = np.arange(self.oldest, oldest)
        self.oldest = oldest
        return gone

    def append(self, rows: LogRows, batch: Batch) -> Numbers:
        """Write rows, for which room was made; returns their numbers."""
        numbers = np.arange(self.total, self.total + len(rows))
        at, source = self.at(numbers), rows.source
        if rows.final.any():
            self._write_finals(at[rows.final], source[rows.final], batch)
            at, source = at[~rows.final], source[~rows.final]
        self._write_frames(at, source, host_column(batch.observations))
        if self.masks is not None:
            self.masks[at] = on_host(batch.column("masks"))[source]
        self.columns["actions"][at] = on_host(batch.column("actions"))[source]
        self.columns["rewards"][at] = on_host(batch.column("rewards"))[source]
        terminated, truncated = (
            on_host(batch.column("terminated")),
            on_host(batch.column("truncated")),
        )
        self.flags[at] = TERMINATED * terminated[source] | TRUNCATED * truncated[source]
        self.total += len(rows)
        self._previous[self.at(numbers)] = self._links(rows, numbers)
        self._point_back(numbers)
        return numbers

    @property
    def unsealed(self) -> int:
        """The number of rows that are in no segment yet."""
        return self.total - max(self._sealed, self.oldest)

    def seal(self) -> LogSegment | None:
        """The rows since the last segment, copied; none if there are none."""
        first, last = max(self._sealed, self.oldest), self.total - 1
        self._sealed = self.total
        if first > last:
            return None
        self._segments = [*self._needed(), (first, last)]
        at = self.at(np.arange(first, last + 1))
        arrays = {name: array.take(at, axis=0) for name, array in self.columns.items()}
        return LogSegment(_name(first, last), arrays)

    def state(self) -> dict[str, Any]:
        """The log's snapshot besides its rows, and the segments of those, as JSON."""
        return {
            "size": self.total - self.oldest,
            "oldest": self.oldest,
            "total": self.total,
            "newest": self.newest.tolist(),
            "segments": [_name(*bounds) for bounds in self._needed()],
        }

    def load(
        self,
        document: Mapping[str, Any],
        names: tuple[str, ...],
        segments: Callable[[str], Mapping[str, NDArray[Any]]],
    ) -> None:
        """Go on from what `state` returned; the named segments together must hold every row."""
        self.total = self._sealed = int(document["total"])
        self.oldest = max(int(document["oldest"]), self.total - self.capacity)
        self.newest = np.array(document["newest"], np.int64)
        self._segments = [_bounds(name) for name in names]
        reached = self.oldest
        for first, last in self._needed():
            if first > reached:
                break
            rows = _checked(_name(first, last), segments(_name(first, last)), self.columns)
            at = self.at(np.arange(reached, last + 1))
            for name, array in self.columns.items():
                array[at] = rows[name][reached - first :]
            reached = last + 1
        if reached < self.total:
            raise Damaged(f"no segment of the replay buffer holds row {reached}")
        self._point_back(self.live())

    def _write_frames(self, at: Numbers, source: Numbers, seen: Any) -> None:
        """Keep the newest frame of each observation."""
        for name, frames in self._frames.items():
            leaf = seen[name] if isinstance(seen, Mapping) else seen
            frames[at] = (leaf[:, -1] if self.stack > 1 else leaf)[source]

    def _write_finals(self, at: Numbers, source: Numbers, batch: Batch) -> None:
        self._write_frames(at, source, host_column(batch.next_observations))
        if self.masks is not None:
            self.masks[at] = on_host(batch.column("next_masks"))[source]
        self.columns["actions"][at] = 0
        self.columns["rewards"][at] = 0.0
        self.flags[at] = FINAL

    def _links(self, rows: LogRows, numbers: Numbers) -> Numbers:
        """The row before each in its episode; remembers the newest of each copy.

        Where nobody said which ones begin an episode, those do that follow nothing.
        """
        order = np.argsort(rows.copies, kind="stable")
        copies, numbers, final = rows.copies[order], numbers[order], rows.final[order]
        starts = np.ones(len(order), np.bool_)
        np.not_equal(copies[1:], copies[:-1], out=starts[1:])
        ends = np.ones(len(order), np.bool_)
        ends[:-1] = starts[1:]
        seen = np.where(final, UNKNOWN, numbers)
        before = np.empty(len(order), np.int64)
        before[1:] = seen[:-1]
        before[starts] = self.newest[copies[starts]]
        self.newest[copies[ends]] = seen[ends]
        before[before == UNKNOWN if rows.begins is None else rows.begins[order]] = FIRST
        links = np.empty(len(order), np.int64)
        links[order] = before
        return links

    def _point_back(self, numbers: Numbers) -> None:
        """Tell the rows before these which ones follow them; nothing follows these yet."""
        self._following[self.at(numbers)] = UNKNOWN
        before = self.before(numbers)
        kept = before >= self.oldest
        self._following[self.at(before[kept])] = numbers[kept]

    def _needed(self) -> list[Bounds]:
        return [bounds for bounds in self._segments if bounds[1] >= self.oldest]


def in_parts(numbers: Numbers) -> Iterator[Numbers]:
    """Numbers in parts, so that looking at all rows takes little memory."""
    for start in range(0, len(numbers), PART):
        yield numbers[start : start + PART]


def _columns(setup: Setup, capacity: int) -> dict[str, NDArray[Any]]:
    """The memory of all rows, by column: what segments hold."""
    spec, action = setup.spec, setup.action_space
    kind = np.int64 if np.issubdtype(action.dtype, np.integer) else np.float32
    shapes: dict[str, tuple[tuple[int, ...], Any]] = {
        **_frame_shapes(setup.observation_space, stacked=spec.obs.stack_frames is not None),
        "actions": (tuple(action.shape or ()), kind),
        "rewards": ((), np.float64),
        "flags": ((), np.uint8),
        "previous": ((), np.int64),
    }
    if spec.agent.action_masks:
        shapes["masks"] = ((_mask_size(action),), np.bool_)
    return {
        name: setup.allocate(name, (capacity, *shape), dtype)
        for name, (shape, dtype) in shapes.items()
    }


def _frame_shapes(space: Space[Any], *, stacked: bool) -> dict[str, tuple[tuple[int, ...], Any]]:
    flat = flat_space(space)
    leaves = flat.spaces if isinstance(flat, spaces.Dict) else {"": flat}
    return {
        f"observations/{name}" if name else "observations": (
            tuple(leaf.shape or ())[1 if stacked else 0 :],
            leaf.dtype,
        )
        for name, leaf in leaves.items()
    }


def _mask_size(space: Space[Any]) -> int:
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return sum(choices_of(space))
    raise TypeError(
        f"{type(space).__name__} actions have no masks; must be Discrete or MultiDiscrete"
    )


def _name(first: int, last: int) -> str:
    return f"{first:015d}-{last:015d}"


def _bounds(name: str) -> Bounds:
    first, _, last = name.partition("-")
    return int(first), int(last)


def _checked(
    segment: str, rows: Mapping[str, NDArray[Any]], model: Mapping[str, NDArray[Any]]
) -> Mapping[str, NDArray[Any]]:
    """The rows of a segment, if they have the log's form and the name's number."""
    first, last = _bounds(segment)
    for name, array in model.items():
        wanted = (last - first + 1, *array.shape[1:])
        column = rows.get(name)
        if column is None or column.shape != wanted or column.dtype != array.dtype:
            seen = "nothing" if column is None else f"{column.dtype}{column.shape}"
            raise Damaged(
                f"replay segment {segment} has {seen} for {name}; must be {array.dtype}{wanted}"
            )
    return rows
