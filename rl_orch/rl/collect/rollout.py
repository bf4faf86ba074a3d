"""`LocalCollector`: experience from a vector environment of this process."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from gymnasium import Space, spaces
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from rl_orch.errors import BadInput, RlctlError
from rl_orch.rl.collect.collector import Episode, Weights
from rl_orch.rl.data.batch import Batch, Column, mapped, named, rows_of, unnamed
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.envs import failures, vector
from rl_orch.rl.envs.actions import choices_of
from rl_orch.rl.envs.info_metrics import InfoMetrics
from rl_orch.rl.envs.masks import final_masks, masks_in
from rl_orch.rl.envs.observations import flat_space, flatten_observation, misfit
from rl_orch.rl.envs.state.capture import Method, capture, restore
from rl_orch.rl.learn.engine import Stepper, engine_for
from rl_orch.rl.policies.policy import Actor, PolicyInput, Setup, Traced, untraced, usable_device
from rl_orch.rl.streams import Stream, derive
from rl_orch.spec.model import Spec

Finals: TypeAlias = dict[tuple[int, int], Any]
"""The final observations of episodes, by (step, copy)."""


class _Columns:
    """Time-major memory for a rollout of n steps, (n, N, ...); written in place and used again.

    Observations and memories have one row more, for what follows the last step.
    """

    def __init__(self, n: int, envs: vector.Envs, *, memory: int, choices: int) -> None:
        action = envs.single_action_space
        copies = envs.num_envs
        rows = (n, copies)
        self.observations = _empty(flat_space(envs.single_observation_space), (n + 1, copies))
        kind = np.float32 if isinstance(action, spaces.Box) else np.int64
        self.actions = np.empty((*rows, *(action.shape or ())), kind)
        self.rewards = np.empty(rows, np.float64)
        self.terminated = np.empty(rows, np.bool_)
        self.truncated = np.empty(rows, np.bool_)
        self.first = np.empty(rows, np.bool_)
        self.memories = np.empty((n + 1, copies, memory), np.float32) if memory else None
        self.masks = np.empty((*rows, choices), np.bool_) if choices else None
        self.next_masks = np.empty((*rows, choices), np.bool_) if choices else None


def local(spec: Spec, method: Method, traced: Traced = untraced) -> "LocalCollector":
    """The collector of this process, with new environments."""
    envs = vector.make(spec, num_envs=spec.env.num_envs, method=method)
    setup = Setup(spec, envs.single_observation_space, envs.single_action_space)
    return LocalCollector(
        envs,
        seed=spec.env.seed,
        device=usable_device(spec.resources.device),
        masked=spec.agent.action_masks,
        info_metrics=spec.env.info_metrics,
        stepper=engine_for(setup).stepper(envs, traced),
        traced=traced,
    )


class LocalCollector:
    """Steps a vector environment of this process; handles both ways of resetting episodes.

    SAME_STEP environments return the reset observation at once and the final one in their infos.
    NEXT_STEP environments return the final one, and spend the next step on the reset.
    """

    def __init__(
        self,
        envs: vector.Envs,
        *,
        seed: int,
        device: torch.device | str,
        masked: bool = False,
        info_metrics: Sequence[str] = (),
        stepper: Stepper | None = None,
        traced: Traced = untraced,
    ) -> None:
        copies = envs.num_envs
        self.env_steps = 0
        self.generator = torch.Generator(device).manual_seed(derive(seed, Stream.ACTIONS))
        self._envs = envs
        self.observation_space = envs.single_observation_space
        self.action_space = envs.single_action_space
        self._resets_next = vector.autoreset(envs) is AutoresetMode.NEXT_STEP
        self._masked = masked
        self._choices = sum(choices_of(envs.single_action_space))
        self._ended = np.zeros(copies, np.bool_)
        self._returns = np.zeros(copies, np.float64)
        self._lengths = np.zeros(copies, np.int64)
        self._infos = InfoMetrics(copies, info_metrics)
        self._told: dict[tuple[int, int], dict[str, float]] = {}
        self._memory: NDArray[np.float32] | None = None
        self._observations: Column
        self._first: NDArray[np.bool_]
        self._masks: NDArray[np.bool_] | None
        with failures.explained(envs, "in its reset"):
            self._begin(vector.reset(envs, derive(seed, Stream.ENVS)))
        self._columns: _Columns | None = None
        self._traced, self._step = traced, traced("env", envs.step)
        self._run = None if stepper is None else traced("together", stepper.run)
        self._episodes: list[Episode] = []

    def state(self) -> StateTree:
        """The snapshot of every copy and its present episode; copies.

        Between two calls of `collect`, no rollout is under way.
        """
        arrays = {
            "first": self._first,
            "ended": self._ended,
            "returns": self._returns,
            "lengths": self._lengths,
            "memory": self._memory,
            "masks": self._masks,
        }
        parts = {"envs": capture(self._envs)}
        parts |= {"infos": self._infos.state()} if self._infos.names else {}
        return StateTree.joined(parts) | StateTree(
            tensors={
                **dict(named("observations", self._observations)),
                **{name: array.copy() for name, array in arrays.items() if array is not None},
                "rng/actions": self.generator.get_state().numpy().copy(),
            },
            document={"env_steps": self.env_steps},
        )

    def load_state(self, state: StateTree) -> bool:
        """Go on from a state; whether episodes had to begin anew."""
        tensors = state.tensors
        begun = restore(self._envs, state.under("envs"))
        self.env_steps = int(state.document["env_steps"])
        self.generator.set_state(torch.from_numpy(tensors["rng/actions"].copy()))
        self._observations = unnamed("observations", tensors)
        self._ended = tensors["ended"].copy()
        self._returns = tensors["returns"].copy()
        self._lengths = tensors["lengths"].copy()
        self._infos.load_state(state.under("infos"))
        self._first = tensors["first"].copy()
        self._memory = tensors["memory"].copy() if "memory" in tensors else None
        if self._masks is not None:
            self._masks = tensors["masks"].copy()
        if begun is not None:
            self._ended[:], self._returns[:], self._lengths[:] = False, 0.0, 0
            self._infos.begin_anew()
            self._begin(begun)
        return begun is not None

    def collect(self, actor: Actor, n: int, weights: Weights | None = None) -> Batch:
        """`n` steps of every copy; see `Collector`."""
        columns = self._columns
        if self._memory is None and actor.memory_size:
            self._memory = np.zeros((self._envs.num_envs, actor.memory_size), np.float32)
        if columns is None or len(columns.rewards) != n:
            memory = 0 if self._memory is None else self._memory.shape[1]
            choices = 0 if self._masks is None else self._masks.shape[1]
            columns = _Columns(n, self._envs, memory=memory, choices=choices)
            self._columns = columns
        finals = self._in_one_call(actor, columns)
        if finals is None:
            finals = self._step_through(actor, columns)
        valid = self._valid(columns)
        self._account_for_episodes(columns, valid)
        return self._batch(columns, valid, finals)

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()

    def drain_episodes(self) -> list[Episode]:
        """The episodes that ended since the last call, in the order in which they did."""
        episodes, self._episodes = self._episodes, []
        return episodes

    def _begin(self, shown: vector.First) -> None:
        """Start from what a reset of all copies showed."""
        copies = self._envs.num_envs
        self._observations = mapped(shown.observations, np.array)
        self._first = np.ones(copies, np.bool_)
        self._masks = self._masks_in(shown.infos) if self._masked else None

    def _step_through(self, actor: Actor, columns: _Columns) -> Finals:
        """Fill the columns; returns the final observations of episodes."""
        finals: Finals = {}
        observations, memory = self._observations, self._memory
        first, ended = self._first, self._ended
        decide, to_env = (self._traced("policy", f) for f in (actor.decide, actor.to_env))
        for t in range(len(columns.rewards)):
            # Copied before the step: the environment may reuse the memory of its observations.
            _put(columns.observations, t, observations)
            columns.first[t] = first
            if columns.memories is not None:
                columns.memories[t] = memory
            shown = PolicyInput(rows_of(columns.observations, t), first, memory, self._masks)
            decision = decide(shown, self.generator)
            columns.actions[t], memory = decision.actions, decision.memory
            actions = to_env(decision.actions)
            try:
                raw, rewards, terminated, truncated, infos = self._step(actions)
            except Exception as error:
                taken = self.env_steps + t * len(first)
                failures.explain(self._envs, error, f"after {taken:,} steps of training")
                raise
            observations = flatten_observation(self.observation_space, raw)
            columns.rewards[t] = rewards
            columns.terminated[t] = terminated
            columns.truncated[t] = truncated
            if infos or self._infos.names:
                self._note_infos(t, infos, terminated | truncated, ended)
            # The episode that follows begins at once, or once the next step has reset the copy.
            first, ended = (
                (ended, terminated | truncated)
                if self._resets_next
                else ((terminated | truncated,) * 2)
            )
            if not self._resets_next and ended.any():
                self._note_finals(finals, t, truncated, ended, infos)
            self._note_masks(columns, t, infos)
        _put(columns.observations, len(columns.rewards), observations)
        if columns.memories is not None:
            columns.memories[-1] = memory
        self._observations, self._memory = mapped(observations, np.asarray), memory
        self._first = first
        return finals

    def _note_infos(
        self, t: int, infos: dict[str, Any], ended: NDArray[np.bool_], before: NDArray[np.bool_]
    ) -> None:
        """Take what infos tell of episodes in; a step that is spent on a reset tells of none."""
        counts = ~before if self._resets_next else np.ones_like(ended)
        self._infos.note(infos, ended, counts)
        if self._infos.names:
            for env in np.flatnonzero(ended).tolist():
                self._told[t, env] = self._infos.finish(env)

    def _in_one_call(self, actor: Actor, columns: _Columns) -> Finals | None:
        """As `_step_through`, by the stepper; None where there is none for the actor."""
        if self._run is None:
            return None
        _put(columns.observations, 0, self._observations)
        last = self._run(actor, columns, self.generator)
        if last is None:
            return None
        dones = columns.terminated | columns.truncated
        columns.first[0], columns.first[1:] = self._first, dones[:-1]
        self._observations, self._first = np.array(rows_of(columns.observations, -1)), dones[-1]
        return {(t, env): last[t, env] for t, env in _where(dones)}

    def _note_finals(
        self,
        finals: Finals,
        t: int,
        truncated: NDArray[np.bool_],
        ended: NDArray[np.bool_],
        infos: dict[str, Any],
    ) -> None:
        given = infos.get("final_obs")
        if given is None and truncated.any():
            raise BadInput(
                "the environment resets in the step that cuts an episode short, but gives no "
                "infos['final_obs'] to estimate the rest of it from",
                path="env.backend",
            )
        if given is not None:
            for env in np.flatnonzero(ended):
                finals[t, int(env)] = mapped(
                    flatten_observation(self.observation_space, given[env]), np.array
                )

    def _masks_in(self, infos: dict[str, Any]) -> NDArray[np.bool_]:
        return masks_in(infos, self._envs.num_envs, self._choices)

    def _note_masks(self, columns: _Columns, t: int, infos: dict[str, Any]) -> None:
        if columns.masks is None or columns.next_masks is None:
            return
        columns.masks[t] = self._masks
        self._masks = self._masks_in(infos)
        columns.next_masks[t] = final_masks(infos, self._masks)

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

    def _account_for_episodes(self, columns: _Columns, valid: NDArray[np.bool_]) -> None:
        """Count the steps, and add up the episodes that ended within these columns."""
        steps = self.env_steps + np.cumsum(valid.sum(1))
        start = np.zeros(valid.shape[1], np.int64)
        for t, env in _where(columns.terminated | columns.truncated):
            rows = slice(start[env], t + 1)
            ret = self._returns[env] + columns.rewards[rows, env].sum()
            length = self._lengths[env] + valid[rows, env].sum()
            told = self._told.pop((t, env), {})
            self._episodes.append(Episode(int(steps[t]), env, float(ret), int(length), told))
            start[env], self._returns[env], self._lengths[env] = t + 1, 0.0, 0
        going = np.arange(len(valid))[:, None] >= start
        self._returns += (columns.rewards * going).sum(0)
        self._lengths += (valid & going).sum(0)
        self.env_steps = int(steps[-1])

    def _batch(self, columns: _Columns, valid: NDArray[np.bool_], finals: Finals) -> Batch:
        following = mapped(columns.observations, lambda array: _by_copy(array[1:]))
        n = len(columns.rewards)
        for (t, env), final in finals.items():
            try:
                _put(following, env * n + t, final)
            except ValueError as error:
                what = misfit(flat_space(self.observation_space), final)
                if what is None:
                    raise
                raise RlctlError(f"copy {env} ended an episode with an {what}") from error
        extras: dict[str, Column] = {
            "valid": _by_copy(valid),
            "first": _by_copy(columns.first),
        }
        if columns.memories is not None:
            extras["memories"] = _by_copy(columns.memories[:-1])
            extras["next_memories"] = _by_copy(columns.memories[1:])
        if columns.masks is not None and columns.next_masks is not None:
            extras["masks"] = _by_copy(columns.masks)
            extras["next_masks"] = _by_copy(columns.next_masks)
        return Batch(
            observations=mapped(columns.observations, lambda array: _by_copy(array[:-1])),
            actions=_by_copy(columns.actions),
            rewards=_by_copy(columns.rewards),
            terminated=_by_copy(columns.terminated),
            truncated=_by_copy(columns.truncated),
            next_observations=following,
            extras=extras,
        )


def _empty(space: Space[Any], rows: tuple[int, int]) -> Column:
    """Uninitialised memory for rows of observations."""
    if isinstance(space, spaces.Dict):
        return {name: _empty(part, rows) for name, part in space.items()}
    return np.empty((*rows, *(space.shape or ())), space.dtype)


def _put(column: Column, row: int, value: Any) -> None:
    """Copy a value into a row of a column; or its parts into those of the column."""
    if isinstance(column, Mapping):
        for name, part in column.items():
            _put(part, row, value[name])
    else:
        column[row] = value


def _by_copy(column: NDArray[Any]) -> NDArray[Any]:
    """(n, N, ...) → (N · n, ...), a copy: the first n rows are those of copy 0."""
    return column.swapaxes(0, 1).copy(order="C").reshape(-1, *column.shape[2:])


def _where(flags: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The (step, copy) of all that are set, in order."""
    steps, copies = flags.nonzero()
    return [*zip(steps.tolist(), copies.tolist(), strict=True)]
