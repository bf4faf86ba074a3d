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

from rl_orch.rl.data.state import StateTree

Array: TypeAlias = NDArray[Any] | torch.Tensor
Column: TypeAlias = "Array | Mapping[str, Column]"
Infos: TypeAlias = Sequence[Any] | Mapping[str, Sequence[Any]]
Indices: TypeAlias = Array | Sequence[int] | slice


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """B transitions, or parts of them: a policy's input has observations alone.

    `infos` is opaque: a sequence of B entries, or a mapping of such. `extras` holds the columns of
    an algorithm (`log_probs`, `values`, ...). A column is an array, a tensor, or a mapping of them.
    """

    observations: Column
    actions: Column | None = None
    rewards: Array | None = None
    terminated: Array | None = None
    truncated: Array | None = None
    next_observations: Column | None = None
    infos: Infos | None = None
    extras: Mapping[str, Column] = field(default_factory=dict)

    def __post_init__(self) -> None:
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
        """Ends of episodes, for either reason: (B,), boolean."""
        terminated, truncated = self.column("terminated"), self.column("truncated")
        if isinstance(terminated, torch.Tensor):
            return torch.logical_or(terminated, torch.as_tensor(truncated))
        return np.logical_or(terminated, truncated)

    def column(self, name: str) -> Array:
        """The array of that name among fields and extras; an error if there is none."""
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
        return self._mapped(lambda column: _take(column, rows))

    def to(self, device: torch.device | str) -> Batch:
        """The batch as tensors on `device`, as far as its columns can be tensors."""
        target = torch.device(device)
        return self._mapped(lambda column: _move(column, target))

    @staticmethod
    def merge(batches: Sequence[Batch]) -> Batch:
        """The rows of all batches, in order; all of them have the same columns."""
        if not batches:
            raise ValueError("merge needs at least one batch")
        return Batch(
            **{name: _joined(name, [getattr(part, name) for part in batches]) for name in FIELDS}
        )

    def _mapped(self, change: Callable[[Any], Any]) -> Batch:
        present = {name: getattr(self, name) for name in FIELDS if getattr(self, name) is not None}
        return Batch(**{name: mapped(column, change) for name, column in present.items()})

    def _present(self) -> list[str]:
        return [name for name in ARRAY_FIELDS if getattr(self, name) is not None] + [*self.extras]

    def _lengths(self) -> Iterable[tuple[str, int]]:
        for name in ARRAY_FIELDS:
            if (column := getattr(self, name)) is not None:
                yield from _lengths(name, column)
        for name, column in self.extras.items():
            yield from _lengths(name, column)
        by_name = self.infos if isinstance(self.infos, Mapping) else {"infos": self.infos}
        yield from ((name, len(rows)) for name, rows in by_name.items() if rows is not None)


FIELDS = tuple(entry.name for entry in fields(Batch))
ARRAY_FIELDS = tuple(name for name in FIELDS if name not in ("infos", "extras"))


def on_host(array: Array) -> NDArray[Any]:
    """The array in host memory; a tensor there is shared, not copied."""
    return array.cpu().numpy() if isinstance(array, torch.Tensor) else array


def mapped(column: Any, change: Callable[[Any], Any]) -> Any:
    """The column with each of its arrays changed."""
    if isinstance(column, Mapping):
        return {name: mapped(value, change) for name, value in column.items()}
    return change(column)


def rows_of(column: Column, rows: Any) -> Any:
    """The rows of a column at an index, mask or slice of its own kind."""
    if isinstance(column, Mapping):
        return {name: rows_of(value, rows) for name, value in column.items()}
    return column[rows]


def host_column(column: Column | None) -> Any:
    """The column in host memory; an error if there is none."""
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


def _take(column: Any, rows: NDArray[Any] | slice) -> Any:
    if isinstance(column, torch.Tensor) and not isinstance(rows, slice):
        return column[torch.from_numpy(rows).to(column.device)]
    if isinstance(column, np.ndarray | torch.Tensor):
        return column[rows]
    return [column[position] for position in np.arange(len(column))[rows].tolist()]


def _move(array: Any, device: torch.device) -> Any:
    if isinstance(array, np.ndarray) and array.dtype != object:
        array = torch.from_numpy(array)
    if not isinstance(array, torch.Tensor):
        return array
    if device.type == "mps" and array.dtype == torch.float64:
        array = array.float()
    return array.to(device)


def _joined(name: str, columns: Sequence[Any]) -> Any:
    """One column from those of several batches; None only where all of them are."""
    present = [column for column in columns if column is not None]
    if not present:
        return None
    if len(present) < len(columns):
        raise ValueError(f"column {name} is in {len(present)} of {len(columns)} batches to merge")
    if all(isinstance(column, Mapping) for column in present):
        keys = dict.fromkeys(key for column in present for key in column)
        return {key: _joined(key, [column.get(key) for column in present]) for key in keys}
    if all(isinstance(column, np.ndarray | torch.Tensor) for column in present):
        return _concatenated(name, present)
    if any(isinstance(column, Mapping) for column in present):
        raise ValueError(f"column {name} is a mapping in some of the batches to merge, not in all")
    return [row for column in present for row in column]


def _concatenated(name: str, arrays: Sequence[Any]) -> Array:
    shapes = {tuple(array.shape[1:]) for array in arrays}
    if len(shapes) > 1:
        raise ValueError(f"column {name} has rows of different shapes to merge: {sorted(shapes)}")
    device = next((array.device for array in arrays if isinstance(array, torch.Tensor)), None)
    if device is None:
        return np.concatenate(arrays)
    return torch.cat([torch.as_tensor(array, device=device) for array in arrays])


def batch_state(batch: Batch) -> StateTree:
    """The columns of a batch as a state, but for infos; copies."""
    columns = {name: getattr(batch, name) for name in ARRAY_FIELDS}
    columns = {name: column for name, column in columns.items() if column is not None}
    extras = {f"extras/{name}": column for name, column in batch.extras.items()}
    arrays = [entry for name, c in (columns | extras).items() for entry in named(name, c)]
    return StateTree(dict(arrays), {"columns": [*columns]})


def batch_of(state: StateTree) -> Batch:
    """The batch that `batch_state` took apart."""
    extras = {name: np.array(tensor) for name, tensor in state.under("extras").tensors.items()}
    names = state.document["columns"]
    columns: dict[str, Any] = {name: unnamed(name, state.tensors) for name in names}
    return Batch(**columns, extras=extras)


def named(name: str, column: Column) -> list[tuple[str, NDArray[Any]]]:
    """The arrays of a column with names for a snapshot; copies."""
    if isinstance(column, Mapping):
        return [entry for key in column for entry in named(f"{name}/{key}", column[key])]
    return [(name, np.array(column))]


def unnamed(name: str, tensors: Mapping[str, NDArray[Any]]) -> Column:
    """The column that `named` took apart."""
    if name in tensors:
        return tensors[name].copy()
    prefix = f"{name}/"
    return {
        key.removeprefix(prefix): tensor.copy()
        for key, tensor in tensors.items()
        if key.startswith(prefix)
    }
