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
        self._rows: dict[int, array[int]] = {}

    def follow(self, numbers: Numbers) -> None:
        """Count further rows of the log to the episodes they belong to. An episode has the number
        of the first of its rows."""
        before = self._log.before(numbers)
        for number, previous in zip(numbers.tolist(), before.tolist(), strict=True):
            known = previous >= self._log.oldest
            episode = int(self._episode[previous % self._log.capacity]) if known else number
            self._episode[number % self._log.capacity] = episode
            self._rows.setdefault(episode, array("q")).append(number)

    def forget(self, gone: Numbers) -> None:
        """Let go of episodes whose last rows these are."""
        for number in gone.tolist():
            episode = int(self._episode[number % self._log.capacity])
            if self._rows[episode][-1] == number:
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
        if self._strategy == "final":
            return rows[-1]
        # What was reached before the first step was reached by none.
        first = row if self._strategy == "future" else max(self._log.oldest, rows[0])
        start = bisect_left(rows, first) + 1
        return rows[start + int(place * (len(rows) - start))]
