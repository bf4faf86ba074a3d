"""`Batch`: the one container that passes between collector, buffer, learner and policy.

Columns share their leading dimension B. Nothing here knows what an algorithm does with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any] | torch.Tensor
Column: TypeAlias = "Array | Mapping[str, Column]"
Infos: TypeAlias = Sequence[Any] | Mapping[str, Sequence[Any]]
Indices: TypeAlias = Array | Sequence[int] | slice


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """B transitions, or as much of them as is known: a policy's input has observations alone.

    `next_known` (B,) says which rows of `next_observations` hold one; None means all of them do.
    `infos` is opaque: a sequence of B entries, or a mapping of such. `extras` holds the columns of
    an algorithm (`log_probs`, `values`, ...). A column is an array, a tensor, or a mapping of them.
    """

    observations: Column
    actions: Column | None = None
    rewards: Array | None = None
    terminated: Array | None = None
    truncated: Array | None = None
    next_observations: Column | None = None
    next_known: Array | None = None
    infos: Infos | None = None
    extras: Mapping[str, Column] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.next_known is not None and self.next_observations is None:
            raise ValueError("column next_known is given without next_observations")
        lengths = [*self._lengths()]
        size = lengths[0][1]
        for name, length in lengths:
            if length != size:
                raise ValueError(
                    f"column {name} has {length} rows, observations have {size}; "
                    "all columns of a batch share their leading dimension"
                )

    def __len__(self) -> int:
        column = self.observations
        while isinstance(column, Mapping):
            column = next(iter(column.values()))
        return len(column)

    @property
    def dones(self) -> Array:
        """Where an episode ended, for either reason: (B,), boolean."""
        terminated, truncated = self.column("terminated"), self.column("truncated")
        if isinstance(terminated, torch.Tensor):
            return torch.logical_or(terminated, torch.as_tensor(truncated))
        return np.logical_or(terminated, truncated)

    def column(self, name: str) -> Array:
        """The array of that name, among the fields or the extras; an error if it is not there."""
        column = getattr(self, name) if name in FIELDS else self.extras.get(name)
        if isinstance(column, np.ndarray | torch.Tensor):
            return column
        what = "is not there" if column is None else f"is a {type(column).__name__}, not an array"
        raise ValueError(f"column {name} {what}; the batch has {', '.join(self._present())}")

    def with_extras(self, **columns: Column) -> Batch:
        """The batch with further columns; one of the same name is replaced."""
        return replace(self, extras={**self.extras, **columns})

    def select(self, indices: Indices) -> Batch:
        """The rows at `indices`: positions, a boolean mask or a slice."""
        rows = indices if isinstance(indices, slice) else _as_index(indices)
        infos = None if self.infos is None else _select_infos(self.infos, rows, len(self))
        return self._mapped(lambda array: _take(array, rows), infos)

    def to(self, device: torch.device | str) -> Batch:
        """The batch as tensors on `device`, as far as its columns can be tensors."""
        target = torch.device(device)
        return self._mapped(lambda array: _move(array, target), self.infos)

    @staticmethod
    def merge(batches: Sequence[Batch]) -> Batch:
        """The rows of all batches, in order.

        Batches need the same columns, but next observations and infos may be missing in some:
        missing next observations become zeros that `next_known` marks as unknown.
        """
        if not batches:
            raise ValueError("merge needs at least one batch")
        plain = ("observations", "actions", "rewards", "terminated", "truncated")
        merged: dict[str, Any] = {
            name: _joined(name, [getattr(part, name) for part in batches]) for name in plain
        }
        names = {name for part in batches for name in part.extras}
        extras = {
            name: _joined(name, [part.extras.get(name) for part in batches]) for name in names
        }
        next_observations, next_known = _joined_next(batches)
        return Batch(
            **merged,
            next_observations=next_observations,
            next_known=next_known,
            infos=_joined_infos(batches),
            extras={name: extras[name] for name in sorted(names)},
        )

    def _mapped(self, change: Callable[[Array], Array], infos: Infos | None) -> Batch:
        changed: dict[str, Any] = {
            name: mapped(column, change)
            for name in ARRAY_FIELDS
            if (column := getattr(self, name)) is not None
        }
        extras = {name: mapped(column, change) for name, column in self.extras.items()}
        return Batch(**changed, infos=infos, extras=extras)

    def _present(self) -> list[str]:
        return [name for name in ARRAY_FIELDS if getattr(self, name) is not None] + [*self.extras]

    def _lengths(self) -> Iterable[tuple[str, int]]:
        for name in ARRAY_FIELDS:
            if (column := getattr(self, name)) is not None:
                yield from _lengths(name, column)
        for name, column in self.extras.items():
            yield from _lengths(name, column)
        if isinstance(self.infos, Mapping):
            yield from ((f"infos.{name}", len(rows)) for name, rows in self.infos.items())
        elif self.infos is not None:
            yield "infos", len(self.infos)


FIELDS = tuple(entry.name for entry in fields(Batch))
ARRAY_FIELDS = tuple(name for name in FIELDS if name not in ("infos", "extras"))


def on_host(array: Array) -> NDArray[Any]:
    """The array in host memory; a tensor there is shared, not copied."""
    return array.cpu().numpy() if isinstance(array, torch.Tensor) else array


def mapped(column: Column, change: Callable[[Any], Array]) -> Column:
    """The column with each of its arrays changed."""
    if isinstance(column, Mapping):
        return {name: mapped(value, change) for name, value in column.items()}
    return change(column)


def rows_of(column: Column, rows: Any) -> Any:
    """The rows of a column at an index, a mask or a slice of its own kind: arrays or tensors."""
    if isinstance(column, Mapping):
        return {name: rows_of(value, rows) for name, value in column.items()}
    return column[rows]


def host_column(column: Column | None) -> Any:
    """The column in host memory, as an array or a mapping of them; an error if there is none."""
    if column is None:
        raise ValueError("the batch lacks a column that is asked for")
    return mapped(column, on_host)


def _lengths(name: str, column: Column) -> Iterable[tuple[str, int]]:
    if isinstance(column, Mapping):
        if not column:
            raise ValueError(f"column {name} is an empty mapping")
        for key, value in column.items():
            yield from _lengths(f"{name}.{key}", value)
        return
    if not isinstance(column, np.ndarray | torch.Tensor):
        raise TypeError(
            f"column {name} is a {type(column).__name__}; must be a NumPy array, a tensor or a "
            "mapping of them"
        )
    if column.ndim == 0:
        raise ValueError(f"column {name} is a scalar; must have a leading batch dimension")
    yield name, int(column.shape[0])


def _as_index(indices: Array | Sequence[int]) -> NDArray[Any]:
    array = indices.cpu().numpy() if isinstance(indices, torch.Tensor) else np.asarray(indices)
    return array if array.size else array.astype(np.int64)


def _take(array: Array, rows: NDArray[Any] | slice) -> Array:
    if isinstance(array, torch.Tensor) and not isinstance(rows, slice):
        return array[torch.from_numpy(rows).to(array.device)]
    taken: Array = array[rows]
    return taken


def _move(array: Array, device: torch.device) -> Array:
    if isinstance(array, np.ndarray):
        if array.dtype == object:
            return array
        array = torch.from_numpy(array)
    if device.type == "mps" and array.dtype == torch.float64:
        array = array.float()
    return array.to(device)


def _select_infos(infos: Infos, rows: NDArray[Any] | slice, size: int) -> Infos:
    positions = np.arange(size)[rows].tolist()
    if isinstance(infos, Mapping):
        return {name: [column[i] for i in positions] for name, column in infos.items()}
    return [infos[i] for i in positions]


def _joined(name: str, columns: Sequence[Column | None]) -> Any:
    """One column from those of several batches; None only where all of them are."""
    present = [column for column in columns if column is not None]
    if not present:
        return None
    if len(present) < len(columns):
        raise ValueError(f"column {name} is in {len(present)} of {len(columns)} batches to merge")
    if isinstance(present[0], Mapping):
        return _joined_mappings(name, present)
    if any(isinstance(column, Mapping) for column in present):
        raise ValueError(f"column {name} is a mapping in some of the batches to merge, not in all")
    return _concatenated(name, present)


def _joined_mappings(name: str, columns: Sequence[Any]) -> dict[str, Any]:
    keys = columns[0].keys()
    if any(not isinstance(column, Mapping) or column.keys() != keys for column in columns):
        raise ValueError(f"column {name} has different keys in the batches to merge")
    return {key: _joined(f"{name}.{key}", [column[key] for column in columns]) for key in keys}


def _concatenated(name: str, arrays: Sequence[Any]) -> Array:
    shapes = {tuple(array.shape[1:]) for array in arrays}
    if len(shapes) > 1:
        raise ValueError(f"column {name} has rows of different shapes to merge: {sorted(shapes)}")
    device = next((array.device for array in arrays if isinstance(array, torch.Tensor)), None)
    if device is None:
        return np.concatenate(arrays)
    return torch.cat([torch.as_tensor(array, device=device) for array in arrays])


def _joined_next(batches: Sequence[Batch]) -> tuple[Any, Array | None]:
    model = next((b.next_observations for b in batches if b.next_observations is not None), None)
    if model is None:
        return None, None
    columns = [
        _zeros(model, len(b)) if b.next_observations is None else b.next_observations
        for b in batches
    ]
    joined = _joined("next_observations", columns)
    if all(b.next_known is None and b.next_observations is not None for b in batches):
        return joined, None
    return joined, _concatenated("next_known", [_known(b) for b in batches])


def _zeros(model: Column, size: int) -> Column:
    """`size` rows of zeros, like those of `model`."""

    def zeros(array: Array) -> Array:
        if isinstance(array, torch.Tensor):
            return array.new_zeros((size, *array.shape[1:]))
        return np.zeros((size, *array.shape[1:]), dtype=array.dtype)

    return mapped(model, zeros)


def _known(batch: Batch) -> Array:
    if batch.next_known is not None:
        return batch.next_known
    return np.full(len(batch), batch.next_observations is not None)


def _joined_infos(batches: Sequence[Batch]) -> Infos | None:
    """Mappings stay mappings if all are and share their keys; otherwise one entry a row."""
    if all(batch.infos is None for batch in batches):
        return None
    mappings = [batch.infos for batch in batches if isinstance(batch.infos, Mapping)]
    if len(mappings) == len(batches) and all(m.keys() == mappings[0].keys() for m in mappings):
        return {key: [row for m in mappings for row in m[key]] for key in mappings[0]}
    return [row for batch in batches for row in _info_rows(batch)]


def _info_rows(batch: Batch) -> Iterable[Any]:
    if batch.infos is None:
        return [{} for _ in range(len(batch))]
    if isinstance(batch.infos, Mapping):
        columns = batch.infos
        return [{name: rows[i] for name, rows in columns.items()} for i in range(len(batch))]
    return batch.infos
