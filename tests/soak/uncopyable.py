"""An environment whose state nobody can copy: it lives in a generator that is half-way through."""

from collections.abc import Generator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Uncopyable(gymnasium.Env[Any, Any]):
    """A noisy random walk that pays for staying near zero."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin another walk."""
        super().reset(seed=seed)
        self._walk = self._steps()
        return np.array([next(self._walk)]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Push to one side or the other."""
        place = self._walk.send(2 * int(action) - 1)
        return np.array([place]), 1.0 - abs(place), abs(place) > 4.0, False, {}

    def _steps(self) -> Generator[float, int, None]:
        place = float(self.np_random.normal())
        while True:
            push = yield place
            place += 0.3 * push + 0.2 * float(self.np_random.normal())


gymnasium.register("Uncopyable-v0", f"{__name__}:Uncopyable", max_episode_steps=100)
