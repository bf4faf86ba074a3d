"""`NativeEnvs`: copies of one of Gymnasium's classic control environments, stepped by a kernel.

The kernels, and Numba with them, are loaded with the first of them that is made.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils.seeding import np_random
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from rl_orch import plugins
from rl_orch.errors import BadInput
from rl_orch.rl.envs.native.starts import STARTS
from rl_orch.rl.envs.state.methods import EnvSnapshot
from rl_orch.rl.streams import derive
from rl_orch.spec.native import NATIVE

Numbering: TypeAlias = tuple[int, int, int]
"""A (base, first, stride); see `SeededEpisodes`."""

_HOME = "gymnasium.envs.classic_control."


class NativeEnvs(VectorEnv[NDArray[np.float32], NDArray[Any], NDArray[Any]]):
    """A vector environment that kernels step; episodes are reset in the step that ends them.

    It plays as a SyncVectorEnv of `SeededEpisodes`, to the last bit of the first observations.

    All arrays that `step` returns are written again by the next one, but for final observations.
    """

    def __init__(self, env_id: str, num_envs: int, max_episode_steps: int | None = None) -> None:
        # Here, and not above: what only asks for the class must not load Numba.
        dynamics = plugins.part("native dynamics")

        if not is_gymnasiums(env_id):
            raise BadInput(
                f"env.backend is 'native', but {env_id} is registered as "
                f"{gymnasium.spec(env_id).entry_point}; native steps only Gymnasium's own",
                path="env.backend",
                hint="Use env.backend=sync.",
            )
        name = NATIVE[env_id].dynamics
        registered = deepcopy(gymnasium.spec(env_id))
        single = gymnasium.make(env_id, disable_env_checker=True)
        single.close()
        registered.max_episode_steps = max_episode_steps or registered.max_episode_steps
        self.spec = registered
        self.metadata = {**single.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.num_envs = num_envs
        self.single_observation_space = single.observation_space
        self.single_action_space = single.action_space
        self.observation_space = batch_space(single.observation_space, num_envs)
        self.action_space = batch_space(single.action_space, num_envs)
        self.dynamics = name
        self.kind = dynamics.KINDS[name]
        self.limit = int(registered.max_episode_steps or NATIVE[env_id].max_episode_steps)
        self.numbering: list[Numbering | None] = [None] * num_envs
        self.state = np.zeros((num_envs, dynamics.ROW), np.float64)
        self.elapsed = np.zeros(num_envs, np.int64)
        self._step_all = dynamics.step_all
        self._start = STARTS[name]
        self._action_type = single.action_space.dtype
        self._action_shape = self.action_space.shape
        self._observations = np.zeros(self.observation_space.shape or (), np.float32)
        self._rewards = np.zeros(num_envs, np.float64)
        self._terminated = np.zeros(num_envs, np.bool_)
        self._truncated = np.zeros(num_envs, np.bool_)
        self._begun = False
        self._bases: list[int | None] = [None] * num_envs
        self._episodes = [0] * num_envs

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """First observations of the next episode of every copy, or of a seed's first."""
        if options:
            raise BadInput(
                f"the options of a reset are {options}; native environments take none",
                path="env.backend",
                hint="Use env.backend=sync.",
            )
        for copy, given in enumerate(self._seeds(seed)):
            self._begin(copy, given)
        self._begun = True
        return self._observations, {}

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[
        NDArray[np.float32],
        NDArray[np.float64],
        NDArray[np.bool_],
        NDArray[np.bool_],
        dict[str, Any],
    ]:
        """One step of every copy; at an end, observations are the next episode's first."""
        given = np.ascontiguousarray(actions, self._action_type)
        if given.shape != self._action_shape or not self._begun:
            self._refuse_step(given)
        ended = self._step_all(
            self.kind,
            self.state,
            self.elapsed,
            self.limit,
            given.reshape(-1),
            self._observations,
            self._rewards,
            self._terminated,
            self._truncated,
        )
        infos = {}
        if ended:
            if ended < 0:
                raise ValueError(f"the actions are {given}; must be of {self.single_action_space}")
            infos = self._begin_anew()
        return self._observations, self._rewards, self._terminated, self._truncated, infos

    def episode(self, copy: int) -> tuple[int | None, Numbering | None, int]:
        """The episode that a copy is in: its seed, its numbering, and how many came before."""
        return self._bases[copy], self.numbering[copy], self._episodes[copy]

    def upcoming(self, copy: int, ahead: int) -> tuple[NDArray[Any], Any]:
        """State and first observation of an episode that is ahead of a copy."""
        return self._start(np_random(self._seed(copy, ahead))[0])

    def skip(self, copy: int, episodes: int) -> None:
        """Count episodes of a copy that somebody else has begun, in its state."""
        self._episodes[copy] += episodes

    def set_attr(self, name: str, values: Sequence[Any]) -> None:
        """Set an attribute of each copy, of which there is only `numbering`."""
        if name != "numbering":
            raise AttributeError(f"native environments have no {name!r} that can be set")
        self.numbering = [*values]

    def remember(self, *, captured: bool) -> EnvSnapshot:
        """The episodes that follow and, if `captured`, where every copy is in its present one."""
        place = {
            "begun": self._begun,
            "bases": [*self._bases],
            "episodes": [*self._episodes],
            "numbering": [None if each is None else [*each] for each in self.numbering],
        }
        if not captured:
            why = "the state of an episode is not remembered"
            return EnvSnapshot({"place": place, "state": None, "why": why})
        parts = [self.state.view(np.uint8).ravel(), self.elapsed.view(np.uint8)]
        state = {"dynamics": self.dynamics, "max_episode_steps": self.limit}
        return EnvSnapshot({"place": place, "state": state, "why": None}, np.concatenate(parts))

    def recall(self, memory: EnvSnapshot) -> str | None:
        """Go on from a memory; None if that worked, else why the next reset must."""
        place, state = memory.document.get("place", {}), memory.document["state"]
        if len(place.get("bases", ())) != self.num_envs:
            return f"the state is not one of {self.num_envs} native environments"
        self._begun = place["begun"]
        self._bases, self._episodes = [*place["bases"]], [*place["episodes"]]
        self.numbering = [None if each is None else tuple(each) for each in place["numbering"]]
        if state is None:
            return str(memory.document["why"])
        own = {"dynamics": self.dynamics, "max_episode_steps": self.limit}
        if state != own:
            return f"the state is one of {state}, and these environments are {own}"
        size = self.state.nbytes + self.elapsed.nbytes
        if memory.data.size != size:
            return f"the state has {memory.data.size} bytes; must have {size}"
        rows, steps = np.split(memory.data, [self.state.nbytes])
        self.state[:] = np.frombuffer(rows.tobytes(), np.float64).reshape(self.state.shape)
        self.elapsed[:] = np.frombuffer(steps.tobytes(), np.int64)
        return None

    def _seeds(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
        """A seed for each copy, or None, as a SyncVectorEnv understands it."""
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int):
            return [seed + copy for copy in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(f"there are {len(seed)} seeds; must be {self.num_envs}, one a copy")
        return seed

    def _begin(self, copy: int, seed: int | None = None) -> None:
        """Begin a copy's next episode, or from a seed its first."""
        if seed is not None:
            self._bases[copy], self._episodes[copy] = seed, 0
        elif self._bases[copy] is not None:
            self._episodes[copy] += 1
        else:
            self._bases[copy] = np_random(None)[1]
        generator, _ = np_random(self._seed(copy))
        state, observation = self._start(generator)
        row = self.state[copy]
        row[:] = 0.0
        row[: len(state)] = state
        self._observations[copy] = observation
        self.elapsed[copy] = 0

    def _seed(self, copy: int, ahead: int = 0) -> int | None:
        """The seed of a copy's present episode, or of one that is ahead."""
        own, episode = self._bases[copy], self._episodes[copy] + ahead
        if own is None or episode == 0:
            return own
        base, first, stride = self.numbering[copy] or (own, 0, 1)
        return derive(base, first + episode * stride)

    def _begin_anew(self) -> dict[str, Any]:
        """Begin the next episodes of the copies whose episodes ended; the infos of that."""
        ended = self._terminated | self._truncated
        final = np.full(self.num_envs, None, object)
        for copy in np.flatnonzero(ended).tolist():
            final[copy] = self._observations[copy].copy()
            self._begin(copy)
        return {
            "final_obs": final,
            "_final_obs": ended,
            "final_info": {},
            "_final_info": ended.copy(),
        }

    def _refuse_step(self, actions: NDArray[Any]) -> None:
        if not self._begun:
            raise ResetNeeded("native environments were stepped before their first reset")
        raise ValueError(
            f"the actions have the shape {actions.shape}; must be {self._action_shape}"
        )


def is_gymnasiums(env_id: str) -> bool:
    """Whether Gymnasium's own code is registered under a name, and nothing besides; somebody may
    have taken the name."""
    registered = gymnasium.spec(env_id)
    plain = not registered.kwargs and not registered.additional_wrappers
    return plain and str(registered.entry_point).startswith(_HOME)
