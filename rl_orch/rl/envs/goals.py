"""Environments with goals: observations that show one wanted and one reached, and a reward that can
be asked for any two of them."""

from collections.abc import Callable
from typing import Any, TypeAlias
from weakref import finalize

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rl_orch.errors import BadInput
from rl_orch.rl.envs import vector
from rl_orch.rl.envs.observations import flat_space
from rl_orch.spec.model import Spec

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"
"""The parts of an observation that are goals, as Gymnasium-Robotics names them."""

Rewards: TypeAlias = Callable[[NDArray[Any], NDArray[Any]], NDArray[np.float64]]
"""Goals reached and goals wanted, (B, ·) each → rewards (B,)."""


def goal_rewards(spec: Spec) -> Rewards:
    """The reward of the spec's environment for goals; asked of a copy that is never stepped, and
    that is closed once nobody can ask any more."""
    envs = vector.make(spec, num_envs=1, backend="sync")
    if why := why_no_goals(envs):
        envs.close()
        raise BadInput(f"buffer.her_strategy is set, but {why}", path="buffer.her_strategy")
    copy = _copy(envs)
    assert copy is not None
    compute_reward: Any = copy.get_wrapper_attr("compute_reward")

    def rewards(achieved: NDArray[Any], desired: NDArray[Any]) -> NDArray[np.float64]:
        infos: list[dict[str, Any]] = [{} for _ in achieved]
        return np.asarray(compute_reward(achieved, desired, infos), np.float64)

    # At the end of the process there is nothing left to close it for.
    finalize(rewards, envs.close).atexit = False
    return rewards


def why_no_goals(envs: vector.Envs) -> str | None:
    """Why episodes of an environment cannot be told with other goals, as the end of a sentence;
    None where they can."""
    space = flat_space(envs.single_observation_space)
    parts = space.spaces if isinstance(space, spaces.Dict) else {}
    lacking = [name for name in (ACHIEVED, DESIRED) if name not in parts]
    if lacking:
        return f"observations have no {' and no '.join(lacking)}"
    achieved, desired = parts[ACHIEVED], parts[DESIRED]
    if achieved.shape != desired.shape or achieved.dtype != desired.dtype:
        return f"{ACHIEVED} is {achieved}, and {DESIRED} is {desired}; must be alike"
    copy = _copy(envs)
    if copy is None or not copy.has_wrapper_attr("compute_reward"):
        return "the environment has no compute_reward(achieved_goal, desired_goal, info)"
    return _why_no_batch(copy, np.stack([achieved.sample() for _ in range(2)]))


def _copy(envs: vector.Envs) -> gymnasium.Env[Any, Any] | None:
    copies: Any = getattr(envs.unwrapped, "envs", None)
    return copies[0] if copies else None


def _why_no_batch(env: gymnasium.Env[Any, Any], goals: NDArray[Any]) -> str | None:
    """Why rewards cannot be asked for of several rows at once."""
    compute_reward: Any = env.get_wrapper_attr("compute_reward")
    try:
        shape = np.shape(compute_reward(goals, goals, [{}, {}]))
    # An environment is somebody else's code, and may raise anything.
    except Exception as error:
        return f"its compute_reward raised for two rows: {type(error).__name__}: {error}"
    if shape != (2,):
        return f"its compute_reward gave shape {shape} for two rows; must be (2,), one reward each"
    return None
