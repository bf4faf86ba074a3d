"""Numbered episodes of a policy, several side by side: the stuff of evaluations."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from rl_orch.errors import Diverged, RlctlError
from rl_orch.rl.envs import failures, vector
from rl_orch.rl.envs.actions import choices_of
from rl_orch.rl.envs.info_metrics import InfoMetrics
from rl_orch.rl.envs.masks import masks_in
from rl_orch.rl.envs.observations import flatten_observation
from rl_orch.rl.policies.policy import Actor, PolicyInput
from rl_orch.rl.streams import derive
from rl_orch.spec.model import Spec

ENDLESS = 100_000
"""Steps after which an episode that nobody could limit counts as one that never ends."""


class Metric(Protocol):
    """A further number of an episode; plugins of kind `metrics` are classes of these.

    Each episode gets one of its own.
    """

    def step(
        self, action: Any, reward: float, terminated: bool, truncated: bool, info: Mapping[str, Any]
    ) -> None:
        """One step of the episode; the action is what the environment was given."""

    def value(self) -> float:
        """The number, once the episode has ended; a boolean makes the metric a share."""


@dataclass(frozen=True, slots=True)
class PlayedEpisode:
    """A finished episode: its number, the seed of its reset, its return and length.

    `seed` is None where a vector environment seeds episodes in a way of its own. `cut` is whether
    it ended by the limit of the evaluation, and not by the environment's. `shares` are metrics
    whose values were booleans all along. `actions` are as
    the environment was given them, (length, *shape); of the best and the worst episode, where they
    were to be kept.
    """

    number: int
    seed: int | None
    ret: float
    length: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    actions: NDArray[Any] | None = None
    cut: bool = False
    shares: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Extras:
    """Measurements of episodes besides returns: metrics by name, and actions.

    Only the actions of the best and the worst episode are kept; all would not fit into memory.
    """

    metrics: Mapping[str, Callable[[], Metric]] = field(default_factory=dict)
    actions: bool = False

    @property
    def asked(self) -> bool:
        """Whether there is anything besides."""
        return self.actions or bool(self.metrics)


def extremes(played: Iterable[PlayedEpisode]) -> tuple[PlayedEpisode, PlayedEpisode]:
    """The best and the worst of some episodes; the first of those that are alike."""
    episodes = list(played)
    best = min(episodes, key=lambda each: (-each.ret, each.number))
    return best, min(episodes, key=lambda each: (each.ret, each.number))


@dataclass(frozen=True, slots=True)
class EpisodeNumbers:
    """The episodes of a seed that are to be played: as many, from number `first` on.

    `limit` is the number of steps after which the evaluation cuts them, if it does.
    """

    seed: int
    first: int
    count: int
    limit: int | None = None


def play(
    policy: Actor,
    spec: Spec,
    envs: vector.Envs,
    numbers: EpisodeNumbers,
    generator: torch.Generator | None,
    extras: Extras,
    tell: Callable[[int], None],
) -> list[PlayedEpisode]:
    """The episodes of these numbers, in their order.

    `tell` is called with how many are done whenever one is.
    Each lane plays a fixed share: were the first to finish counted, short episodes would be.
    """
    playing = _Playing(envs, spec, numbers, extras)
    resets_next = vector.autoreset(envs) is AutoresetMode.NEXT_STEP
    lanes = envs.num_envs
    resetting = np.zeros(lanes, np.bool_)
    with failures.explained(envs, "in an evaluation"):
        observations, infos = vector.reset(envs, numbers.seed, numbered=True, first=numbers.first)
        begins, memory = np.ones(lanes, np.bool_), None
        masked = spec.agent.action_masks and not spec.runner.traits.serves_policy
        choices = sum(choices_of(envs.single_action_space))
        while playing.left:
            masks = masks_in(infos, lanes, choices) if masked else None
            decision = policy.decide(PolicyInput(observations, begins, memory, masks), generator)
            actions = policy.to_env(decision.actions)
            raw, rewards, terminated, truncated, infos = envs.step(actions)
            observations, memory = (
                flatten_observation(envs.single_observation_space, raw),
                decision.memory,
            )
            ended = np.logical_or(terminated, truncated)
            if playing.note(actions, rewards, terminated, truncated, infos, ended, resetting):
                tell(numbers.count - playing.left)
            begins = resetting if resets_next else ended
            if resets_next:
                resetting = ended
    return playing.played()


class _Playing:
    """Returns, lengths and extras of the episodes of each lane so far."""

    def __init__(
        self, envs: vector.Envs, spec: Spec, numbers: EpisodeNumbers, extras: Extras
    ) -> None:
        lanes = envs.num_envs
        self.left = numbers.count
        self._spec, self._numbers, self._extras = spec, numbers, extras
        self._numbered = vector.numbers_episodes(envs)
        self._limit = ENDLESS if vector.declared_limit(spec, envs) is None else math.inf
        self._shares = [len(range(lane, numbers.count, lanes)) for lane in range(lanes)]
        self._played: list[list[PlayedEpisode]] = [[] for _ in range(lanes)]
        self._kept: tuple[PlayedEpisode, ...] = ()
        self._returns = np.zeros(lanes)
        self._lengths = np.zeros(lanes, np.int64)
        self._watched = [_WatchedLane(extras) for _ in range(lanes)]
        self._infos = InfoMetrics(lanes, spec.env.info_metrics)

    def note(
        self,
        actions: NDArray[Any],
        rewards: NDArray[Any],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        infos: dict[str, Any],
        ended: NDArray[np.bool_],
        resetting: NDArray[np.bool_],
    ) -> bool:
        """Add a step to the episodes under way, and say whether one has ended."""
        self._returns += np.where(resetting, 0.0, rewards)
        self._lengths += ~resetting
        if infos or self._infos.names:
            self._infos.note(infos, ended, ~resetting)
        if self._extras.asked:
            for lane in np.flatnonzero(~resetting).tolist():
                over = bool(terminated[lane]), bool(truncated[lane])
                ends = bool(ended[lane])
                info = _info(infos, lane, ended=ends) if self._extras.metrics else {}
                self._watched[lane].step(actions[lane], float(rewards[lane]), *over, info)
        if not ended.any():
            self._refuse_endless()
            return False
        for lane in np.flatnonzero(ended).tolist():
            self._end(lane, truncated=bool(truncated[lane] and not terminated[lane]))
        return True

    def played(self) -> list[PlayedEpisode]:
        """All episodes by number; round k of lane i is episode i + k · lanes."""
        rounds, kept = range(max(self._shares)), {each.number: each for each in self._kept}
        episodes = (lane[k] for k in rounds for lane in self._played if k < len(lane))
        return [kept.get(each.number, each) for each in episodes]

    def _end(self, lane: int, *, truncated: bool) -> None:
        done, numbers = self._played[lane], self._numbers
        if len(done) < self._shares[lane]:
            number = numbers.first + lane + len(done) * len(self._shares)
            seed = derive(numbers.seed, number) if self._numbered else None
            ret, length = _finite(self._returns[lane]), int(self._lengths[lane])
            cut = truncated and length == numbers.limit
            measured, actions = self._watched[lane].results()
            shares = self._infos.shares - {*measured} | _booleans(measured)
            metrics = self._infos.finish(lane) | {name: float(n) for name, n in measured.items()}
            self._add(done, PlayedEpisode(number, seed, ret, length, metrics, actions, cut, shares))
            self.left -= 1
        self._infos.finish(lane)
        self._returns[lane], self._lengths[lane] = 0.0, 0
        self._watched[lane] = _WatchedLane(self._extras)

    def _add(self, done: list[PlayedEpisode], ended: PlayedEpisode) -> None:
        """Note an episode; its actions only while none is better, or none worse."""
        if ended.actions is not None:
            self._kept = extremes([*self._kept, ended])
        done.append(replace(ended, actions=None))

    def _refuse_endless(self) -> None:
        if self._lengths.max() > self._limit:
            raise RlctlError(
                f"an evaluation episode of {self._spec.env.id} has not ended after "
                f"{ENDLESS} steps, and the environment has no time limit",
                path="env.backend",
                hint=f"env.backend {self._spec.env.backend!r} must limit its episodes itself, or "
                "use env.backend=sync with eval.max_episode_steps.",
            )


class _WatchedLane:
    """The metrics and the actions of the episode that a lane is in."""

    def __init__(self, extras: Extras) -> None:
        self._metrics = {name: make() for name, make in extras.metrics.items()}
        self._actions: list[NDArray[Any]] | None = [] if extras.actions else None

    def step(
        self, action: Any, reward: float, terminated: bool, truncated: bool, info: dict[str, Any]
    ) -> None:
        """One step of the episode."""
        for metric in self._metrics.values():
            metric.step(action, reward, terminated, truncated, info)
        if self._actions is not None:
            self._actions.append(np.array(action))

    def results(self) -> tuple[dict[str, float], NDArray[Any] | None]:
        """The metrics by name, and all actions."""
        values = {name: metric.value() for name, metric in self._metrics.items()}
        return values, None if self._actions is None else np.stack(self._actions)


def _info(infos: Mapping[str, Any], lane: int, *, ended: bool) -> dict[str, Any]:
    """The info of one lane in this step; as its environment would have given it alone."""
    source = infos
    if ended and isinstance(infos.get("final_info"), Mapping):
        source = infos["final_info"]
    info: dict[str, Any] = {}
    for name, values in source.items():
        there = source.get(f"_{name}")
        if name.startswith("_") or there is None or not there[lane]:
            continue
        nested = isinstance(values, Mapping)
        info[name] = _info(values, lane, ended=False) if nested else values[lane]
    return info


def _booleans(metrics: Mapping[str, float]) -> frozenset[str]:
    return frozenset(name for name, each in metrics.items() if isinstance(each, bool | np.bool_))


def _finite(ret: Any) -> float:
    if not math.isfinite(ret):
        raise Diverged(f"an evaluation episode has a return of {ret}")
    return float(ret)
