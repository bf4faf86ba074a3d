"""Descriptions of environments, and reasons why an algorithm cannot learn in one.

`describe` makes the environment once and closes it. `problems` is pure.
"""

import re
import warnings
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation

from rl_orch import plugins
from rl_orch.errors import BadInput, Problem, SpecInvalid
from rl_orch.rl.envs import refusals, vector
from rl_orch.rl.envs.goals import why_no_goals
from rl_orch.rl.envs.leaves import Leaf, leaves_of, seeable_keys
from rl_orch.rl.envs.leaves import problems as encoder_problems
from rl_orch.rl.envs.observations import flat_space
from rl_orch.spec import checks
from rl_orch.spec.algorithms import BUILT_IN, Traits
from rl_orch.spec.model import Spec


@dataclass(frozen=True, slots=True)
class SpaceDescription:
    """A space as JSON can hold it; `n` counts the choices of a Discrete space, `bounded` says
    whether all numbers of a Box have finite bounds."""

    kind: str
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    n: int | None = None
    bounded: bool = True

    def __str__(self) -> str:
        if self.n is not None:
            return f"{self.kind}({self.n})"
        if self.kind == "Box" and self.shape is not None:
            return f"Box of shape {list(self.shape)}, {self.dtype}"
        return self.kind


@dataclass(frozen=True, slots=True)
class EnvDescription:
    """One copy of an environment as a policy sees it, after the spec's wrappers.

    `id` is whole, with the newest version where the spec names none;
    `leaves` are the parts of its observations by name, or `unseeable` says why there are none, and
    `seeable` has the keys of those that could be;
    `unstackable` is a kind of part whose frames are stacked, but cannot be; `goalless` says why
    its episodes cannot be told with other goals, if they are to be.
    """

    id: str
    observation: SpaceDescription
    action: SpaceDescription
    leaves: Mapping[str, Leaf] = field(default_factory=dict)
    unseeable: str | None = None
    unstackable: str | None = None
    goalless: str | None = None
    max_episode_steps: int | None = None
    reward_threshold: float | None = None
    seeable: tuple[str, ...] = ()


def describe(spec: Spec) -> EnvDescription:
    """Make the spec's environment and say what it is; `SpecInvalid` if it cannot be made."""
    backend = spec.env.backend
    if (
        backend not in vector.BACKENDS
        and backend not in plugins.names("vector_envs")
        and not plugins.is_importable(backend)
    ):
        raise SpecInvalid([_unknown_backend(backend)])
    if backend == vector.NATIVE:
        vector.refuse_unless_native(spec)
    try:
        # Gymnasium warns of what the sentences below say.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            envs = vector.make(spec, num_envs=1, backend=in_process(backend))
    except BadInput:
        raise
    # An environment is somebody else's code: importing or making it may raise anything.
    except (Exception, SystemExit) as error:
        raise SpecInvalid([refusals.explain(spec, error)]) from error
    with closing(envs):
        return _described(spec, envs)


def problems(spec: Spec, env: EnvDescription) -> list[Problem]:
    """The reasons why the spec's algorithm cannot learn in this environment; empty if it can."""
    traits = traits_of(spec.agent.algorithm)
    problems = [
        _observation_kind(spec, env),
        _action_kind(spec, env, traits),
        _action_bounds(spec, env, traits),
        _expected_actions(spec, env),
        _expected_policy(spec, env),
        *_encoders(spec, env),
        _maskable(spec, env),
        _retellable(spec, env),
        *_useless_observation_options(spec, env),
        *_left_to_the_plugin(spec),
        *([] if spec.agent.algorithm in BUILT_IN else checks.pairing(spec, traits)),
    ]
    return [problem for problem in problems if problem is not None]


def named(spec: Spec, env: EnvDescription) -> tuple[Spec, list[Problem]]:
    """The spec with the whole id of its environment, and a warning where it left out a part."""
    if env.id == spec.env.id:
        return spec, []
    message = f"{spec.env.id} is {env.id}, its newest version"
    return spec.changed({"env.id": env.id}), [Problem("env.id", spec.env.id, message)]


def in_process(backend: str) -> str:
    """The backend of the same episodes without processes and without kernels."""
    return "sync" if backend in vector.BACKENDS else backend


def traits_of(algorithm: str) -> Traits:
    """The traits of an algorithm; a plugin has to be loaded for them."""
    if algorithm in BUILT_IN:
        return BUILT_IN[algorithm]
    try:
        plugin = plugins.load("algorithms", algorithm)
    except BadInput:
        raise
    # A plugin is somebody else's code: importing it may raise anything.
    except Exception as error:
        what = f"importing it failed: {type(error).__name__}: {error}"
        raise SpecInvalid([_about_algorithm(algorithm, what)]) from error
    traits = getattr(plugin, "traits", None)
    if not isinstance(traits, Traits):
        what = "its class has no `traits` of type rl_orch.spec.algorithms.Traits"
        raise SpecInvalid([_about_algorithm(algorithm, what)])
    if not callable(getattr(plugin, "build_policy", None)):
        what = "its class has no method build_policy(setup)"
        raise SpecInvalid([_about_algorithm(algorithm, what)])
    return traits


def _about_algorithm(name: str, what: str) -> Problem:
    message = f"agent.algorithm is {name!r}, a plugin; {what}"
    return Problem("agent.algorithm", name, message, "See docs/adding-an-algorithm.md.")


def _described(spec: Spec, envs: vector.Envs) -> EnvDescription:
    registered = gymnasium.registry.get(envs.spec.id) if envs.spec else None
    limit = registered.max_episode_steps if registered else None
    leaves: Mapping[str, Leaf] = {}
    unseeable: str | None = None
    seeable: tuple[str, ...] = ()
    stacked = spec.obs.stack_frames is not None
    try:
        leaves = leaves_of(envs.single_observation_space, stacked=stacked)
    except BadInput as error:
        unseeable = error.message
        seeable = seeable_keys(envs.single_observation_space, stacked=stacked)
    return EnvDescription(
        id=_whole_id(spec, envs),
        observation=_space(envs.single_observation_space),
        action=_space(envs.single_action_space),
        leaves=leaves,
        unseeable=unseeable,
        unstackable=_unstackable(envs) if spec.obs.stack_frames is not None else None,
        goalless=why_no_goals(envs) if spec.buffer.her_strategy else None,
        max_episode_steps=spec.env.max_episode_steps or limit,
        reward_threshold=registered.reward_threshold if registered else None,
        seeable=seeable,
    )


def _whole_id(spec: Spec, envs: vector.Envs) -> str:
    """The spec's id, with the version that was made where it leaves that out."""
    module, colon, name = spec.env.id.rpartition(":")
    made = envs.spec.id if envs.spec else name
    return (
        f"{module}{colon}{made}"
        if re.fullmatch(f"{re.escape(name)}-v[0-9]+", made)
        else spec.env.id
    )


def _unstackable(envs: vector.Envs) -> str | None:
    """The kind of a stacked part that is no Box; None where all are."""
    copies: Any = getattr(envs.unwrapped, "envs", ())
    layer = copies[0] if copies else None
    while isinstance(layer, gymnasium.Wrapper) and not isinstance(layer, FrameStackObservation):
        layer = layer.env
    if not isinstance(layer, FrameStackObservation):
        return None
    frame = flat_space(layer.env.observation_space)
    parts = frame.values() if isinstance(frame, spaces.Dict) else [frame]
    return next((type(part).__name__ for part in parts if not isinstance(part, spaces.Box)), None)


def _space(space: gymnasium.Space[object]) -> SpaceDescription:
    return SpaceDescription(
        kind=type(space).__name__,
        shape=space.shape,
        dtype=None if space.dtype is None else str(space.dtype),
        n=int(space.n) if isinstance(space, spaces.Discrete) else None,
        bounded=not isinstance(space, spaces.Box) or space.is_bounded(),
    )


def _unknown_backend(backend: str) -> Problem:
    backends = [*vector.BACKENDS, *plugins.names("vector_envs")]
    return Problem(
        "env.backend",
        backend,
        f"env.backend is {backend!r}; must be one of {', '.join(backends)}",
        refusals.did_you_mean(backend, backends),
    )


def _observation_kind(spec: Spec, env: EnvDescription) -> Problem | None:
    stacked = spec.obs.stack_frames
    if env.unseeable is not None:
        return Problem(
            "env.id",
            spec.env.id,
            f"env.id is {spec.env.id!r}; {env.unseeable}",
            refusals.how_to_see(spec.env.id, env.seeable),
        )
    if env.unstackable is not None:
        return Problem(
            "obs.stack_frames",
            stacked,
            f"obs.stack_frames is {stacked}; only Box observations can be stacked, "
            f"{env.id} has {env.unstackable} ones",
            "Leave it out.",
        )
    return None


def _action_kind(spec: Spec, env: EnvDescription, traits: Traits) -> Problem | None:
    algorithm, action = spec.agent.algorithm, env.action
    floats = (action.dtype or "").startswith("float")
    if action.kind in traits.actions and (action.kind != "Box" or floats):
        return None
    others = [name for name, traits in BUILT_IN.items() if action.kind in traits.actions]
    others = others if action.kind != "Box" or floats else []
    return Problem(
        "env.id",
        env.id,
        f"env.id is {env.id!r}, which takes actions of {action}; "
        f"must be {', or '.join(traits.actions).replace('Box', 'Box of floats')}, for {algorithm}",
        f"For {action.kind} actions there are: {', '.join(others)}." if others else None,
    )


def _action_bounds(spec: Spec, env: EnvDescription, traits: Traits) -> Problem | None:
    """Squashed actions are stretched to bounds, so that there must be some."""
    if not traits.bounded_actions or env.action.bounded:
        return None
    return Problem(
        "env.id",
        env.id,
        f"env.id is {env.id!r}, whose actions have no bounds; {spec.agent.algorithm} needs them",
        "Use ppo or a2c, or name a wrapper of your own with a bounded action_space, "
        "env.wrappers=[module:Class]; docs/custom-environments.md has one to copy.",
    )


def _expected_policy(spec: Spec, env: EnvDescription) -> Problem | None:
    expected, kind = spec.agent.policy_type, env.observation.kind
    if expected is None or env.unseeable is not None:
        return None
    images = any(leaf.kind == "image" for leaf in env.leaves.values())
    actual = "MlpPolicy"
    if kind in ("Dict", "Tuple"):
        actual = "MultiInputPolicy"
    elif images:
        actual = "CnnPolicy"
    flattened = spec.feature.encoder == "mlp" and expected == "MlpPolicy"
    if expected == actual or (flattened and actual == "CnnPolicy"):
        return None
    return Problem(
        "agent.policy_type",
        expected,
        f"agent.policy_type is {expected!r}, but {env.id} has {env.observation} observations",
        f"Set it to {actual!r}, or leave it out."
        + (" With feature.encoder mlp, images are flattened." if actual == "CnnPolicy" else ""),
    )


def _encoders(spec: Spec, env: EnvDescription) -> list[Problem]:
    encoder = spec.feature.encoder
    sentences = encoder_problems(encoder, env.leaves) if env.leaves else []
    return [Problem("feature.encoder", encoder, sentence) for sentence in sentences]


def _maskable(spec: Spec, env: EnvDescription) -> Problem | None:
    """Masks say which choices are allowed, so that there must be choices."""
    if not spec.agent.action_masks or env.action.kind in ("Discrete", "MultiDiscrete"):
        return None
    return Problem(
        "agent.action_masks",
        True,
        f"agent.action_masks is true, but {env.id} takes {env.action.kind} actions; "
        "only Discrete and MultiDiscrete ones can be masked",
        "Leave it out.",
    )


def _retellable(spec: Spec, env: EnvDescription) -> Problem | None:
    """Other goals need an environment that shows goals and pays for any of them."""
    strategy = spec.buffer.her_strategy
    if env.goalless is None or not traits_of(spec.agent.algorithm).off_policy:
        return None
    message = f"buffer.her_strategy is {strategy!r}, but of {env.id} {env.goalless}"
    hint = "Leave it out, or see docs/her.md for what an environment with goals has."
    return Problem("buffer.her_strategy", strategy, message, hint)


def _expected_actions(spec: Spec, env: EnvDescription) -> Problem | None:
    expected, actual = spec.agent.discrete, env.action.kind != "Box"
    if expected is None or expected == actual:
        return None
    return Problem(
        "agent.discrete",
        expected,
        f"agent.discrete is {str(expected).lower()}, but {env.id} takes {env.action.kind} actions",
        f"Set it to {str(actual).lower()}, or leave it out.",
    )


def _useless_observation_options(spec: Spec, env: EnvDescription) -> list[Problem]:
    """Images and choices are neither normalised nor clipped; asking for it is a mistake."""
    if env.unseeable is not None or any(leaf.measured for leaf in env.leaves.values()):
        return []
    images = any(leaf.kind == "image" for leaf in env.leaves.values())
    which = "whose pixels are scaled already" if images else "which are not measured numbers"
    asked = {
        "obs.normalize": spec.obs.normalize if spec.obs.normalize != "none" else None,
        "obs.clip_range": None if spec.obs.clip_range is None else list(spec.obs.clip_range),
    }
    return [
        Problem(
            path,
            value,
            f"{path} is {value!r}, but {env.id} has {env.observation.kind} observations, {which}",
            "Leave it out.",
        )
        for path, value in asked.items()
        if value is not None
    ]


def _left_to_the_plugin(spec: Spec) -> list[Problem]:
    """Options that wrap single environments; a plugin's vector environment has none to wrap."""
    if spec.env.backend in vector.BACKENDS:
        return []
    asked: dict[str, tuple[Any, str]] = {
        "obs.stack_frames": (spec.obs.stack_frames, "stack frames"),
        "env.wrappers": (list(spec.env.wrappers) or None, "wrap its copies"),
    }
    if spec.env.backend not in vector.LIMITING:
        for path in ("env.max_episode_steps", "eval.max_episode_steps"):
            asked[path] = (checks.value_at(spec, path), "limit its episodes")
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
