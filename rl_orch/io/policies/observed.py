"""Observations held against their space: numbers that its types cannot hold, and values out of
range. Values of a Box may lie outside its bounds, since environments do that. NumPy alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_orch.errors import BadInput

NUMBERS = "biuf"
"""The kinds of NumPy's types that are numbers."""


@dataclass(frozen=True, slots=True)
class PartRange:
    """The values of a part of an observation that is a choice: from `low` to `high`, both
    allowed; numbers, or arrays of the part's shape. `label` is the part as Python finds it."""

    label: str
    low: Any
    high: Any

    def refuse_outside(
        self, rows: NDArray[Any], *, single: bool = False, file: str = "", row: int = 0
    ) -> None:
        """Raise if a value of the rows (B, *shape) is none of them. `single` is a batch of one that
        was none; `row` is the number of the first row in a file."""
        wrong = (rows < self.low) | (rows > self.high)
        if not wrong.any():
            return
        at = tuple(np.argwhere(wrong)[0].tolist())
        low, high = (np.broadcast_to(end, rows.shape)[at] for end in (self.low, self.high))
        place = labelled(self.label, at[1:] if single or file else at)
        of = f"row {row + at[0] + 1} of {file}: " if file else ""
        raise BadInput(f"{of}{place} = {rows[at]}; must be in [{low}, {high}]")


def labelled(label: str, keys: Sequence[str | int]) -> str:
    """The place that keys lead to, as Python finds it: `observation['a'][2]`."""
    return label + "".join(f"[{key!r}]" for key in keys)


def exactly(array: NDArray[Any], kind: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Numbers as a type has them, and where it cannot: not whole, too large or not finite; None
    where it holds all of them."""
    if array.dtype == kind:
        cast = array
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            cast = array.astype(kind)
    if kind.kind == "f":
        held = np.isfinite(cast)
    elif cast is array or kind.kind == "b":
        return cast, None
    else:
        held = cast == array
    return (cast, None) if held.all() else (cast, ~held)


def form_of(kind: np.dtype[Any]) -> str:
    """The numbers that a type can hold, in words."""
    if kind.kind == "f":
        return "a finite number"
    bounds = np.iinfo(kind)
    return f"whole numbers from {bounds.min} to {bounds.max}"


def refuse_unknown_parts(observation: Any, names: Sequence[str]) -> None:
    """Raise if an observation has a part that is none of these, by their flat names."""
    above = {name[:at] for name in names for at, letter in enumerate(name) if letter == "/"}
    if unknown := [*_unknown(observation, {*names}, above, "", "observation")]:
        raise BadInput(f"{unknown[0]} is no part of the observation; it has {', '.join(names)}")


def _unknown(node: Any, names: set[str], above: set[str], before: str, label: str) -> Iterator[str]:
    if isinstance(node, Mapping):
        entries: Any = node.items()
    else:
        entries = enumerate(node) if isinstance(node, Sequence) else ()
    for key, part in entries:
        name = f"{before}{key}"
        if name in names:
            continue
        if name in above and isinstance(part, Mapping | Sequence):
            yield from _unknown(part, names, above, f"{name}/", labelled(label, [key]))
        else:
            yield labelled(label, [key])
