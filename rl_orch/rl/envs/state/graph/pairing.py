"""`Pairing`: which object of an environment takes the state of which object of a document."""

from collections import Counter
from types import MethodType
from typing import Any

import numpy as np

from rl_orch.rl.envs.state.graph import fields
from rl_orch.rl.envs.state.graph.arrays import Unpacker
from rl_orch.rl.envs.state.graph.flatten import CONTAINERS
from rl_orch.rl.envs.state.graph.values import NotSimple, simple


class Pairing:
    """Objects of a document and of a counterpart, paired by where they stand.

    An object may stand in several places, and the counterpart have another in each: `settle` gives
    every object of the document at most one, and none to two of them.
    """

    def __init__(self, objects: list[dict[str, Any]], arrays: Unpacker) -> None:
        self._objects = objects
        self._arrays = arrays
        self._offers: list[dict[int, Any]] = [{} for _ in objects]
        self._queue: list[tuple[int, Any]] = []

    def walk(self, value: Any, counterpart: Any) -> None:
        """Start from the two roots."""
        self._meet(value, counterpart)
        for number, thing in self._queue:
            self._look_into(self._objects[number], thing)

    def resolve(self) -> dict[int, Any]:
        """Object of the document → its counterpart, for those that have one; arrays are settled."""
        met = [thing for offers in self._offers for thing in offers.values()]
        constants = fields.constants({type(t) for t in met if not isinstance(t, CONTAINERS)})
        self._arrays.resolve(constants)
        times = Counter(id(thing) for thing in met)
        # Two containers may be one in the counterpart because it has just begun: keep out of that.
        unfit = {id(t) for t in met if isinstance(t, CONTAINERS) and times[id(t)] > 1} | constants
        offers = [[key for key in offered if key not in unfit] for offered in self._offers]
        return {number: self._offers[number][key] for number, key in _match(offers).items()}

    def _meet(self, value: Any, thing: Any) -> None:
        match value:
            case ["array", number]:
                if type(thing) is np.ndarray:
                    self._arrays.offer(number, thing)
            case ["ref", number]:
                same = self._objects[number]["kind"] == fields.name_of_kind(thing)
                if same and id(thing) not in self._offers[number]:
                    self._offers[number][id(thing)] = thing
                    self._queue.append((number, thing))
            case ["tuple", _, items]:
                if isinstance(thing, tuple):
                    self._meet_all(items, thing)
            case ["method", _, bound]:
                if isinstance(thing, MethodType):
                    self._meet(bound, thing.__self__)

    def _meet_all(self, values: Any, things: Any) -> None:
        for value, thing in zip(values, things, strict=False):
            self._meet(value, thing)

    def _look_into(self, described: dict[str, Any], thing: Any) -> None:
        if "fields" in described:
            present = fields.read(thing)
            for name, value in described["fields"].items():
                if name in present:
                    self._meet(value, present[name])
        if "items" in described:
            self._meet_all(described["items"], thing)
        for key, value in described.get("pairs", ()):
            try:
                present_key = simple(key)
            except NotSimple:
                continue
            if present_key in thing:
                self._meet(value, thing[present_key])


def _match(offers: list[list[int]]) -> dict[int, int]:
    """Give as many numbers as possible one of their offers each; the first if nobody else needs it.

    Augmenting paths: a number that finds its offers taken looks for another one for their takers.
    """
    given: dict[int, int] = {}
    taken: dict[int, int] = {}
    for first in range(len(offers)):
        reached: dict[int, int] = {}
        queue = [first]
        for number in queue:
            free = _reach(number, offers[number], taken, reached, queue)
            if free is not None:
                _hand_over(first, free, reached, given, taken)
                break
    return given


def _reach(
    number: int,
    offers: list[int],
    taken: dict[int, int],
    reached: dict[int, int],
    queue: list[int],
) -> int | None:
    """An offer of the number that is free; notes who holds the others."""
    for key in offers:
        if key not in reached:
            reached[key] = number
            if key not in taken:
                return key
            queue.append(taken[key])
    return None


def _hand_over(
    first: int, key: int, reached: dict[int, int], given: dict[int, int], taken: dict[int, int]
) -> None:
    while True:
        number = reached[key]
        before = given.get(number)
        given[number], taken[key] = key, number
        if number == first or before is None:
            return
        key = before
