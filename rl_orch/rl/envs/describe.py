"""What an environment is, and whether an algorithm can learn in it; each refusal is a sentence.

`describe` makes the environment once and closes it. `problems` is pure.
"""

import warnings
from contextlib import closing
from dataclasses import dataclass

import gymnasium
from gymnasium import spaces

from rl_orch import plugins
from rl_orch.errors import BadInput, Problem, SpecInvalid
from rl_orch.rl.envs import refusals, vector
from rl_orch.spec.model import Spec

ACTION_KINDS = {
    "ppo": ("Discrete", "Box"),
    "a2c": ("Discrete", "Box"),
    "dqn": ("Discrete",),
    "qrdqn": ("Discrete",),
    "sac": ("Box",),
    "td3": ("Box",),
}
"""The action spaces that each algorithm can act in."""


@dataclass(frozen=True, slots=True)
class SpaceDescription:
    """A space as JSON can hold it; `n` counts the choices of a Discrete space."""

    kind: str
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    n: int | None = None

    def __str__(self) -> str:
        if self.n is not None:
            return f"{self.kind}({self.n})"
        if self.kind == "Box" and self.shape is not None:
            return f"Box of shape {list(self.shape)}, {self.dtype}"
        return self.kind


@dataclass(frozen=True, slots=True)
class EnvDescription:
    """What one copy of an environment shows a policy, after the spec's wrappers."""

    id: str
    observation: SpaceDescription
    action: SpaceDescription
    max_episode_steps: int | None = None
    reward_threshold: float | None = None


def describe(spec: Spec) -> EnvDescription:
    """Make the spec's environment and say what it is; `SpecInvalid` if it cannot be made."""
    backend = spec.env.backend
    if backend not in vector.GYMNASIUM_BACKENDS and backend not in plugins.names("vector_envs"):
        raise SpecInvalid([_unknown_backend(backend)])
    in_process = "sync" if backend == "async" else backend
    try:
        # Gymnasium warns of what the sentences below say.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            envs = vector.make(spec, num_envs=1, backend=in_process)
    except BadInput:
        raise
    # An environment is somebody else's code: importing or making it may raise anything.
    except Exception as error:
        raise SpecInvalid([refusals.explain(spec, error)]) from error
    try:
        return _described(spec, envs)
    finally:
        envs.close()


def try_out(spec: Spec) -> list[Problem]:
    """Why the environment cannot be reset and stepped; empty if it can. It must be makeable."""
    backend = "sync" if spec.env.backend == "async" else spec.env.backend
    with closing(vector.make(spec, num_envs=1, backend=backend)) as envs:
        try:
            vector.reset(envs, seed=0)
            envs.step(envs.action_space.sample())
        except Exception as error:
            return [refusals.explain(spec, error)]
    return []


def problems(spec: Spec, env: EnvDescription) -> list[Problem]:
    """Why the spec's algorithm cannot learn in this environment; empty if it can."""
    found = [
        _observation_kind(spec, env),
        _action_kind(spec, env),
        _expected_actions(spec, env),
        *_useless_observation_options(spec, env),
        *_left_to_the_plugin(spec),
    ]
    return [problem for problem in found if problem is not None]


def _described(spec: Spec, envs: vector.Envs) -> EnvDescription:
    registered = gymnasium.registry.get(envs.spec.id) if envs.spec else None
    limit = registered.max_episode_steps if registered else None
    return EnvDescription(
        id=spec.env.id,
        observation=_space(envs.single_observation_space),
        action=_space(envs.single_action_space),
        max_episode_steps=spec.env.max_episode_steps or limit,
        reward_threshold=registered.reward_threshold if registered else None,
    )


def _space(space: gymnasium.Space[object]) -> SpaceDescription:
    return SpaceDescription(
        kind=type(space).__name__,
        shape=space.shape,
        dtype=None if space.dtype is None else str(space.dtype),
        n=int(space.n) if isinstance(space, spaces.Discrete) else None,
    )


def _unknown_backend(backend: str) -> Problem:
    known = [*vector.GYMNASIUM_BACKENDS, *plugins.names("vector_envs")]
    return Problem(
        "env.backend",
        backend,
        f"env.backend is {backend!r}; must be one of {', '.join(known)}",
        refusals.did_you_mean(backend, known),
    )


def _observation_kind(spec: Spec, env: EnvDescription) -> Problem | None:
    seen, stacked = env.observation, spec.obs.stack_frames
    if seen.kind == "Discrete" or (seen.kind == "Box" and not _is_image(seen)):
        return None
    if seen.kind == "MultiDiscrete" and stacked is not None:
        return Problem(
            "obs.stack_frames",
            stacked,
            f"obs.stack_frames is {stacked}; only Box observations can be stacked, "
            f"{env.id} has Discrete ones",
            "Leave it out.",
        )
    what = f"images ({seen})" if seen.kind == "Box" else f"{seen.kind} observations"
    return Problem(
        "env.id",
        spec.env.id,
        f"env.id is {spec.env.id!r}, which has {what}; {spec.agent.algorithm} learns "
        "from Box observations that are not images, and from Discrete ones",
        "Flatten them in an environment of your own, registered as `module:Name-v0`.",
    )


def _is_image(space: SpaceDescription) -> bool:
    return space.dtype == "uint8" and len(space.shape or ()) >= 2


def _action_kind(spec: Spec, env: EnvDescription) -> Problem | None:
    algorithm, action = spec.agent.algorithm, env.action
    kinds = ACTION_KINDS[algorithm]
    floats = (action.dtype or "").startswith("float")
    if action.kind in kinds and (action.kind != "Box" or floats):
        return None
    others = [name for name, allowed in ACTION_KINDS.items() if action.kind in allowed]
    return Problem(
        "env.id",
        env.id,
        f"env.id is {env.id!r}, which takes actions of {action}; "
        f"must be {', or '.join(kinds).replace('Box', 'Box of floats')}, for {algorithm}",
        f"For {action.kind} actions there are: {', '.join(others)}." if others else None,
    )


def _expected_actions(spec: Spec, env: EnvDescription) -> Problem | None:
    expected, actual = spec.agent.discrete, env.action.kind == "Discrete"
    if expected is None or expected == actual:
        return None
    return Problem(
        "agent.discrete",
        expected,
        f"agent.discrete is {str(expected).lower()}, but {env.id} takes {env.action.kind} actions",
        f"Set it to {str(actual).lower()}, or leave it out.",
    )


def _useless_observation_options(spec: Spec, env: EnvDescription) -> list[Problem]:
    """One-hot observations are neither normalised nor clipped; asking for it is a mistake."""
    if env.observation.kind != "Discrete":
        return []
    asked = {
        "obs.normalize": spec.obs.normalize if spec.obs.normalize != "none" else None,
        "obs.clip_range": None if spec.obs.clip_range is None else list(spec.obs.clip_range),
    }
    return [
        Problem(
            path,
            value,
            f"{path} is {value!r}, but {env.id} has Discrete observations, which become one-hot",
            "Leave it out.",
        )
        for path, value in asked.items()
        if value is not None
    ]


def _left_to_the_plugin(spec: Spec) -> list[Problem]:
    """Options that wrap single environments; a plugin's vector environment has none to wrap."""
    if spec.env.backend in vector.GYMNASIUM_BACKENDS:
        return []
    asked = {
        "obs.stack_frames": (spec.obs.stack_frames, "stack frames"),
        "env.max_episode_steps": (spec.env.max_episode_steps, "limit its episodes"),
    }
    return [
        Problem(
            path,
            value,
            f"{path} is {value}, but env.backend {spec.env.backend!r} is a plugin, "
            f"which must {what} itself",
            "Leave it out; env.kwargs may hold arguments for the plugin.",
        )
        for path, (value, what) in asked.items()
        if value is not None
    ]
