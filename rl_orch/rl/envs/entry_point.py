"""`env.backend: vector`: the environment's own vector form, which it is registered with."""

from importlib import import_module
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from rl_orch.errors import BadInput
from rl_orch.rl.envs.vector import Envs, full_id
from rl_orch.spec.model import Spec


def make(spec: Spec, num_envs: int) -> Envs:
    """All copies as one, by the `vector_entry_point` of the environment; it splits the seed, and
    says in its metadata when it resets."""
    limit = spec.env.max_episode_steps
    limited: dict[str, Any] = {} if limit is None else {"max_episode_steps": limit}
    registered = _registered(full_id(spec.env.id))
    why = _why_not(registered)
    if why is not None:
        raise BadInput(
            f"env.backend is 'vector', but {spec.env.id} {why}",
            path="env.backend",
            hint="Use env.backend=auto, which steps every environment.",
        )
    try:
        return gymnasium.make_vec(
            registered,
            num_envs=num_envs,
            vectorization_mode="vector_entry_point",
            **limited,
            **spec.env.kwargs,
        )
    except TypeError as error:
        if limit is None or "'max_episode_steps'" not in str(error):
            raise
        raise BadInput(
            f"env.max_episode_steps is {limit}, but the vector form of {spec.env.id} refuses it: "
            f"{error}",
            path="env.max_episode_steps",
            hint="Leave it out, or use env.backend=sync.",
        ) from error


def _registered(env_id: str) -> EnvSpec:
    """The registration of an id, once the module that it may begin with is imported."""
    module, _, name = env_id.rpartition(":")
    if module:
        import_module(module)
    return gymnasium.spec(name)


def _why_not(registered: EnvSpec) -> str | None:
    if registered.vector_entry_point is None:
        return "has no vector form: it is registered without a vector_entry_point"
    if registered.additional_wrappers:
        return "is registered with wrappers, which its vector form does not take"
    return None
