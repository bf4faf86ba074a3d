"""`try_out`: a short random episode of a spec's environment, before anything is trained.

What cannot be stepped is a problem; what can, but will surprise, is a warning.
"""

import re
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from rl_orch.errors import BadInput, Problem
from rl_orch.records.reports import SUCCESS, SUCCESS_KEYS, TERMS, info_metric
from rl_orch.rl.envs import refusals, vector
from rl_orch.rl.envs.actions import choices_of
from rl_orch.rl.envs.describe import in_process, traits_of
from rl_orch.rl.envs.goals import ACHIEVED, DESIRED, Rewards, goal_rewards
from rl_orch.rl.envs.info_metrics import InfoMetrics
from rl_orch.rl.envs.masks import allowed_action, masks_in
from rl_orch.rl.envs.observations import flat_space, flatten_observation, misfit
from rl_orch.spec import checks
from rl_orch.spec.model import Spec

TRIAL_S = 1.0
TRIAL_STEPS = 1_000
"""How long the episode may last; a slow environment is stepped once at least."""

WHITE = 255
"""The greatest value of a pixel."""

TOLERANCE = 1e-5
"""How far beyond a bound, relatively, a number may be by rounding alone."""

REWARD_TOLERANCE = 1e-3
"""How far the reward of a step and that of its goals may differ, relatively, since observations are
often of less precision than the environment's own numbers."""

UNPACKED = re.compile(r"values to unpack \(expected (\d+)(?:, got (\d+))?\)")
RESET = "Write it as `def reset(self, *, seed=None, options=None)`, and return (observation, info)."
STEP = "Return (observation, reward, terminated, truncated, info)."

RECORDED = (
    "Numbers and booleans are recorded: info['is_success'] as success_rate, reward terms as keys "
    "reward_… of info, others where env.info_metrics lists their keys."
)


@dataclass(slots=True)
class EnvTrial:
    """Reasons why an environment, once made, cannot be trained in; and what is worth a warning."""

    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)


def try_out(spec: Spec) -> EnvTrial:
    """Play a random episode of the spec's environment for a while, and say what was seen."""
    with closing(vector.make(spec, num_envs=1, backend=in_process(spec.env.backend))) as envs:
        episode = _RandomEpisode(spec, envs)
        try:
            episode.play()
            episode.doing = "a step of all copies together"
            _step_together(spec, envs)
        except BadInput as error:
            path = error.path or "env.id"
            value = checks.value_at(spec, path)
            return EnvTrial([Problem(path, value, error.message, error.hint)])
        # An environment is somebody else's code: stepping it may raise anything.
        except (Exception, SystemExit) as error:
            return EnvTrial([refusals.explain(spec, error, episode.doing)])
        warnings = [*episode.warnings.values(), *episode.without_limit(), *episode.unrecorded()]
        return EnvTrial(warnings=[*warnings, *_unscaled(spec, envs.single_observation_space)])


class _RandomEpisode:
    """One episode of one copy, or of a vector environment that is not made of single ones."""

    def __init__(self, spec: Spec, envs: vector.Envs) -> None:
        copies: Any = getattr(envs.unwrapped, "envs", None)
        self._spec, self._single = spec, bool(copies)
        self._env: Any = copies[0] if copies else envs
        self._space = self._env.observation_space
        self._actions = envs.single_action_space
        self._limited = vector.declared_limit(spec, envs) is not None or _limits(self._env)
        self._steps, self._ended = 0, False
        self._vector: Any = envs.unwrapped
        self._info_metrics = InfoMetrics(envs.num_envs, spec.env.info_metrics)
        self._info_types: dict[str, str] = {}
        self._goal_rewards: Rewards | None = None
        self.warnings: dict[str, Problem] = {}
        self.doing = "its reset"

    def play(self) -> None:
        """Reset and step until the episode ends or took long enough; raise what stands in the
        way."""
        self._goal_rewards = goal_rewards(self._spec) if _retells(self._spec) else None
        info = self._reset()
        end = time.monotonic() + TRIAL_S
        self._env.action_space.seed(0)
        while not self._ended and self._steps < TRIAL_STEPS:
            info = self._step(self._action(info))
            if time.monotonic() > end:
                break

    def without_limit(self) -> list[Problem]:
        """The warning that episodes may last for ever, where nothing limits them."""
        if self._limited or (self._ended and not self._single):
            return []
        env_id, steps = self._spec.env.id, f"{self._steps:,} steps"
        message = (
            f"no time limit of {env_id} is known; a random episode ended after {steps}, but one of "
            "another policy may not"
            if self._ended
            else f"{env_id} has no time limit, so a policy may play for ever; a random episode had "
            f"not ended after {steps}"
        )
        hint = "Set env.max_episode_steps; without it, only evaluations cut their episodes."
        return [Problem("env.max_episode_steps", None, message, hint)]

    def unrecorded(self) -> list[Problem]:
        """Warnings of metrics that a gate or an option reads, but that would not be recorded."""
        spec, recorded = self._spec, self._info_metrics.finish(0)
        asked: dict[str, str] = dict.fromkeys(spec.env.info_metrics, "env.info_metrics")
        asked |= dict.fromkeys(spec.gates.metrics, "gates.metrics")
        asked |= {} if spec.gates.min_success_rate is None else {SUCCESS: "gates.min_success_rate"}
        return [
            self._unrecorded(name, path)
            for name, path in asked.items()
            if name not in spec.eval.metrics and not _is_recorded(name, path, recorded)
        ]

    def _unrecorded(self, name: str, path: str) -> Problem:
        message = (
            f"{path} reads {name}, but a random episode of {self._steps:,} steps recorded no such "
            "number"
        )
        keys = SUCCESS_KEYS if info_metric(name) == SUCCESS else (name,)
        types = [
            f"info[{key!r}] is of type {self._info_types[key]}"
            for key in keys
            if key in self._info_types
        ]
        return Problem(path, name, "; ".join([message, *types]), RECORDED)

    def _reset(self) -> Any:
        try:
            observation, info = self._env.reset(seed=0)
        except TypeError as error:
            if "unexpected keyword argument" in str(error):
                raise self._refused(f"its reset cannot be seeded: {error}", RESET) from error
            raise
        except ValueError as error:
            if UNPACKED.search(str(error)):
                raise self._refused("its reset does not give two values", RESET) from error
            raise
        if not isinstance(info, Mapping):
            what = f"its reset gives {type(info).__name__} as info; must be a dict"
            raise self._refused(what, RESET)
        self._look(observation)
        return info

    def _step(self, action: Any) -> Any:
        self.doing = f"its step {self._steps + 1}"
        try:
            observation, reward, terminated, truncated, info = self._env.step(action)
        except ValueError as error:
            seen = UNPACKED.search(str(error))
            if seen is None or seen[1] != "5":
                raise
            count = f"{seen[2]} values" if seen[2] else "too many values"
            raise self._refused(f"its step gives {count}; must be 5", STEP) from error
        self._steps += 1
        self._look(observation)
        self._look_at_reward(reward)
        self._compare_reward(observation, reward)
        self._ended = bool(np.any(terminated) or np.any(truncated))
        self._limited |= bool(np.any(truncated))
        self._note(info)
        return info

    def _note(self, info: Any) -> None:
        """Take an info in as training does, for which infos of all copies are made one."""
        infos = info
        if self._single:
            self._info_types |= {key: type(info[key]).__name__ for key in info}
            infos = self._vector._add_info({}, info, 0)
            self._look_at_success(info)
        copies = self._vector.num_envs
        self._info_metrics.note(infos, np.full(copies, self._ended), np.ones(copies, np.bool_))

    def _action(self, info: Any) -> Any:
        if not self._spec.agent.action_masks:
            return self._env.action_space.sample()
        action = allowed_action(self._actions, _mask(self._actions, info))
        return action[0] if self._single else action

    def _look(self, observation: Any) -> None:
        what = misfit(self._space, observation)
        if what is not None:
            raise self._refused(f"it gives {what}", "Make its observation_space say what it gives.")
        for name, sentence in strange(self._space, observation).items():
            self._warn(name, f"{self._spec.env.id} gives {sentence}")

    def _look_at_reward(self, reward: Any) -> None:
        number = np.asarray(reward)
        if number.dtype.kind not in "iufb" or (self._single and number.ndim):
            what = f"its step gives a reward of {reward!r}; must be a number"
            raise self._refused(what, STEP)
        if not np.isfinite(number).all():
            self._warn("reward", f"{self._spec.env.id} gives a reward of {reward}")

    def _look_at_success(self, info: Mapping[str, Any]) -> None:
        for key in SUCCESS_KEYS:
            number = np.asarray(info.get(key))
            if number.ndim == 0 and number.dtype.kind in "iuf" and number not in (0, 1):
                said = f"{self._spec.env.id} gives info[{key!r}] = {number}"
                self._warn(key, f"{said}, which does not count: success is true or false, 1 or 0")

    def _compare_reward(self, observation: Any, reward: Any) -> None:
        """Refuse a reward that hindsight would not give for the goal of the step."""
        if self._goal_rewards is None:
            return
        seen = flatten_observation(self._space, observation)
        (again,) = self._goal_rewards(seen[ACHIEVED][None], seen[DESIRED][None])
        tolerance = REWARD_TOLERANCE
        if np.isclose(reward, again, rtol=tolerance, atol=tolerance, equal_nan=True):
            return
        raise BadInput(
            f"buffer.her_strategy is set, but step {self._steps} of a random episode had a reward "
            f"of {float(reward):g}, and compute_reward gives {again:g} for its goals; hindsight "
            "would mix the two",
            path="buffer.her_strategy",
            hint="Take wrappers that change rewards or goals out of env.wrappers, or put what they "
            "do into the environment: compute_reward must give what step does.",
        )

    def _warn(self, name: str, sentence: str) -> None:
        message = f"{sentence}, in step {self._steps} of a random episode"
        self.warnings.setdefault(name, Problem("env.id", self._spec.env.id, message))

    def _refused(self, what: str, hint: str) -> BadInput:
        env_id = self._spec.env.id
        return BadInput(f"env.id is {env_id!r}; {what}", path="env.id", hint=hint)


def _unscaled(spec: Spec, space: Any) -> list[Problem]:
    """The warning that pixels are numbers here, which nothing scales."""
    flat = flat_space(space)
    parts = [*flat.values()] if isinstance(flat, spaces.Dict) else [flat]
    if spec.obs.normalize != "none" or not any(map(_is_of_pixels, parts)):
        return []
    message = (
        f"{spec.env.id} shows pixels as floats in [0, {WHITE}], which are taken for a vector of "
        "numbers, and are neither scaled nor convolved"
    )
    hint = "Let its observation_space be of uint8, or set obs.normalize=running."
    return [Problem("obs.normalize", spec.obs.normalize, message, hint)]


def _is_of_pixels(space: Any) -> bool:
    if not isinstance(space, spaces.Box) or space.dtype is None or space.dtype.kind != "f":
        return False
    return len(space.shape) > 1 and bool((space.low == 0).all() and (space.high == WHITE).all())


def _retells(spec: Spec) -> bool:
    """Whether transitions will be given other goals."""
    return spec.buffer.her_strategy is not None and traits_of(spec.agent.algorithm).off_policy


def _is_recorded(name: str, path: str, recorded: Mapping[str, float]) -> bool:
    """Whether a metric is among those of an episode; options name keys of info, gates metrics."""
    if path != "env.info_metrics":
        return name in recorded
    return name == TERMS or info_metric(name) in recorded


def strange(space: Any, value: Any, name: str = "observation") -> dict[str, str]:
    """What is not finite or outside the space, in a value of the right shape; by name."""
    if isinstance(space, spaces.Dict):
        parts = [(space[key], value[key], f"{name}[{key!r}]") for key in space]
        return {key: said for part in parts for key, said in strange(*part).items()}
    if isinstance(space, spaces.Tuple):
        inner = zip(space, value, range(len(space)), strict=True)
        return {
            key: said for s, v, n in inner for key, said in strange(s, v, f"{name}[{n}]").items()
        }
    array = np.asarray(value)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return {name: f"{name} with a number that is not finite"}
    bounds = _bounds(space)
    if bounds is None or array.dtype.kind not in "iufb":
        return {}
    low, high = (np.broadcast_to(bound, array.shape) for bound in bounds)
    numbers = array.astype(np.float64)
    outside = (numbers < low - TOLERANCE * np.maximum(1, abs(low))) | (
        numbers > high + TOLERANCE * np.maximum(1, abs(high))
    )
    if not outside.any():
        return {}
    place = tuple(int(index) for index in np.argwhere(outside)[0])
    where = f"{name}[{', '.join(map(str, place))}]" if place else name
    allowed = f"[{low[place]:g}, {high[place]:g}]"
    return {name: f"{where} = {numbers[place]:g}, outside {allowed}, the bounds of its space"}


def _bounds(space: Any) -> tuple[Any, Any] | None:
    if isinstance(space, spaces.Box):
        return space.low.astype(np.float64), space.high.astype(np.float64)
    if isinstance(space, spaces.Discrete):
        return float(space.start), float(space.start + space.n - 1)
    if isinstance(space, spaces.MultiDiscrete):
        start = space.start.astype(np.float64)
        return start, start + space.nvec - 1
    return (0.0, 1.0) if isinstance(space, spaces.MultiBinary) else None


def _limits(env: Any) -> bool:
    """Whether a wrapper limits the episodes of a single environment."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            return True
        env = env.env
    return False


def _step_together(spec: Spec, envs: vector.Envs) -> None:
    """One step as training makes it, of which the infos of all copies become one."""
    infos = vector.reset(envs, seed=0).infos
    space, masked = envs.single_action_space, spec.agent.action_masks
    action = allowed_action(space, _mask(space, infos)) if masked else envs.action_space.sample()
    stepped = envs.step(action)
    if masked:
        masks_in(stepped[-1], 1, sum(choices_of(space)))


def _mask(space: Any, infos: Any) -> Any:
    mask = masks_in(infos, 1, sum(choices_of(space)))[0]
    if not mask.any():
        raise BadInput(
            "an action mask of the environment forbids every action",
            path="agent.action_masks",
        )
    return mask
