"""Collecting experience: the `Collector` seam, and `LocalCollector` over a vector environment.

Only acting happens step by step. Log-probabilities, values and episode sums are worked out for the
whole rollout at once, since the policy does not change within it.
"""

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from rl_orch.errors import BadInput, Diverged
from rl_orch.rl.batch import Batch
from rl_orch.rl.envs import vector
from rl_orch.rl.envs.state import EnvStates, capture, restore
from rl_orch.rl.streams import Stream, derive

Finals: TypeAlias = dict[tuple[int, int], NDArray[Any]]
"""The final observations of episodes that were cut short, by (step, copy)."""


class Actor(Protocol):
    """What a collector asks of a policy: arrays in, arrays out, no gradients."""

    def decide(self, observations: NDArray[Any], generator: torch.Generator | None) -> NDArray[Any]:
        """Actions (B, *action_shape): sampled, or the mode without a generator."""

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Actions as the environment takes them."""

    def assess(
        self, observations: NDArray[Any], actions: NDArray[Any]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """log π(a | s) and V(s), (B,) each."""

    def values(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """V(s), (B,)."""


class Collector(Protocol):
    """Where experience comes from."""

    def collect(self, policy: Actor, n: int) -> Batch:
        """`n` steps of every environment copy.

        Rows are ordered by copy, then time: the first `n` are those of copy 0. Extras: `log_probs`;
        `values`, V(s); `next_values`, V(s') or 0 where the episode terminated; `valid`, false for
        rows in which a copy only reset itself.
        """


@dataclass(frozen=True, slots=True)
class Episode:
    """A finished episode; `step` counts the environment steps of all copies up to its end."""

    step: int
    env: int
    ret: float
    length: int


@dataclass(frozen=True, slots=True)
class CollectorState:
    """What a collector remembers: arrays by name, and a JSON document."""

    tensors: dict[str, NDArray[Any]]
    document: dict[str, Any]


class _Columns:
    """Time-major memory for a rollout of n steps, (n, N, ...), written in place and used again."""

    def __init__(self, n: int, envs: vector.Envs) -> None:
        observation, action = envs.single_observation_space, envs.single_action_space
        rows = (n, envs.num_envs)
        self.observations = np.empty((*rows, *(observation.shape or ())), observation.dtype)
        kind = np.int64 if np.issubdtype(action.dtype, np.integer) else np.float32
        self.actions = np.empty((*rows, *(action.shape or ())), kind)
        self.rewards = np.empty(rows, np.float64)
        self.terminated = np.empty(rows, np.bool_)
        self.truncated = np.empty(rows, np.bool_)


class LocalCollector:
    """Steps a vector environment of this process; handles both ways of resetting episodes.

    SAME_STEP environments return the reset observation at once and the final one in their infos.
    NEXT_STEP environments return the final one, and spend the next step on the reset.
    """

    def __init__(self, envs: vector.Envs, *, seed: int, device: torch.device | str) -> None:
        self.env_steps = 0
        self.generator = torch.Generator(device).manual_seed(derive(seed, Stream.ACTIONS))
        self._envs = envs
        self._resets_next = vector.autoreset(envs) is AutoresetMode.NEXT_STEP
        self._observations = vector.reset(envs, derive(seed, Stream.ENVS))
        self._ended = np.zeros(envs.num_envs, np.bool_)
        self._returns = np.zeros(envs.num_envs, np.float64)
        self._lengths = np.zeros(envs.num_envs, np.int64)
        self._columns: _Columns | None = None
        self._episodes: list[Episode] = []

    def state(self) -> CollectorState:
        """Where every copy is, and what has been added up of its present episode; copies.

        Between two calls of `collect`, no rollout is under way.
        """
        states = capture(self._envs)
        return CollectorState(
            tensors={
                **states.tensors,
                "rng/actions": self.generator.get_state().numpy().copy(),
                "collector/observations": self._observations.copy(),
                "collector/ended": self._ended.copy(),
                "collector/returns": self._returns.copy(),
                "collector/lengths": self._lengths.copy(),
            },
            document={"env_steps": self.env_steps, "envs": states.document},
        )

    def load_state(self, state: CollectorState) -> bool:
        """Go on from a state; whether episodes had to begin anew."""
        known = state.tensors
        begun = restore(self._envs, EnvStates(dict(known), state.document["envs"]))
        self.env_steps = int(state.document["env_steps"])
        self.generator.set_state(torch.from_numpy(known["rng/actions"].copy()))
        self._observations = known["collector/observations"].copy()
        self._ended = known["collector/ended"].copy()
        self._returns = known["collector/returns"].copy()
        self._lengths = known["collector/lengths"].copy()
        if begun is not None:
            self._observations = begun
            self._ended[:], self._returns[:], self._lengths[:] = False, 0.0, 0
        return begun is not None

    def collect(self, policy: Actor, n: int) -> Batch:
        """`n` steps of every copy; see `Collector`."""
        columns = self._columns
        if columns is None or len(columns.rewards) != n:
            columns = self._columns = _Columns(n, self._envs)
        finals = self._step_through(policy, columns)
        valid = self._valid(columns)
        self._refuse_non_finite(columns, valid, finals)
        self._account_for_episodes(columns, valid)
        return self._batch(policy, columns, valid, finals)

    def drain_episodes(self) -> list[Episode]:
        """The episodes that ended since the last call, in the order in which they did."""
        episodes, self._episodes = self._episodes, []
        return episodes

    def _step_through(self, policy: Actor, columns: _Columns) -> Finals:
        """Fill the columns; returns the final observations of episodes that were cut short."""
        finals: Finals = {}
        observations = self._observations
        for t in range(len(columns.rewards)):
            # Copied before the step: the environment may reuse the memory of its observations.
            columns.observations[t] = observations
            actions = policy.decide(columns.observations[t], self.generator)
            columns.actions[t] = actions
            observations, rewards, terminated, truncated, infos = self._envs.step(
                policy.to_env(actions)
            )
            columns.rewards[t] = rewards
            columns.terminated[t] = terminated
            columns.truncated[t] = truncated
            if not self._resets_next and "final_obs" in infos:
                for env in np.flatnonzero(truncated):
                    finals[t, int(env)] = np.array(infos["final_obs"][env])
        if not self._resets_next and len(finals) < np.count_nonzero(columns.truncated):
            raise BadInput(
                "the environment resets in the step that cuts an episode short, but gives no "
                "infos['final_obs'] to estimate the rest of it from",
                path="env.backend",
            )
        self._observations = np.asarray(observations)
        return finals

    def _valid(self, columns: _Columns) -> NDArray[np.bool_]:
        """(n, N): false where the step was spent on a reset; remembers who ended last."""
        valid = np.ones(columns.rewards.shape, np.bool_)
        if self._resets_next:
            dones = columns.terminated | columns.truncated
            valid[0] = ~self._ended
            valid[1:] = ~dones[:-1]
            self._ended = dones[-1]
            columns.rewards[~valid] = 0.0
        return valid

    def _refuse_non_finite(
        self, columns: _Columns, valid: NDArray[np.bool_], finals: Finals
    ) -> None:
        """Raise on the first observation or reward that no policy could learn from."""
        steps = self.env_steps + np.concatenate([[0], np.cumsum(valid.sum(1))])
        _refuse("observation", columns.observations, steps)
        _refuse("reward", columns.rewards, steps[1:])
        for (t, env), final in finals.items():
            _refuse("final observation", final[None, None], steps[t + 1 :], env)
        _refuse("observation", self._observations[None], steps[-1:])

    def _account_for_episodes(self, columns: _Columns, valid: NDArray[np.bool_]) -> None:
        """Count the steps, and add up the episodes that ended within these columns."""
        steps = self.env_steps + np.cumsum(valid.sum(1))
        start = np.zeros(valid.shape[1], np.int64)
        for t, env in np.argwhere(columns.terminated | columns.truncated):
            rows = slice(start[env], t + 1)
            ret = self._returns[env] + columns.rewards[rows, env].sum()
            length = self._lengths[env] + valid[rows, env].sum()
            self._episodes.append(Episode(int(steps[t]), int(env), float(ret), int(length)))
            start[env], self._returns[env], self._lengths[env] = t + 1, 0.0, 0
        for env, first in enumerate(start):
            self._returns[env] += columns.rewards[first:, env].sum()
            self._lengths[env] += valid[first:, env].sum()
        self.env_steps = int(steps[-1])

    def _batch(
        self,
        policy: Actor,
        columns: _Columns,
        valid: NDArray[np.bool_],
        finals: Finals,
    ) -> Batch:
        observations, actions = _by_copy(columns.observations), _by_copy(columns.actions)
        log_probs, values = policy.assess(observations, actions)
        next_values = self._next_values(policy, columns, values, finals)
        return Batch(
            observations=observations,
            actions=actions,
            rewards=_by_copy(columns.rewards),
            terminated=_by_copy(columns.terminated),
            truncated=_by_copy(columns.truncated),
            extras={
                "log_probs": log_probs,
                "values": values,
                "next_values": _by_copy(next_values),
                "valid": _by_copy(valid),
            },
        )

    def _next_values(
        self,
        policy: Actor,
        columns: _Columns,
        values: NDArray[np.float32],
        finals: Finals,
    ) -> NDArray[np.float32]:
        """V(s') of each row, (n, N); where an episode was cut short, of its final observation."""
        next_values = np.empty(columns.rewards.shape, np.float32)
        next_values[:-1] = values.reshape(columns.rewards.shape[::-1]).T[1:]
        next_values[-1] = policy.values(self._observations)
        if finals:
            at = tuple(np.array([*finals]).T)
            next_values[at] = policy.values(np.stack([*finals.values()]))
        next_values[columns.terminated] = 0.0
        return next_values


def _by_copy(column: NDArray[Any]) -> NDArray[Any]:
    """(n, N, ...) → (N · n, ...), a copy: the first n rows are those of copy 0."""
    return column.swapaxes(0, 1).copy(order="C").reshape(-1, *column.shape[2:])


def _refuse(what: str, column: NDArray[Any], steps: NDArray[Any], first_env: int = 0) -> None:
    """Raise if a column (n, N, ...) has a number that is not finite; `steps[t]` dates row t."""
    finite = np.isfinite(column)
    if finite.all():
        return
    t, env = (int(index) for index in np.argwhere(~finite)[0][:2])
    raise Diverged(
        f"the environment gave a non-finite {what} at step {steps[t]}, "
        f"copy {first_env + env}: {column[t, env]}"
    )
