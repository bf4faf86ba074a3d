"""Whole rollouts in one call: a policy in kernels decides, native environments step.

What is collected is what a collector would have collected step by step from the same noise.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rl_orch.rl.envs.native.dynamics import observe_one, step_choice, step_move
from rl_orch.rl.envs.native.envs import NativeEnvs
from rl_orch.rl.jit import Floats, kernel, part
from rl_orch.rl.kernels.act import (
    BOUNDED,
    CHOICE,
    NORMAL,
    VALUES,
    KernelActor,
    KernelHead,
    KernelPolicy,
)
from rl_orch.rl.kernels.dense import forward, tanh
from rl_orch.rl.policies.exploration import EpsilonGreedy, NoisyActions
from rl_orch.rl.policies.policy import Actor, Traced

SPARE_STARTS = 4
"""Episodes whose beginnings are worked out ahead, for each copy."""


class Worlds(NamedTuple):
    """Native environments: their dynamics, where each copy is, and how its next episodes begin.

    `starts` (N, K, 4) and `shown` (N, K, I) are the states and observations of the next episodes of
    each copy, of which `used` (N,) have begun.
    """

    kind: int
    state: NDArray[np.float64]
    elapsed: NDArray[np.int64]
    limit: int
    starts: NDArray[np.float64]
    shown: NDArray[np.float32]
    used: NDArray[np.int64]


class Taken(NamedTuple):
    """The columns of n steps of N copies, (n, N, ...); observations have n + 1.

    Of actions, `choices` or `moves` counts; `finals` are the last observations of episodes.
    """

    observations: NDArray[np.float32]
    choices: NDArray[np.int64]
    moves: NDArray[np.float32]
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    finals: NDArray[np.float32]


class Behaviour(NamedTuple):
    """The exploration of actions: the share of random choices; the deviation of noise that is added
    to bounded actions; or noise alone."""

    epsilon: float = 0.0
    deviation: float = 0.0
    random: bool = False


class Scale(NamedTuple):
    """Normalisation of observations: less the mean, over the deviation, clipped; (I,) each."""

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    low: float
    high: float


@kernel
def take_choices(
    worlds: Worlds,
    policy: KernelPolicy,
    behaviour: Behaviour,
    noise: NDArray[np.float32],
    draws: NDArray[np.float32],
    scale: Scale,
    taken: Taken,
    begin: int,
) -> int:
    """Steps from `begin` on; returns how many are done, which is less than all if the beginning of
    an episode is missing. Noise is (n, N, ·), draws (n, N)."""
    copies, head, flow = len(worlds.state), policy.head, policy.flow
    for t in range(begin, len(taken.rewards)):
        if not _look(worlds, scale, taken, t, flow):
            return t
        forward(policy.vector, policy.table, copies, flow)
        for i in range(copies):
            at = copies * head.place + i * head.actions * head.each
            best = _choice(head, flow, at, noise[t, i])
            if head.kind == VALUES and draws[t, i] < behaviour.epsilon:
                best = _greatest(noise[t, i])
            taken.choices[t, i] = best
            reward, terminated = step_choice(worlds.kind, worlds.state[i], taken.choices[t, i])
            _note(worlds, taken, t, i, reward, terminated)
    return len(taken.rewards)


@kernel
def take_moves(
    worlds: Worlds,
    policy: KernelPolicy,
    behaviour: Behaviour,
    noise: NDArray[np.float32],
    scale: Scale,
    low: float,
    high: float,
    taken: Taken,
    begin: int,
) -> int:
    """As `take_choices`, for actions that are a number between bounds."""
    copies, head, flow = len(worlds.state), policy.head, policy.flow
    for t in range(begin, len(taken.rewards)):
        if not _look(worlds, scale, taken, t, flow):
            return t
        forward(policy.vector, policy.table, copies, flow)
        for i in range(copies):
            at = copies * head.place + i * head.each
            move = _move(policy, at, noise[t, i, 0], behaviour)
            taken.moves[t, i, 0] = move
            given = float(move)
            if head.kind != NORMAL:
                given = low + (given + 1.0) / 2.0 * (high - low)
            given = min(max(given, low), high)
            reward, terminated = step_move(worlds.kind, worlds.state[i], np.float32(given))
            _note(worlds, taken, t, i, reward, terminated)
    return len(taken.rewards)


@part
def _look(worlds: Worlds, scale: Scale, taken: Taken, t: int, flow: Floats) -> bool:
    """Show the policy what all copies show; false if the beginning of an episode is missing."""
    width = taken.observations.shape[2]
    for i in range(len(worlds.state)):
        if worlds.used[i] == worlds.starts.shape[1]:
            return False
        for column in range(width):
            seen = float(taken.observations[t, i, column])
            seen = (seen - scale.mean[column]) / scale.deviation[column]
            flow[i * width + column] = min(max(seen, scale.low), scale.high)
    return True


@part
def _note(worlds: Worlds, taken: Taken, t: int, i: int, reward: float, terminated: bool) -> None:
    """Note a step of copy i, and begin its next episode if it ended one."""
    worlds.elapsed[i] += 1
    truncated = worlds.elapsed[i] >= worlds.limit
    taken.rewards[t, i] = reward
    taken.terminated[t, i] = terminated
    taken.truncated[t, i] = truncated
    observe_one(worlds.kind, worlds.state[i], taken.observations[t + 1, i])
    if terminated or truncated:
        start = worlds.used[i]
        for column in range(taken.observations.shape[2]):
            taken.finals[t, i, column] = taken.observations[t + 1, i, column]
            taken.observations[t + 1, i, column] = worlds.shown[i, start, column]
        for column in range(worlds.state.shape[1]):
            worlds.state[i, column] = worlds.starts[i, start, column]
        worlds.elapsed[i] = 0
        worlds.used[i] = start + 1


@part
def _choice(head: KernelHead, flow: Floats, at: int, noise: NDArray[np.float32]) -> int:
    best, chosen = -math.inf, 0
    for j in range(head.actions):
        score = 0.0
        for k in range(head.each):
            score += flow[at + j * head.each + k]
        if head.kind == CHOICE:
            score -= math.log(noise[j])
        if score > best:
            best, chosen = score, j
    return chosen


@part
def _greatest(numbers: NDArray[np.float32]) -> int:
    chosen = 0
    for j in range(1, len(numbers)):
        if numbers[j] > numbers[chosen]:
            chosen = j
    return chosen


@part
def _move(policy: KernelPolicy, at: int, noise: float, behaviour: Behaviour) -> Any:
    vector, head, flow = policy.vector, policy.head, policy.flow
    if behaviour.random:
        return np.float32(noise)
    value = flow[at]
    if head.kind == BOUNDED:
        moved = tanh(value) + np.float32(behaviour.deviation * noise)
        return np.float32(min(max(moved, -1.0), 1.0))
    log_std = vector[head.log_std] if head.kind == NORMAL else flow[at + 1]
    value += np.float32(math.exp(min(max(log_std, head.low), head.high)) * noise)
    return np.float32(value if head.kind == NORMAL else tanh(value))


class KernelStepper:
    """Steps native environments by an actor, for whole rollouts."""

    def __init__(self, envs: NativeEnvs, traced: Traced) -> None:
        self._envs = envs
        self._upcoming = traced("env", envs.upcoming)
        copies = envs.num_envs
        shape = envs.single_observation_space.shape or ()
        self._worlds = Worlds(
            envs.kind,
            envs.state,
            envs.elapsed,
            envs.limit,
            np.zeros((copies, SPARE_STARTS, envs.state.shape[1])),
            np.zeros((copies, SPARE_STARTS, *shape), np.float32),
            np.zeros(copies, np.int64),
        )
        self._episodes: list[Any] = [None] * copies
        bounds: Any = envs.single_action_space
        box = bounds.dtype.kind == "f"
        self._bounds = (float(bounds.low[0]), float(bounds.high[0])) if box else (0.0, 0.0)

    def run(
        self, actor: Actor, columns: Any, generator: torch.Generator
    ) -> NDArray[np.float32] | None:
        """As `Stepper` says; None for an actor that kernels do not know."""
        behaviour = Behaviour()
        if isinstance(actor, EpsilonGreedy):
            behaviour = Behaviour(epsilon=actor.epsilon)
            actor = actor.actor
        elif isinstance(actor, NoisyActions):
            behaviour = Behaviour(deviation=actor.deviation, random=actor.random)
            actor = actor.actor
        if not isinstance(actor, KernelActor):
            return None
        steps, copies = columns.rewards.shape
        chooses = columns.actions.ndim == 2
        taken = Taken(
            columns.observations,
            columns.actions if chooses else np.empty((0, 0), np.int64),
            np.empty((0, 0, 0), np.float32) if chooses else columns.actions,
            columns.rewards,
            columns.terminated,
            columns.truncated,
            np.empty((steps, *columns.observations.shape[1:]), np.float32),
        )
        noise, draws = _noise(actor.head, behaviour, steps, copies, generator)
        scale = Scale(*actor.pipeline.scale())
        worlds, policy, done = self._worlds, actor.kernel_policy(copies), 0
        while done < steps:
            self._prepare()
            if chooses:
                done = take_choices(worlds, policy, behaviour, noise, draws, scale, taken, done)
            else:
                done = take_moves(
                    worlds, policy, behaviour, noise, scale, *self._bounds, taken, done
                )
            for copy in np.flatnonzero(worlds.used).tolist():
                self._envs.skip(copy, int(worlds.used[copy]))
        return taken.finals

    def _prepare(self) -> None:
        """Have the next episodes' beginnings ready for every copy, and none of them used."""
        starts, shown_first = self._worlds.starts, self._worlds.shown
        for copy, used in enumerate(self._worlds.used.tolist()):
            now = self._envs.episode(copy)
            if now == self._episodes[copy]:
                continue
            left = SPARE_STARTS - used if self._follows(copy, now, used) else 0
            if left:
                for ready in (starts[copy], shown_first[copy]):
                    ready[:left] = ready[-left:].copy()
            for ahead in range(left, SPARE_STARTS):
                state, shown = self._upcoming(copy, ahead + 1)
                starts[copy, ahead] = 0.0
                starts[copy, ahead, : len(state)] = state
                shown_first[copy, ahead] = shown
            self._episodes[copy] = now
        self._worlds.used[:] = 0

    def _follows(self, copy: int, now: Any, used: int) -> bool:
        """Whether the present episode is the one that as many uses lead to."""
        before = self._episodes[copy]
        return before is not None and now == (*before[:-1], before[-1] + used)


def _noise(
    head: KernelHead, behaviour: Behaviour, steps: int, copies: int, generator: torch.Generator
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Noise for every step and copy; and a draw that says whether a choice is random."""
    count = head.actions
    noise = torch.zeros(steps, copies, count)
    draws = torch.ones(steps, copies)
    if head.kind == CHOICE:
        noise.exponential_(generator=generator)
    elif head.kind == VALUES:
        if behaviour.epsilon:
            noise.uniform_(generator=generator)
            draws.uniform_(generator=generator)
    elif behaviour.random:
        noise.uniform_(-1.0, 1.0, generator=generator)
    elif head.kind != BOUNDED or behaviour.deviation:
        noise.normal_(generator=generator)
    return noise.numpy(), draws.numpy()
