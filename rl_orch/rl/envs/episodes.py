"""`SeededEpisodes`: the wrapper that gives each episode of an environment a seed of its own."""

from copy import deepcopy
from typing import Any, SupportsFloat

import gymnasium

from rl_orch.rl.streams import derive


class SeededEpisodes(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Seeds every reset, also those that a vector env makes without being asked.

    `reset(seed=s)` starts episode 0 from `s`; the k-th reset without a seed after it starts
    episode k from `derive(s, k)`. An episode is thus known by (s, k) and can be driven again
    without the ones before it.

    `numbering`, a (base, first, stride), lets the copies of a vector env share one sequence of
    episodes instead: the k-th is then number `first + k * stride`, from `derive(base, number)`.
    """

    numbering: tuple[int, int, int] | None = None

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._base: int | None = None
        self._episode = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """The first observation of the next episode."""
        if seed is not None:
            self._base, self._episode = seed, 0
        elif self._base is not None:
            self._episode += 1
            base, first, stride = self.numbering or (self._base, 0, 1)
            seed = derive(base, first + self._episode * stride)
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """One step; a final observation is a copy, which the reset that follows cannot change."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            observation = deepcopy(observation)
        return observation, reward, terminated, truncated, info
