"""Methods by which one copy of an environment goes on in another process.

Each method is a wrapper, the outermost of its copy: so what other wrappers hold is state as well. A
vector environment reaches it by name in whatever process the copy lives.
"""

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Literal, SupportsFloat, TypeAlias

import gymnasium
import numpy as np

from rl_orch.rl.envs.state.class_state import class_state
from rl_orch.rl.envs.state.graph import generators
from rl_orch.rl.envs.state.graph.arrays import Bytes
from rl_orch.rl.envs.state.graph.constants import Tables
from rl_orch.rl.envs.state.graph.errors import Uncapturable
from rl_orch.rl.envs.state.graph.flatten import FlatGraph, flatten
from rl_orch.rl.envs.state.graph.refill import refill
from rl_orch.rl.envs.state.seeded_episodes import SeededEpisodes

Method: TypeAlias = Literal["captured", "redriven", "restarted"]


@dataclass(frozen=True, slots=True)
class EnvSnapshot:
    """The state of one copy: JSON, and the bytes of its arrays.

    The document has `place`, which episodes follow; `state`, or None where there is none to go on
    from; and then `why`, a part of a sentence.
    """

    document: dict[str, Any]
    data: Bytes = field(default_factory=lambda: np.empty(0, np.uint8))


class RestartedEpisodes(SeededEpisodes):
    """Remembers which episodes follow, and nothing of the present one."""

    remembered: EnvSnapshot | None = None
    """What `recall` goes on from. A vector environment can set an attribute of each copy, but not
    call a method of each with arguments of its own."""

    def __init__(self, env: gymnasium.Env[Any, Any], *, own_process: bool = False) -> None:
        super().__init__(env)
        self._own_process = own_process

    def begin(self, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """The first observation of the present episode, again.

        In a process of its own a copy seeds the process-wide generators as well: a new process has
        those of the one that started it, the same for every copy, or none that a seed reaches.
        """
        seed = self._seed()
        if self._own_process and seed is not None:
            generators.seed_process_wide(seed)
        return super().begin(options)

    def remember(self) -> EnvSnapshot:
        """The present state, copied. Never raises, which would end the process of a copy."""
        try:
            flat = self._state()
        except Uncapturable as error:
            return EnvSnapshot({"place": self._place(), "state": None, "why": str(error)})
        return EnvSnapshot({"place": self._place(), "state": flat.document, "why": None}, flat.data)

    def recall(self) -> str | None:
        """Go on from what is `remembered`; None if that worked, else why the next reset must."""
        memory, self.remembered = self.remembered, None
        if memory is None:
            return "there is nothing to go on from"
        self._set_place(memory.document["place"])
        if memory.document["state"] is None:
            return str(memory.document["why"])
        try:
            self._go_on(FlatGraph(memory.document["state"], memory.data))
        except Uncapturable as error:
            return str(error)
        return None

    def class_state(self) -> dict[str, int]:
        """See `class_state.class_state`."""
        return class_state(self.env)

    def _state(self) -> FlatGraph:
        raise Uncapturable("the state of an episode is not remembered")

    def _go_on(self, _state: FlatGraph) -> None:
        raise Uncapturable("the state of an episode is not remembered")

    def _place(self) -> dict[str, Any]:
        return {
            "begun": self._begun,
            "base": self._base,
            "episode": self._episode,
            "numbering": None if self.numbering is None else [*self.numbering],
        }

    def _set_place(self, place: dict[str, Any]) -> None:
        self._begun, self._base, self._episode = place["begun"], place["base"], place["episode"]
        numbering = place["numbering"]
        self.numbering = None if numbering is None else tuple(numbering)


class CapturedEpisodes(RestartedEpisodes):
    """Remembers what the objects of the environment hold.

    To go on, the episode is begun again first: so that there are the objects which a reset makes.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], *, own_process: bool = False) -> None:
        super().__init__(env, own_process=own_process)
        self._tables = Tables(env)

    def _state(self) -> FlatGraph:
        process = generators.process_wide() if self._own_process else None
        return flatten((self.env, process), name="env", tables=self._tables.unchanged())

    def _go_on(self, state: FlatGraph) -> None:
        if self._begun:
            self.begin()
        tables = self._tables.unchanged()
        _, process = refill(state, (self.env, None), name="env", tables=tables)
        if process is not None:
            generators.set_process_wide(process)


class RedrivenEpisodes(RestartedEpisodes):
    """Remembers the actions of the present episode, and takes them again to go on."""

    def __init__(self, env: gymnasium.Env[Any, Any], *, own_process: bool = False) -> None:
        super().__init__(env, own_process=own_process)
        self._actions: list[Any] = []
        self._seen: Any = None

    def begin(self, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """The first observation of the present episode, again."""
        self._actions = []
        first = super().begin(options)
        self._seen = first[0]
        return first

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """One step, whose action is remembered."""
        self._actions.append(_copied(action))
        stepped = super().step(action)
        self._seen = stepped[0]
        return stepped

    def _state(self) -> FlatGraph:
        return flatten((_stacked(self._actions), _digest(self._seen)), name="actions")

    def _go_on(self, state: FlatGraph) -> None:
        actions, digest = refill(state, name="actions")
        if not self._begun:
            return
        self.begin()
        for number, action in enumerate(actions):
            _, _, terminated, truncated, _ = self.step(action)
            if terminated or truncated:
                raise Uncapturable(f"driven again, the episode ends after {number + 1} steps")
        if _digest(self._seen) != digest:
            raise Uncapturable("driven again, the episode shows another observation")


METHODS: dict[Method, type[RestartedEpisodes]] = {
    "captured": CapturedEpisodes,
    "redriven": RedrivenEpisodes,
    "restarted": RestartedEpisodes,
}


def _copied(action: Any) -> Any:
    if isinstance(action, np.ndarray):
        return action.copy()
    return action if isinstance(action, np.generic) else deepcopy(action)


def _stacked(actions: list[Any]) -> Any:
    """The actions as one array where they are alike; row i is then action i."""
    kinds = {(type(a), getattr(a, "dtype", None), getattr(a, "shape", None)) for a in actions}
    if len(kinds) != 1 or not isinstance(actions[0], np.ndarray | np.generic):
        return actions
    return actions if type(actions[0]) is np.ndarray and not actions[0].ndim else np.stack(actions)


def _digest(observation: Any) -> int:
    return flatten(observation, name="observation").crc32()
