"""`ReplayBuffer`: experience that off-policy learners keep and draw from again, uniformly or by
priority, over one step or several. How it is kept is in `log.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_orch.errors import Diverged
from rl_orch.rl.data.batch import Batch, Column
from rl_orch.rl.data.returns import n_step
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.policies.policy import Setup, untraced
from rl_orch.rl.replay.hindsight import Hindsight
from rl_orch.rl.replay.log import (
    FINAL,
    TERMINATED,
    TRUNCATED,
    Flags,
    LogSegment,
    Numbers,
    RowLog,
    in_parts,
    rows_of_batch,
)
from rl_orch.rl.replay.sum_tree import SumTree
from rl_orch.rl.streams import Stream, derive

__all__ = ["LogSegment", "ReplayBuffer", "Sample", "segments_in"]

SPARSE = 8
"""Where fewer than one row in so many can be drawn, they are looked up instead of tried for."""

PRIORITY_EPS = 1e-6
"""Added to every error, so that no transition is never drawn again."""

PRIORITIES = "priorities"


@dataclass(frozen=True, slots=True)
class Sample:
    """B transitions over n steps: the target is `rewards + discounts * value(next)`.

    `discounts` is gamma^k, k ≤ n, and 0 where the episode terminated within the window. `rows` are
    the numbers that `update_priorities` takes.
    """

    observations: Column
    actions: NDArray[Any]
    rewards: NDArray[np.float32]
    next_observations: Column
    discounts: NDArray[np.float32]
    next_masks: Flags | None
    weights: NDArray[np.float32]
    rows: Numbers


class ReplayBuffer:
    """The last `buffer.size` rows of experience: transitions, and one more for each episode's end.

    A transition can be drawn once the n steps after it are there, or the end of its episode, and
    as long as all frames of its stack are. `transform` is applied to raw rewards as they are drawn.
    """

    def __init__(
        self,
        setup: Setup,
        *,
        transform: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None,
    ) -> None:
        self._options = setup.spec.buffer
        self._gamma = setup.spec.train.gamma
        self._transform = transform
        self._log = RowLog(setup)
        self._hindsight = Hindsight(setup, self._log) if self._options.her_strategy else None
        self._ready = setup.allocate("ready", (self._options.size,), np.bool_)
        self._ready_count = 0
        self._tree = SumTree(self._options.size) if self._options.prioritized else None
        self._greatest = 1.0
        seed = derive(setup.spec.env.seed, Stream.REPLAY)
        self._generator = np.random.Generator(np.random.PCG64(seed))
        if setup.traced is not untraced:
            for name in ("add", "sample", "update_priorities", "seal"):
                setattr(self, name, setup.traced("buffer", getattr(self, name)))

    def __len__(self) -> int:
        """The number of transitions that can be drawn now."""
        return self._ready_count

    @property
    def row_bytes(self) -> int:
        """The size of one row in a segment."""
        return self._log.row_bytes

    @property
    def row(self) -> dict[str, NDArray[Any]]:
        """One row by column: the form of those in segments."""
        return {name: column[0] for name, column in self._log.columns.items()}

    @property
    def unsealed_bytes(self) -> int:
        """The size of the next segment."""
        return self._log.unsealed * self._log.row_bytes

    def add(self, batch: Batch) -> None:
        """Keep the rows of a batch, which are ordered by copy, then time. Those that are not
        `valid` are left out; without `first`, an episode begins wherever none is under way."""
        log = self._log
        for rows in rows_of_batch(batch, len(log.newest)).parts(log.capacity):
            self._let_go_of(log.make_room(len(rows)))
            numbers = log.append(rows, batch)
            if self._hindsight is not None:
                self._hindsight.follow(numbers)
            self._open(numbers, rows.final)

    def sample(self, batch_size: int, progress: float = 0.0) -> Sample:
        """Transitions drawn with replacement: uniformly, or in proportion to their priorities.

        At a progress in [0, 1], the exponent of the weights is between `beta` and 1.
        """
        if self._ready_count == 0:
            raise ValueError("there is nothing to draw from yet; add experience first")
        if self._tree is None:
            rows, weights = self._drawn(batch_size), np.ones(batch_size, np.float32)
        else:
            rows, weights = self._drawn_by_priority(self._tree, batch_size, progress)
        log = self._log
        raw, flags, following = self._windows(rows)
        seen, then = log.observations(rows), log.observations(following)
        if self._hindsight is not None:
            self._hindsight.retell(rows, seen, then, raw[:, 0], self._generator)
        rewards, discounts = self._returns(raw, flags)
        at, beyond = log.at(rows), log.at(following)
        return Sample(
            observations=seen,
            actions=log.columns["actions"].take(at, axis=0),
            rewards=rewards,
            next_observations=then,
            discounts=discounts,
            next_masks=None if log.masks is None else log.masks.take(beyond, axis=0),
            weights=weights,
            rows=rows,
        )

    def update_priorities(self, rows: Numbers, errors: NDArray[Any]) -> None:
        """Set the priorities of rows that were drawn to (|error| + ε)^alpha; rows that are no
        longer there are passed over. Nothing happens where transitions are drawn uniformly."""
        if self._tree is None:
            return
        priorities = (np.abs(errors.astype(np.float64)) + PRIORITY_EPS) ** self._options.alpha
        if not np.isfinite(priorities).all():
            raise Diverged("a transition got an error that is not finite; its priority is unknown")
        # Rounded, as they are saved.
        priorities = priorities.astype(np.float32).astype(np.float64)
        at = self._log.at(rows)
        there = (rows >= self._log.oldest) & self._ready[at]
        self._tree.set(at[there], priorities[there])
        self._greatest = float(priorities.max(initial=self._greatest))

    def seal(self) -> LogSegment | None:
        """The rows since the last segment, copied; none if there are none. They are listed in
        `state` from now on."""
        return self._log.seal()

    def state(self) -> StateTree:
        """All that the buffer remembers, but for the rows, which are in segments; copies.

        `document["segments"]` lists these: names, or maps with a `name`.
        """
        if self._log.unsealed:
            raise ValueError(f"{self._log.unsealed} rows are in no segment yet; call seal first")
        tensors: dict[str, NDArray[Any]] = {}
        if self._tree is not None:
            live = self._tree.get(self._log.at(self._log.live()))
            tensors[PRIORITIES] = live.astype(np.float32)
        return StateTree(
            tensors=tensors,
            document={
                **self._log.state(),
                "greatest_priority": self._greatest,
                "rng": self._generator.bit_generator.state,
            },
        )

    def load(self, state: StateTree, segments: Callable[[str], Mapping[str, NDArray[Any]]]) -> None:
        """Go on from what `state` returned; `segments` reads a segment by name."""
        self._log.load(state.document, segments_in(state), segments)
        self._greatest = float(state.document["greatest_priority"])
        self._generator.bit_generator.state = dict(state.document["rng"])
        self._ready[:] = False
        self._ready_count = 0
        if self._hindsight is not None:
            self._hindsight.clear()
            self._hindsight.follow(self._log.live())
        for numbers in in_parts(self._log.live()):
            self._mark(numbers[self._is_complete(numbers) & self._log.has_stack(numbers)])
        if self._tree is not None:
            live = self._log.live()
            priorities = state.tensors[PRIORITIES][len(state.tensors[PRIORITIES]) - len(live) :]
            self._tree = SumTree(self._options.size)
            self._tree.set(self._log.at(live), priorities.astype(np.float64))

    def _let_go_of(self, gone: Numbers) -> None:
        """No longer draw these rows, nor those whose stacks they were part of."""
        if self._hindsight is not None:
            self._hindsight.forget(gone)
        for _ in range(self._log.stack):
            if len(gone) == 0:
                return
            at = self._log.at(gone)
            closed = at[self._ready[at]]
            self._ready[closed] = False
            self._ready_count -= len(closed)
            if self._tree is not None:
                self._tree.set(closed, 0.0)
            after = self._log.after(gone)
            gone = after[after >= 0]

    def _open(self, numbers: Numbers, final: Flags) -> None:
        """Draw from now on the rows whose windows these new ones complete: n steps before each;
        and before the end of an episode, fewer."""
        for step in range(1, self._options.n_step + 1):
            numbers = self._log.before(numbers)
            kept = numbers >= self._log.oldest
            numbers, final = numbers[kept], final[kept]
            opened = numbers if step == self._options.n_step else numbers[final]
            opened = opened[self._log.has_stack(opened)]
            self._mark(opened)
            if self._tree is not None:
                self._tree.set(self._log.at(opened), self._greatest)

    def _mark(self, opened: Numbers) -> None:
        self._ready[self._log.at(opened)] = True
        self._ready_count += len(opened)

    def _is_complete(self, numbers: Numbers) -> Flags:
        """Whether the n steps after these rows are there, or the ends of their episodes."""
        log = self._log
        complete: Flags = log.flags[log.at(numbers)] & FINAL == 0
        for _ in range(self._options.n_step):
            after = log.after(numbers)
            complete &= (after >= 0) | (log.flags[log.at(numbers)] & FINAL > 0)
            numbers = np.where(after >= 0, after, numbers)
        return complete

    def _drawn(self, count: int) -> Numbers:
        """Numbers of rows that can be drawn, all equally likely."""
        log = self._log
        if self._ready_count * SPARSE < log.total - log.oldest:
            numbers = log.live()
            ready = numbers[self._ready[log.at(numbers)]]
            return ready[self._generator.integers(0, len(ready), count)]
        drawn = np.empty(0, np.int64)
        while len(drawn) < count:
            tried = self._generator.integers(log.oldest, log.total, count)
            drawn = np.concatenate([drawn, tried[self._ready[log.at(tried)]]])
        return drawn[:count]

    def _drawn_by_priority(
        self, tree: SumTree, count: int, progress: float
    ) -> tuple[Numbers, NDArray[np.float32]]:
        """Rows, one from each of `count` equal parts of all priorities; and their weights
        w = (P(i) / min P)^-beta (Schaul et al. 2016, section 3.4)."""
        masses = (np.arange(count) + self._generator.random(count)) * (tree.total / count)
        at = tree.find(masses)
        priorities = tree.get(at)
        beta = self._options.beta
        beta += (1.0 - beta) * min(max(progress, 0.0), 1.0)
        weights = ((priorities / priorities.min()) ** -beta).astype(np.float32)
        oldest = self._log.oldest
        return oldest + (at - oldest) % self._log.capacity, weights

    def _windows(self, rows: Numbers) -> tuple[NDArray[np.float64], NDArray[np.uint8], Numbers]:
        """Rewards and flags of n steps, (B, n) each, and the rows of what comes after."""
        n, log = self._options.n_step, self._log
        raw = np.empty((len(rows), n), np.float64)
        flags = np.empty((len(rows), n), log.flags.dtype)
        ended = np.zeros(len(rows), np.bool_)
        for step in range(n):
            at = log.at(rows)
            raw[:, step] = log.columns["rewards"][at]
            flags[:, step] = log.flags[at]
            rows = np.where(ended, rows, log.after(rows))
            ended |= flags[:, step] & (TERMINATED | TRUNCATED) > 0
        return raw, flags, rows

    def _returns(
        self, raw: NDArray[np.float64], flags: NDArray[np.uint8]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The n-step sums of rewards, and the discounts of what comes after, (B,) each."""
        rewards = raw if self._transform is None else self._transform(raw)
        terminated, ends = flags & TERMINATED > 0, flags & (TERMINATED | TRUNCATED) > 0
        sums, discounts = n_step(rewards, terminated, ends, self._gamma)
        return sums.astype(np.float32), discounts.astype(np.float32)


def segments_in(state: StateTree) -> tuple[str, ...]:
    """The names of the segments that a buffer's state needs, oldest first."""
    listed = state.document["segments"]
    return tuple(entry if isinstance(entry, str) else entry["name"] for entry in listed)
