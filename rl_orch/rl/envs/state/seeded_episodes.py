"""`SeededEpisodes`: the wrapper that gives each episode of an environment a seed of its own."""

from copy import deepcopy
from typing import Any, SupportsFloat

import gymnasium

from rl_orch.rl.envs.state.graph import engines
from rl_orch.rl.streams import Stream, derive


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
        self._begun = False
        self._renews_world = engines.world_of(env) is not None
        self._spaces = _spaces(env)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """The first observation of the next episode."""
        if seed is not None:
            self._base, self._episode = seed, 0
            # An environment may draw from its own spaces, whose generators no reset seeds.
            for number, space in enumerate(self._spaces):
                space.seed(derive(seed, Stream.ENVS, number))
        elif self._base is not None:
            self._episode += 1
        self._begun = True
        return self.begin(options)

    def begin(self, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """The first observation of the present episode, again."""
        if not self._renews_world:
            return self.env.reset(seed=self._seed(), options=options)
        world = engines.renew_world(self.env)
        first = self.env.reset(seed=self._seed(), options=options)
        self._renews_world = engines.world_of(self.env) is world
        return first

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """One step; a final observation is a copy, which the reset that follows cannot change."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            observation = deepcopy(observation)
        return observation, reward, terminated, truncated, info

    def _seed(self) -> int | None:
        if self._base is None or self._episode == 0:
            return self._base
        base, first, stride = self.numbering or (self._base, 0, 1)
        return derive(base, first + self._episode * stride)


def _spaces(env: gymnasium.Env[Any, Any]) -> list[gymnasium.Space[Any]]:
    """The spaces of an environment and of its wrappers, each once."""
    layers = [env]
    while isinstance(layers[-1], gymnasium.Wrapper):
        layers.append(layers[-1].env)
    names = ("observation_space", "action_space")
    attributes = [getattr(layer, name, None) for layer in layers for name in names]
    return [
        *{id(space): space for space in attributes if isinstance(space, gymnasium.Space)}.values()
    ]
