"""`make` and `reset`: copies of an environment stepped together, every episode of them seeded.

Gymnasium does the stepping. A plugin of kind `vector_envs` may take its place.
"""

from copy import deepcopy
from functools import partial
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import FrameStackObservation, TransformObservation
from numpy.typing import NDArray

from rl_orch import plugins
from rl_orch.errors import BadInput
from rl_orch.rl.envs.episodes import SeededEpisodes
from rl_orch.rl.streams import derive
from rl_orch.spec.model import Spec

Envs: TypeAlias = VectorEnv[Any, Any, Any]

GYMNASIUM_BACKENDS = ("sync", "async")


def make(spec: Spec, *, num_envs: int, backend: str | None = None) -> Envs:
    """Copies of the spec's environment, stepped by `backend` or by what the spec names.

    Observations are only good until the next step: the sync backend reuses their memory.
    """
    backend = backend or spec.env.backend
    if backend in GYMNASIUM_BACKENDS:
        envs = _from_gymnasium(spec, num_envs, backend)
    else:
        envs = plugins.load("vector_envs", backend)(spec, num_envs)
    if autoreset(envs) is AutoresetMode.DISABLED:
        envs.close()
        raise BadInput(
            f"env.backend {backend!r} does not reset finished episodes itself; "
            "its metadata['autoreset_mode'] must be SAME_STEP or NEXT_STEP",
            path="env.backend",
        )
    return envs


def reset(envs: Envs, seed: int, *, numbered: bool = False) -> NDArray[Any]:
    """First observations; copy i of n starts from `derive(seed, i)`, and its later episodes follow.

    If `numbered`, the copies share one sequence of episodes, the same for every n: the k-th of
    copy i is number i + k·n, and starts from `derive(seed, number)`.
    A vector environment that is not made of single ones takes one seed, and splits it itself:
    which episodes it plays may depend on n, numbered or not.
    """
    seeds: Any = seed
    inner, n = envs.unwrapped, envs.num_envs
    if isinstance(inner, SyncVectorEnv | AsyncVectorEnv):
        seeds = [derive(seed, i) for i in range(n)]
        inner.set_attr("numbering", [(seed, i, n) if numbered else None for i in range(n)])
    observations, _ = envs.reset(seed=seeds)
    return np.asarray(observations)


def autoreset(envs: Envs) -> AutoresetMode:
    """When a finished episode is reset; Gymnasium's default where an env does not say."""
    return AutoresetMode(envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))


def _from_gymnasium(spec: Spec, num_envs: int, backend: str) -> Envs:
    wrappers: list[Any] = [SeededEpisodes]
    if spec.obs.stack_frames is not None:
        # The stack keeps references, and an environment may reuse the memory behind them.
        wrappers.append(partial(TransformObservation, func=deepcopy, observation_space=None))
        wrappers.append(partial(FrameStackObservation, stack_size=spec.obs.stack_frames))
    limit = spec.env.max_episode_steps
    return gymnasium.make_vec(
        spec.env.id,
        num_envs=num_envs,
        vectorization_mode=backend,
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP, "copy": False},
        wrappers=wrappers,
        disable_env_checker=True,
        **({} if limit is None else {"max_episode_steps": limit}),
        **spec.env.kwargs,
    )
