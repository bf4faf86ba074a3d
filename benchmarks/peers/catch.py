"""`benchmarks.peers.catch:Catch-v0`: a ball falls, and is to be caught; seen as a small image.

Not of this package alone: every side of the benchmark makes it, in environments of their own.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

CELLS = 9
"""The board is so many cells wide and high; one cell is a square of pixels."""

PIXELS = 4


class Catch(gymnasium.Env[Any, Any]):
    """The ball begins in a random column and falls a cell a step; the paddle, three cells wide,
    moves a cell to the left, stays, or moves to the right. An episode is one fall: 1 if the ball
    was caught, -1 if not."""

    def __init__(self) -> None:
        side = CELLS * PIXELS
        self.observation_space = spaces.Box(0, 255, (side, side, 1), np.uint8)
        self.action_space = spaces.Discrete(3)
        self._row = self._column = self._paddle = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """A ball at the top, the paddle in a random place."""
        super().reset(seed=seed)
        self._row = 0
        self._column = int(self.np_random.integers(CELLS))
        self._paddle = int(self.np_random.integers(1, CELLS - 1))
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """The paddle moves, the ball falls."""
        self._paddle = min(max(self._paddle + int(action) - 1, 1), CELLS - 2)
        self._row += 1
        ended = self._row == CELLS - 1
        caught = abs(self._paddle - self._column) <= 1
        return self._seen(), (1.0 if caught else -1.0) if ended else 0.0, ended, False, {}

    def _seen(self) -> Any:
        image = np.zeros((CELLS * PIXELS, CELLS * PIXELS, 1), np.uint8)
        for row, first, last in (
            (CELLS - 1, self._paddle - 1, self._paddle + 1),
            (self._row, self._column, self._column),
        ):
            image[row * PIXELS : (row + 1) * PIXELS, first * PIXELS : (last + 1) * PIXELS] = 255
        return image


gymnasium.register("Catch-v0", entry_point="benchmarks.peers.catch:Catch")
