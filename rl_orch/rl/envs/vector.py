"""`make` and `reset`: copies of an environment stepped together, every episode of them seeded.

Gymnasium does the stepping, or a kernel where there is one for the environment. A plugin of kind
`vector_envs` may take its place; `entry_point.py` and `envpool.py` are such.
"""

from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

import gymnasium
from gymnasium.envs.registration import (
    EnvSpec,
    find_highest_version,
    get_env_id,
    parse_env_id,
)
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import FrameStackObservation, TimeLimit, TransformObservation

from rl_orch import plugins
from rl_orch.errors import BadInput
from rl_orch.rl.envs import failures
from rl_orch.rl.envs.masks import ShownMasks
from rl_orch.rl.envs.native.envs import NativeEnvs, is_gymnasiums
from rl_orch.rl.envs.observations import flatten_observation
from rl_orch.rl.envs.state.methods import METHODS, Method
from rl_orch.rl.envs.wrappers import wrappers_of
from rl_orch.rl.streams import derive
from rl_orch.spec.model import Spec
from rl_orch.spec.native import why_not_native

Envs: TypeAlias = VectorEnv[Any, Any, Any]

GYMNASIUM_BACKENDS = ("sync", "async")
NATIVE = "native"
AUTO = "auto"
BACKENDS = (AUTO, NATIVE, *GYMNASIUM_BACKENDS)
"""Those that need no plugin. Of one spec they all play the same episodes."""

LIMITING = ("vector", "envpool")
"""Plugins of ours, which apply `env.max_episode_steps`."""

EVALUATION_LIMIT = 10_000
"""Steps after which evaluations cut episodes that nothing else limits."""

PROVIDERS = {"forex-v0": "gym_anytrading", "stocks-v0": "gym_anytrading"}
"""Environments that people name without the module that registers them."""

_UPKEEP = "upkeep"


class First(NamedTuple):
    """Observations and infos of a reset of all copies; Dict observations are flat."""

    observations: Any
    infos: dict[str, Any]


@dataclass(slots=True)
class Upkeep:
    """The way a vector environment remembers its state, and from what it was last reset.

    `by_copy` is false for a native one and a plugin's: its state is one, and it is not re-driven.
    `restarts` counts how often it began anew from the same seed because its state could not be
    restored.
    """

    method: Method
    by_copy: bool
    seed: int | None = None
    restarts: int = 0


def make(
    spec: Spec, *, num_envs: int, backend: str | None = None, method: Method = "captured"
) -> Envs:
    """Copies of the spec's environment, stepped by `backend` or by what the spec names.

    `method` is how its copies remember their state; see `state.capture`.
    Observations are only good until the next step: the sync backend reuses their memory.
    """
    backend = backend_of(spec, backend)
    by_copy = backend in GYMNASIUM_BACKENDS
    if by_copy:
        envs = _from_gymnasium(spec, num_envs, backend, method)
    elif backend == NATIVE:
        refuse_unless_native(spec)
        envs = NativeEnvs(spec.env.id, num_envs, spec.env.max_episode_steps)
    else:
        envs = plugins.load("vector_envs", backend)(spec, num_envs)
    envs.metadata = {**envs.metadata, _UPKEEP: Upkeep(method, by_copy)}
    if autoreset(envs) is AutoresetMode.DISABLED:
        envs.close()
        raise BadInput(
            f"env.backend {backend!r} does not reset finished episodes itself; "
            "its metadata['autoreset_mode'] must be SAME_STEP or NEXT_STEP",
            path="env.backend",
        )
    return envs


def backend_of(spec: Spec, asked: str | None = None) -> str:
    """The backend of the spec's environment; where left open, kernels if they can."""
    backend = asked or spec.env.backend
    if backend != AUTO:
        return backend
    native = why_not_native(spec) is None and is_gymnasiums(spec.env.id)
    return NATIVE if native else GYMNASIUM_BACKENDS[0]


def refuse_unless_native(spec: Spec) -> None:
    """Raise, with the reason, if the native backend cannot step the spec's environment."""
    why = why_not_native(spec)
    if why is not None:
        raise BadInput(
            f"env.backend is {NATIVE!r}, but {why}",
            path="env.backend",
            hint=f"Use one of {', '.join(GYMNASIUM_BACKENDS)}, which step every environment.",
        )


def reset(envs: Envs, seed: int, *, numbered: bool = False, first: int = 0) -> First:
    """The first observations; copy i of n starts from `derive(seed, i)`, and its later episodes
    follow from that.

    If `numbered`, the copies share one sequence of episodes, the same for every n: the k-th of
    copy i is number first + i + k·n, and starts from `derive(seed, number)`.
    A vector environment that is not made of single ones takes one seed, and splits it itself:
    which episodes it plays may depend on n, numbered or not.
    """
    seeds: Any = undivided(seed if first == 0 else derive(seed, first))
    inner, n = envs.unwrapped, envs.num_envs
    if isinstance(inner, SyncVectorEnv | AsyncVectorEnv | NativeEnvs):
        seeds = [derive(seed, first + i) for i in range(n)]
        inner.set_attr("numbering", [(seed, first + i, n) if numbered else None for i in range(n)])
    kept = upkeep(envs)
    kept.seed, kept.restarts = seed, 0
    if not numbers_episodes(envs):
        for space in (envs.observation_space, envs.action_space):
            space.seed(seed)
    return shown(envs, *envs.reset(seed=seeds))


def undivided(seed: int) -> int:
    """A seed as vector environments take it that split it themselves: of 30 bits, since some count
    up from it, in numbers of 32 bits with a sign."""
    return seed >> 2


def shown(envs: Envs, observations: Any, infos: dict[str, Any]) -> First:
    """The observations of a reset, as policies take them."""
    return First(flatten_observation(envs.single_observation_space, observations), infos)


def upkeep(envs: Envs) -> Upkeep:
    """The notes of `make` on a vector environment; the safe ones for any other."""
    kept = envs.metadata.get(_UPKEEP)
    return kept if isinstance(kept, Upkeep) else Upkeep("captured", by_copy=False)


def numbers_episodes(envs: Envs) -> bool:
    """Whether its copies know which episode of which seed they play, as `SeededEpisodes` do."""
    return upkeep(envs).by_copy or isinstance(envs.unwrapped, NativeEnvs)


def autoreset(envs: Envs) -> AutoresetMode:
    """The moment when a finished episode is reset; Gymnasium's default where an env does not
    say."""
    return AutoresetMode(envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))


def evaluated(spec: Spec) -> Spec:
    """The spec as evaluations play it, so that every episode ends: see `evaluation_limit`."""
    limit = evaluation_limit(spec)
    if limit is None:
        return spec
    if not spec.env.wrappers:
        return spec.changed({"env.max_episode_steps": limit})
    outermost = {"name": TimeLimit.__name__, "max_episode_steps": limit}
    return spec.changed({"env.wrappers": (*spec.env.wrappers, outermost)})


def evaluation_limit(spec: Spec) -> int | None:
    """The steps after which evaluations cut episodes: `eval.max_episode_steps`, or
    `EVALUATION_LIMIT` where nothing else cuts them; None where the environment's own limit comes
    first. Other vector environments than ours limit themselves unless they are asked."""
    ours = spec.env.backend in BACKENDS
    own = spec.env.max_episode_steps
    own = own or (registered(spec.env.id).max_episode_steps if ours else None)
    own = min([*_wrapped_limits(spec), *([] if own is None else [own])], default=None)
    limit = spec.eval.max_episode_steps or (EVALUATION_LIMIT if ours and own is None else None)
    return None if limit is None or (own is not None and own <= limit) else limit


def registered(env_id: str) -> EnvSpec:
    """The registration of an id, once the module that it may begin with is imported; of the newest
    version, if it names none."""
    module, _, name = full_id(env_id).rpartition(":")
    if module:
        import_module(module)
    namespace, stem, version = parse_env_id(name)
    if version is None:
        version = find_highest_version(namespace, stem)
    return gymnasium.spec(get_env_id(namespace, stem, version))


def declared_limit(spec: Spec, envs: Envs) -> int | None:
    """The steps after which episodes are cut, as far as the spec, its wrappers or the registration
    say."""
    own_limit = envs.spec.max_episode_steps if envs.spec else None
    limit = spec.env.max_episode_steps or own_limit
    return min([*_wrapped_limits(spec), *([] if limit is None else [limit])], default=None)


def _wrapped_limits(spec: Spec) -> list[int]:
    """The limits of the wrappers that the spec names."""
    return [
        int(each.kwargs["max_episode_steps"])
        for each in spec.env.chosen_wrappers
        if each.name == TimeLimit.__name__ and "max_episode_steps" in each.kwargs
    ]


def _from_gymnasium(spec: Spec, num_envs: int, backend: str, method: Method) -> Envs:
    wrappers: list[Any] = [*wrappers_of(spec)]
    if spec.obs.stack_frames is not None:
        # The stack keeps references, and an environment may reuse the memory behind them.
        wrappers.append(partial(TransformObservation, func=deepcopy, observation_space=None))
        wrappers.append(partial(FrameStackObservation, stack_size=spec.obs.stack_frames))
    if spec.agent.action_masks:
        wrappers.append(ShownMasks)
    wrappers.append(partial(METHODS[method], own_process=backend == "async"))
    if backend == "async":
        wrappers.append(failures.ToldByText)
    limit = spec.env.max_episode_steps
    return gymnasium.make_vec(
        full_id(spec.env.id),
        num_envs=num_envs,
        vectorization_mode=backend,
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP, "copy": False},
        wrappers=wrappers,
        disable_env_checker=True,
        **({} if limit is None else {"max_episode_steps": limit}),
        **spec.env.kwargs,
    )


def full_id(env_id: str) -> str:
    """The id with the module that registers it, where people leave that out."""
    module = PROVIDERS.get(env_id)
    return env_id if module is None else f"{module}:{env_id}"
