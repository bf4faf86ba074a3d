"""`InfoMetrics`: numbers that infos tell of the present episode of each copy.

Found without being asked for: success, and the terms of the reward. Nothing is done for an
environment whose infos have no such keys.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_orch.records.reports import (
    REWARD,
    SUCCESS,
    SUCCESS_KEYS,
    TERMS,
    info_metric,
    reward_term,
)
from rl_orch.rl.data.state import StateTree

LONGEST_NAME = 200
CONSTANTS = ("reward_threshold", "reward_range")
"""Keys that begin as reward terms do, but by Gymnasium's word say what holds for every step."""

NUMBERS = "biuf"
"""Kinds of arrays whose entries count as numbers."""


class InfoMetrics:
    """Sums of reward terms, success, and the last value of each key that was asked for.

    Success is 0 or 1; another number says nothing of it, nor does a share of episodes that the
    environment has worked out itself, under the name of the metric.
    `names` are those seen so far, `shares` the asked ones of which all values were booleans. An
    episode that says nothing of success has none, once any has said something; an asked key that
    an episode does not give is not among its numbers.
    """

    def __init__(self, copies: int, asked: Sequence[str] = ()) -> None:
        self.names: list[str] = []
        self.shares: frozenset[str] = frozenset()
        self._copies, self._asked = copies, frozenset(asked)
        self._values: NDArray[np.float64] = np.empty((0, copies))
        self._metric_names: dict[str, str | None] = {}

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
        for key, batch in infos.items():
            name = self._metric_names[key] if key in self._metric_names else self._name(key)
            if name is None:
                continue
            if key == TERMS and isinstance(batch, Mapping):
                self._add_terms(batch, infos, where)
            else:
                self._record(name, batch, infos.get(f"_{key}"), where)

    def _add_terms(
        self, terms: Mapping[str, Any], infos: Mapping[str, Any], where: NDArray[np.bool_]
    ) -> None:
        """Note the terms of a dict, but for those that a key of the same name tells already."""
        for term, values in terms.items():
            if not _is_name(term) or term.startswith("_"):
                continue
            name, untold = reward_term(term), where
            for told in (infos, terms if term != name else {}):
                if name in told:
                    untold = untold & ~np.asarray(told.get(f"_{name}", where), np.bool_)
            self._record(name, values, terms.get(f"_{term}"), untold)

    def _name(self, key: str) -> str | None:
        """The name under which a key is noted, if it is."""
        if not _is_name(key):
            return None
        name = info_metric(key)
        is_term = key.startswith(REWARD) and key not in CONSTANTS
        is_noted = is_term or (key in self._asked and key != SUCCESS) or key in SUCCESS_KEYS
        self._metric_names[key] = name if is_noted else None
        return self._metric_names[key]

    def _record(self, name: str, batch: Any, mask: Any, where: NDArray[np.bool_]) -> None:
        """Note one entry for each copy; `mask` says which copies gave one."""
        values = np.asarray(batch)
        if values.shape != (self._copies,):
            return
        if mask is not None:
            where = where & np.asarray(mask, np.bool_)
        if values.dtype.kind == "O":
            values, where = _numbers_among(values, where)
        if values.dtype.kind not in NUMBERS:
            return
        if name == SUCCESS:
            where = where & ((values == 0) | (values == 1))
            if not where.any():
                return
        row = self._row(name)
        if values.dtype.kind != "b" and where.any():
            self.shares -= {name}
        if self._sums(name):
            np.add(row, values, out=row, where=where)
        else:
            np.copyto(row, values, where=where)

    def _row(self, name: str) -> NDArray[np.float64]:
        if name not in self.names:
            self.names.append(name)
            self.shares |= self._asked & {name}
            added = np.full((1, self._copies), self._first(name))
            self._values = np.concatenate([self._values, added])
        row: NDArray[np.float64] = self._values[self.names.index(name)]
        return row

    def _sums(self, name: str) -> bool:
        return name not in self._asked and name != SUCCESS

    def _first(self, name: str) -> float:
        """The value before an episode has given any."""
        return np.nan if name in self._asked else 0.0


def _numbers_among(
    entries: NDArray[np.object_], where: NDArray[np.bool_]
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The numbers among some objects, and where they are; the objects where there are none.

    Gymnasium batches what it does not count as a number, `np.bool_` for one, as objects.
    """
    is_number = np.array(
        [there and _is_number(entry) for entry, there in zip(entries, where, strict=True)]
    )
    if not is_number.any():
        return entries, is_number
    cells = [entry if there else False for entry, there in zip(entries, is_number, strict=True)]
    return np.array([np.asarray(cell)[()] for cell in cells]), is_number


def _is_number(entry: Any) -> bool:
    if not isinstance(entry, bool | int | float | np.generic | np.ndarray):
        return False
    cell = np.asarray(entry)
    return cell.ndim == 0 and cell.dtype.kind in NUMBERS


def _is_name(key: object) -> bool:
    """Whether a key of an info can name a metric: events hold text that can be shown."""
    return isinstance(key, str) and key.isprintable() and 0 < len(key) <= LONGEST_NAME
