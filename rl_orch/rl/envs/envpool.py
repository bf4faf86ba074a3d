"""`env.backend: envpool`: copies that EnvPool steps in C++, each on one of its threads.

EnvPool has environments of its own, many under Gymnasium's names; their episodes are not those of
Gymnasium.
"""

from functools import partial
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.seeding import np_random
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from rl_orch.errors import BadInput
from rl_orch.rl.envs.refusals import did_you_mean
from rl_orch.rl.envs.vector import Envs
from rl_orch.rl.streams import derive
from rl_orch.spec.model import Spec

OURS = ("num_envs", "batch_size", "seed", "env_seed", "max_num_players", "gym_reset_return_info")
"""Arguments of EnvPool that are not for `env.kwargs`: a step is one of all copies, as seeded."""

_ENDLESS = 2**31 - 1
"""What EnvPool gives as the limit of episodes that have none."""


def make(spec: Spec, num_envs: int) -> Envs:
    """The spec's environment as EnvPool has it, with `env.kwargs` for EnvPool."""
    pool = _imported()
    env_id, limit = spec.env.id, spec.env.max_episode_steps
    env_ids = pool.list_all_envs()
    if env_id not in env_ids:
        near = did_you_mean(env_id.rpartition(":")[2], env_ids)
        where = "`envpool.list_all_envs()` has them all; env.backend=auto steps Gymnasium's."
        raise BadInput(
            f"env.backend is 'envpool', but EnvPool has no environment {env_id!r}",
            path="env.id",
            hint=where if near is None else f"{near} {where}",
        )
    for name in OURS:
        if name in spec.env.kwargs:
            raise BadInput(
                f"env.kwargs has {name!r}, which env.backend 'envpool' sets itself",
                path="env.kwargs",
                hint="Leave it out; env.num_envs and env.seed are the copies and the seed.",
            )
    limited = {} if limit is None else {"max_episode_steps": limit}
    return PooledEnvs(pool, env_id, num_envs, dict(**spec.env.kwargs, **limited))


class PooledEnvs(VectorEnv[Any, Any, Any]):
    """A pool as Gymnasium's vector environments are: with spaces of all copies, and seeded resets.

    A copy that has ended spends its next step on the reset. EnvPool takes seeds only with a new
    pool, so a reset with a seed makes one; copy i of it starts from `derive(seed, i)`, and its
    later episodes follow from that. An episode that ends in the step that would cut it short is
    told as cut short.
    """

    def __init__(self, module: Any, env_id: str, num_envs: int, kwargs: dict[str, Any]) -> None:
        described = module.make_spec(env_id, num_envs=num_envs, **kwargs)
        players, limit = described.config.max_num_players, described.config.max_episode_steps
        if players > 1:
            raise BadInput(
                f"env.id is {env_id!r}, a game of {players} players; must be one of one player",
                path="env.id",
            )
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.spec = EnvSpec(env_id, max_episode_steps=None if limit == _ENDLESS else limit)
        self.num_envs = num_envs
        self.single_observation_space = described.gymnasium_observation_space
        self.single_action_space = described.gymnasium_action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.pool: Any = None
        self._make = partial(module.make_gymnasium, env_id, num_envs=num_envs, **kwargs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """First observations of the next episode of every copy, or of a seed's first."""
        if seed is not None or self.pool is None:
            self.pool = self._pool(np_random(None)[1] if seed is None else seed)
        observations, infos = self.pool.reset(options=options)
        return observations, infos

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """One step of every copy, or its reset."""
        if self.pool is None:
            raise gymnasium.error.ResetNeeded("a pool was stepped before its first reset")
        observations, rewards, terminated, truncated, infos = self.pool.step(actions)
        return observations, rewards, terminated, truncated, infos

    def close_extras(self, **kwargs: Any) -> None:
        """End the threads."""
        self.pool = None

    def _pool(self, seed: int) -> Any:
        # Seeds are 32 bits, and EnvPool takes 31.
        seeds = [derive(seed, copy) >> 1 for copy in range(self.num_envs)]
        return self._make(seed=seeds)


def _imported() -> Any:
    try:
        import envpool
    except ModuleNotFoundError as error:
        raise BadInput(
            "env.backend is 'envpool', but EnvPool is not installed",
            path="env.backend",
            hint="Install it with `pip install 'rl-orch[envpool]'`, or use env.backend=auto.",
        ) from error
    return envpool
