"""`InfoMetrics`: numbers that infos tell of the present episode of each copy.

Found without being asked for: success, and the terms of the reward. Nothing is done for an
environment whose infos have no such keys.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_orch.records.reports import SUCCESS, reward_term
from rl_orch.rl.data.state import StateTree

SUCCESS_KEYS = ("is_success", "success")
TERMS = "reward_terms"
NUMBERS = "biuf"
"""Kinds of arrays whose entries count as numbers."""


class InfoMetrics:
    """Sums of reward terms, success, and the last value of each key that was asked for.

    `names` are those seen so far. An episode that says nothing of success has none, once any has
    said something; an asked key that an episode does not give is not among its numbers.
    """

    def __init__(self, copies: int, asked: Sequence[str] = ()) -> None:
        self.names: list[str] = []
        self._copies, self._asked = copies, frozenset(asked)
        self._values: NDArray[np.float64] = np.empty((0, copies))
        self._known: dict[str, str | None] = {}

    def note(
        self, infos: Mapping[str, Any], ended: NDArray[np.bool_], counts: NDArray[np.bool_]
    ) -> None:
        """Take the infos of a step in, of those copies for which the step `counts`.

        Where an episode `ended` and was reset at once, its last info is in `final_info`.
        """
        final = infos.get("final_info")
        if not isinstance(final, Mapping):
            self._add(infos, counts)
            return
        self._add(infos, counts & ~ended)
        self._add(final, counts & ended)

    def finish(self, copy: int) -> dict[str, float]:
        """The numbers of the episode that a copy has ended; the next one begins with none."""
        column = self._values[:, copy]
        numbers = zip(self.names, column.tolist(), strict=True)
        finished = {name: value for name, value in numbers if math.isfinite(value)}
        column[:] = [self._first(name) for name in self.names]
        return finished

    def begin_anew(self) -> None:
        """Forget the present episodes."""
        for copy in range(self._copies):
            self.finish(copy)

    def state(self) -> StateTree:
        """The numbers of the present episodes; copies. Empty where there are none."""
        if not self.names:
            return StateTree({}, {})
        return StateTree({"values": self._values.copy()}, {"names": [*self.names]})

    def load_state(self, state: StateTree) -> None:
        """Go on from a state."""
        self.names = [*state.document.get("names", ())]
        self._values = np.array(state.tensors.get("values", np.empty((0, self._copies))))

    def _add(self, infos: Mapping[str, Any], where: NDArray[np.bool_]) -> None:
        for key, given in infos.items():
            name = self._known[key] if key in self._known else self._name(key)
            if name is None:
                continue
            if key == TERMS and isinstance(given, Mapping):
                for term, values in given.items():
                    if not term.startswith("_"):
                        self._take(reward_term(term), values, given.get(f"_{term}"), where)
            else:
                self._take(name, given, infos.get(f"_{key}"), where)

    def _name(self, key: str) -> str | None:
        """The name under which a key is noted, if it is."""
        name = None
        if key in SUCCESS_KEYS:
            name = SUCCESS
        elif key in self._asked or key == TERMS or key.startswith("reward_"):
            name = key
        self._known[key] = name
        return name

    def _take(self, name: str, given: Any, there: Any, where: NDArray[np.bool_]) -> None:
        values = np.asarray(given)
        if values.dtype.kind not in NUMBERS or values.shape != (self._copies,):
            return
        if there is not None:
            where = where & np.asarray(there, np.bool_)
        row = self._row(name)
        if self._sums(name):
            np.add(row, values, out=row, where=where)
        else:
            np.copyto(row, values, where=where)

    def _row(self, name: str) -> NDArray[np.float64]:
        if name not in self.names:
            self.names.append(name)
            added = np.full((1, self._copies), self._first(name))
            self._values = np.concatenate([self._values, added])
        row: NDArray[np.float64] = self._values[self.names.index(name)]
        return row

    def _sums(self, name: str) -> bool:
        return name not in self._asked and name != SUCCESS

    def _first(self, name: str) -> float:
        """What a number is before an episode has told it."""
        return np.nan if name in self._asked else 0.0


def told_by(info: Mapping[str, Any]) -> set[str]:
    """The names of metrics that one info tells of, asked keys among them."""
    names = {key for key in info if not key.startswith("_")}
    if names.intersection(SUCCESS_KEYS):
        names.add(SUCCESS)
    terms = info.get(TERMS)
    return names | ({*map(reward_term, terms)} if isinstance(terms, Mapping) else set())
