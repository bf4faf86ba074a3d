"""Episodes replayed from the seed of their reset and their actions, to be rendered."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rl_orch.errors import BadInput, RlctlError
from rl_orch.rl.envs.vector import evaluated, full_id
from rl_orch.rl.envs.wrappers import wrapped
from rl_orch.spec.model import Spec

Show = Callable[[NDArray[np.uint8]], None]
"""Takes a frame, (height, width, 3)."""

Environment = gymnasium.Env[Any, Any]
FPS = 30
SHOWABLE = (
    "Its constructor has to take render_mode; it lists the modes that it knows in "
    'metadata["render_modes"], and draws in render().'
)
"""What an environment needs to be shown."""


@dataclass(frozen=True, slots=True)
class ReplayedEpisode:
    """The outcome of a replayed episode."""

    ret: float
    length: int
    ended: bool


def rendered(spec: Spec, mode: str) -> Environment:
    """One copy of the spec's environment that shows itself, to a person or as frames."""
    spec = evaluated(spec)
    limit = spec.env.max_episode_steps
    limits = {} if limit is None else {"max_episode_steps": limit}
    try:
        made = gymnasium.make(
            full_id(spec.env.id),
            render_mode=mode,
            disable_env_checker=True,
            **limits,
            **spec.env.kwargs,
        )
    except (TypeError, ValueError, ImportError, gymnasium.error.Error) as error:
        raise BadInput(
            f"{spec.env.id} cannot be shown with render_mode={mode!r}: {error}",
            path="env.id",
            hint=SHOWABLE if "argument 'render_mode'" in str(error) else None,
        ) from None
    return wrapped(made, spec)


def frames_per_second(env: Environment) -> int:
    """The rate at which the environment is meant to be looked at."""
    return int(env.metadata.get("render_fps") or FPS)


def replay(
    env: Environment, seed: int, actions: Sequence[Any], show: Show | None
) -> ReplayedEpisode:
    """Replay an episode to its end; all its frames are shown, the first one too."""
    with closing(env):
        env.reset(seed=seed)
        _show(env, show)
        ret, length, ended = 0.0, 0, False
        for action in actions:
            _, reward, terminated, truncated, _ = env.step(_as_taken(env, action))
            ret, length, ended = ret + float(reward), length + 1, terminated or truncated
            _show(env, show)
            if ended:
                break
    return ReplayedEpisode(ret, length, ended)


def _show(env: Environment, show: Show | None) -> None:
    if show is None:
        return
    frame = env.render()
    if not isinstance(frame, np.ndarray) or frame.ndim != 3 or frame.shape[2] != 3:
        raise RlctlError(
            f"the environment renders {type(frame).__name__}; must be an array of colours, "
            "(height, width, 3)"
        )
    show(frame.astype(np.uint8, copy=False))


def _as_taken(env: Environment, action: Any) -> Any:
    """An action from a record as the environment takes it."""
    kind = env.action_space.dtype
    array = np.asarray(action, kind)
    return array if array.ndim else array[()]
