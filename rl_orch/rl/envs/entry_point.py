"""`env.backend: vector`: the environment's own vector form, which it is registered with."""

from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from rl_orch.errors import BadInput
from rl_orch.rl.envs.vector import Envs, registered
from rl_orch.spec.model import Spec


def make(spec: Spec, num_envs: int) -> Envs:
    """All copies as one, by the `vector_entry_point` of the environment; it splits the seed, and
    says in its metadata when it resets."""
    limit = spec.env.max_episode_steps
    limited: dict[str, Any] = {} if limit is None else {"max_episode_steps": limit}
    known = registered(spec.env.id)
    why = _why_not(known)
    if why is not None:
        raise BadInput(
            f"env.backend is 'vector', but {spec.env.id} {why}",
            path="env.backend",
            hint="Use env.backend=auto, which steps every environment.",
        )
    try:
        return gymnasium.make_vec(
            known,
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


def _why_not(known: EnvSpec) -> str | None:
    if known.vector_entry_point is None:
        return "has no vector form: it is registered without a vector_entry_point"
    if known.additional_wrappers:
        return "is registered with wrappers, which its vector form does not take"
    return None
