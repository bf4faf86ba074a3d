"""`load_policy`: a trained policy in this process, which acts on what an environment gives.

`predict` is that of Stable-Baselines3: observations and a state in, actions and a state out.
"""

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from gymnasium import Space, spaces
from numpy.typing import ArrayLike, NDArray

from rl_orch.core.jobs.kinds import Workplace
from rl_orch.errors import BadInput
from rl_orch.export.acting import stacked
from rl_orch.export.observed import ranges_of, refuse_closed
from rl_orch.io.policies.nested import flattened
from rl_orch.io.policies.observed import (
    NUMBERS,
    exactly,
    form_of,
    labelled,
    refuse_unknown_parts,
)
from rl_orch.io.processes.task_worker import unwatched
from rl_orch.orchestrator import connect
from rl_orch.records import Run
from rl_orch.rl.envs.actions import choices_of
from rl_orch.rl.envs.masks import KEY, masks_in
from rl_orch.rl.envs.observations import flat_space, leaf_keys
from rl_orch.rl.policies.policy import PolicyInput
from rl_orch.worker.policies import sources
from rl_orch.worker.policies.load import LoadedPolicy

PolicyState: TypeAlias = dict[str, Any]
"""What a policy remembers between steps: earlier frames, the recurrent state; empty for most."""

FRAMES, MEMORY = "frames", "memory"


def load_policy(
    policy: str | int | Path | Run, *, home: str | Path | None = None, seed: int = 0
) -> "ActingPolicy":
    """The policy that is named: an alias, a model's id, `best@ENV`, a run, or the path of a
    checkpoint or a bundle. `seed` is what sampled actions follow from."""
    word = policy.id if isinstance(policy, Run) else str(policy)
    source = Workplace(connect(home), unwatched).source(word)
    return ActingPolicy(sources.load(source.path, source.module_path), source.name, seed)


class ActingPolicy:
    """A policy that acts on one observation, or on a batch of them, as the environment gives them.

    Dict and Tuple observations stay as they are; normalisation, frame stacking, memory and the
    bounds of actions are the policy's own.
    """

    def __init__(self, loaded: LoadedPolicy, name: str, seed: int = 0) -> None:
        self.spec, self.step, self.name = loaded.spec, loaded.step, name
        self._policy = loaded.policy
        self._generator = torch.Generator().manual_seed(seed)
        flat = flat_space(loaded.policy.observation_space)
        self._parts = dict(flat.spaces) if isinstance(flat, spaces.Dict) else {"": flat}
        self._frames = loaded.spec.obs.stack_frames
        self._keys = leaf_keys(loaded.policy.observation_space)
        self._ranges = ranges_of(loaded.policy.observation_space, self._frames)
        self._choices = sum(choices_of(loaded.policy.action_space))
        self._state: PolicyState | None = None

    def __repr__(self) -> str:
        return (
            f"<{self.spec.agent.algorithm} policy for {self.spec.env.id}: {self.name}, "
            f"saved at step {self.step:,}>"
        )

    @property
    def action_space(self) -> Space[Any]:
        """The actions that the environment takes."""
        return self._policy.action_space

    @property
    def observation_space(self) -> Space[Any]:
        """The observations of the environment; with the frames of a stack, where there is one."""
        return self._policy.observation_space

    def act(
        self,
        observation: Any,
        episode_start: ArrayLike | None = None,
        deterministic: bool = True,
        action_masks: Any = None,
    ) -> Any:
        """The action for what an environment shows, the best unless it is to be sampled; what must
        be remembered is, until `reset`."""
        action, self._state = self.predict(
            observation, self._state, episode_start, deterministic, action_masks
        )
        return action

    def reset(self) -> None:
        """Forget what `act` remembers: an episode begins."""
        self._state = None

    def predict(
        self,
        observation: Any,
        state: PolicyState | None = None,
        episode_start: ArrayLike | None = None,
        deterministic: bool = False,
        action_masks: Any = None,
    ) -> tuple[Any, PolicyState]:
        """Actions, sampled unless `deterministic`, and the state for the next call; None as state
        begins episodes, and so does `episode_start` where it is true. One observation gets one
        action, a batch as many."""
        rows, single = self._rows(observation)
        count = len(next(iter(rows.values())) if isinstance(rows, dict) else rows)
        state = _fitting(state, count)
        first = _starts(episode_start, count) | (state is None)
        shown, kept = rows, {}
        if self._frames is not None:
            before = None if state is None else state[FRAMES]
            shown = kept[FRAMES] = stacked(before, rows, first, self._frames)
        memory = None if state is None else state.get(MEMORY)
        seen = PolicyInput(shown, first, memory, self._masks(action_masks, count))
        decision = self._policy.decide(seen, None if deterministic else self._generator)
        if decision.memory is not None:
            kept[MEMORY] = decision.memory
        actions = self._policy.to_env(decision.actions)
        return actions[0] if single else actions, kept

    def _rows(self, observation: Any) -> tuple[Any, bool]:
        """Observations (B, *shape), flat, and whether there was only one."""
        if "" in self._parts:
            given = {"": observation}
        elif (parts := flattened(observation, [*self._parts])) is not None:
            given = parts
            refuse_unknown_parts(observation, [*self._parts])
        else:
            raise BadInput(
                f"the observation lacks a part: {observation!r:.200}; must have, as the "
                f"environment gives them or by these names, {', '.join(self._parts)}"
            )
        arrays = {name: self._array(name, each) for name, each in given.items()}
        kinds = {_is_single(name, array, self._shape(name)) for name, array in arrays.items()}
        if len(kinds) > 1:
            raise BadInput("some parts of the observation are a batch and others are not")
        (single,) = kinds
        rows = {name: self._row_array(name, each, single) for name, each in arrays.items()}
        return rows.get("", rows), single

    def _array(self, name: str, given: Any) -> NDArray[Any]:
        try:
            array = np.asarray(given)
            if array.dtype.kind not in NUMBERS:
                raise TypeError(f"it is of type {array.dtype}")
            return array
        except (TypeError, ValueError) as error:
            raise BadInput(
                f"{_called(name)} is {given!r:.200}, which is no array: {error}; must be numbers "
                f"of shape {self._shape(name)}"
            ) from None

    def _row_array(self, name: str, array: NDArray[Any], single: bool) -> NDArray[Any]:
        """An array (B, *shape) of the part's type, if the part can have these values."""
        kind = self._parts[name].dtype
        assert kind is not None
        cast, wrong = exactly(array, kind)
        if wrong is not None:
            at = tuple(np.argwhere(wrong)[0].tolist())
            place = labelled(labelled("observation", self._keys[name]), at)
            raise BadInput(f"{place} = {array[at]}; must be {form_of(kind)}")
        rows = cast[None] if single else cast
        if name in self._ranges:
            self._ranges[name].refuse_outside(rows, single=single)
        return rows

    def _shape(self, name: str) -> tuple[int, ...]:
        """The shape of one observation, or of a part of it, without a stack's frames."""
        return tuple(self._parts[name].shape or ())[0 if self._frames is None else 1 :]

    def _masks(self, given: Any, count: int) -> NDArray[np.bool_] | None:
        if not self.spec.agent.action_masks:
            return None
        if given is None:
            raise BadInput(
                "this policy was trained with masks, and none are given",
                hint="action_masks=info['action_mask'], or env.unwrapped.action_masks().",
            )
        masks = masks_in({KEY: given}, count, self._choices)
        refuse_closed(masks, choices_of(self._policy.action_space))
        return masks


def _is_single(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> bool:
    if array.shape == shape:
        return True
    if array.ndim and array.shape[1:] == shape and len(array):
        return False
    raise BadInput(
        f"{_called(name)} has shape {array.shape}; must be {shape}, or with the batch before it"
    )


def _called(name: str) -> str:
    return f"the part {name!r} of the observation" if name else "the observation"


def _starts(given: ArrayLike | None, count: int) -> NDArray[np.bool_]:
    if given is None:
        return np.zeros(count, np.bool_)
    return np.broadcast_to(np.asarray(given, np.bool_).reshape(-1), (count,))


def _fitting(state: PolicyState | None, count: int) -> PolicyState | None:
    """The state, if it is of as many episodes as there are observations; an empty one goes on."""
    if not state:
        return None
    for part in state.values():
        kept = next(iter(part.values())) if isinstance(part, dict) else part
        if len(kept) != count:
            raise BadInput(
                f"the state is of {len(kept)} episodes, and there are {count} observations",
                hint="state=None, or `reset()`, begins anew.",
            )
    return state
