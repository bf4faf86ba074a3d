"""`Hindsight`: transitions told once more as if what was reached had been the goal (Andrychowicz et
al. 2017, arXiv:1707.01495).

The details that the paper leaves open, as they are here:

 1. Goals are replaced as transitions are drawn, k of k + 1 of them on average; the log keeps what
    happened.
 2. A new goal is what a step of the same episode reached: this or a later one (`future`), any
    (`episode`) or the last (`final`). Of an episode that goes on, there are the steps so far; of
    one whose beginning was overwritten, those that are left.
 3. The reward is asked of the environment, for what the step reached and the new goal. Whether an
    episode terminated stays as it was.
"""

from array import array
from bisect import bisect_left
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rl_orch.rl.data.batch import Column
from rl_orch.rl.envs.goals import ACHIEVED, DESIRED, goal_rewards
from rl_orch.rl.policies.policy import Setup
from rl_orch.rl.replay.log import Numbers, RowLog


class Hindsight:
    """Other goals for transitions of a log. All that it knows of episodes follows from the log."""

    def __init__(self, setup: Setup, log: RowLog) -> None:
        options = setup.spec.buffer
        self._strategy, self._share = options.her_strategy, options.her_k / (options.her_k + 1.0)
        self._log = log
        self._rewards = goal_rewards(setup.spec)
        self._episode = setup.allocate("episodes", (log.capacity,), np.int64)
        self._rows: dict[int, _EpisodeRows] = {}

    def follow(self, numbers: Numbers) -> None:
        """Count further rows of the log, one after another, to the episodes they belong to. An
        episode has the number of the first of its rows."""
        if len(numbers) == 0:
            return
        episodes = self._episodes_of(numbers)
        self._episode[self._log.at(numbers)] = episodes
        order = np.argsort(episodes, kind="stable")
        found, begins = np.unique(episodes[order], return_index=True)
        for episode, rows in zip(found.tolist(), np.split(numbers[order], begins[1:]), strict=True):
            self._rows.setdefault(episode, _EpisodeRows()).numbers.frombytes(rows.tobytes())

    def forget(self, gone: Numbers) -> None:
        """Let go of these rows, the first of all that are there."""
        found, counts = np.unique(self._episode[self._log.at(gone)], return_counts=True)
        for episode, count in zip(found.tolist(), counts.tolist(), strict=True):
            rows = self._rows[episode]
            rows.forget(count)
            if not rows.numbers:
                del self._rows[episode]

    def clear(self) -> None:
        """Forget all episodes."""
        self._rows.clear()

    def retell(
        self,
        rows: Numbers,
        seen: Column,
        following: Column,
        rewards: NDArray[np.float64],
        generator: np.random.Generator,
    ) -> None:
        """Give some of these transitions another goal and its reward, in place."""
        assert isinstance(seen, dict)
        assert isinstance(following, dict)
        chances, places = generator.random((2, len(rows)))
        retold = np.flatnonzero(chances < self._share)
        if len(retold) == 0:
            return
        goals = self._reached(rows[retold], places[retold])
        seen[DESIRED][retold] = goals
        following[DESIRED][retold] = goals
        rewards[retold] = self._rewards(following[ACHIEVED][retold], goals)

    def _reached(self, rows: Numbers, places: NDArray[np.float64]) -> NDArray[np.generic]:
        """What was reached at rows of the same episodes; places in [0, 1) say which."""
        chosen = [self._other(row, place) for row, place in zip(rows.tolist(), places, strict=True)]
        reached = self._log.observations(np.array(chosen, np.int64))
        assert isinstance(reached, dict)
        goals: NDArray[np.generic] = reached[ACHIEVED]
        return goals

    def _other(self, row: int, place: float) -> int:
        """A row of the same episode by the strategy."""
        rows = self._rows[int(self._episode[row % self._log.capacity])]
        numbers = rows.numbers
        if self._strategy == "final":
            return numbers[-1]
        # What was reached before the first step was reached by none.
        first = rows.first
        start = 1 + (bisect_left(numbers, row, first) if self._strategy == "future" else first)
        return numbers[start + int(place * (len(numbers) - start))]

    def _episodes_of(self, numbers: Numbers) -> Numbers:
        """The episodes of new rows, of which those before them may be new as well."""
        before, newest = self._log.before(numbers), numbers[0]
        old = (before >= self._log.oldest) & (before < newest)
        episodes = np.where(old, self._episode[self._log.at(before)], numbers)
        # Which new row says the episode: the one before, the one before that, in ever longer leaps.
        source = np.where(before >= newest, before, numbers) - newest
        while not np.array_equal(leap := source[source], source):
            source = leap
        told: Numbers = episodes[source]
        return told


@dataclass(slots=True)
class _EpisodeRows:
    """The rows of an episode in their order; those before place `first` are gone."""

    numbers: "array[int]" = field(default_factory=lambda: array("q"))
    first: int = 0

    def forget(self, count: int) -> None:
        """Let go of the first ones; their memory is free once they are half of all."""
        self.first += count
        if 2 * self.first >= len(self.numbers):
            del self.numbers[: self.first]
            self.first = 0
