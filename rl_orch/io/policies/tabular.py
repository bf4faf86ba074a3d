"""Observations in files, and actions out to files: NumPy, Parquet and JSON lines. A part at a time,
but for .npz, which is unpacked as a whole, and actions in NumPy's files, which are written at the
end.

Columns are `observation`, or one for each part of an observation by its name; `mask` where actions
are masked; and `first`, true where an episode begins. What they must look like, the ports say.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rl_orch.errors import BadInput, Damaged, NotFound, RlctlError
from rl_orch.io.files import npy, regular
from rl_orch.io.files.sealed import advice
from rl_orch.io.files.zips import Archive, UnpackBounds
from rl_orch.io.policies.bundles import Port
from rl_orch.io.policies.nested import flattened
from rl_orch.io.policies.observed import NUMBERS, exactly, form_of, refuse_unknown_parts

Table = dict[str, NDArray[Any]]
KINDS = (".npy", ".npz", ".parquet", ".jsonl")
PREFIX = "observation."
OBSERVATION = "observation"
FIRST = "first"
MASK = "mask"
MASKED = 'A row is {"observation": …, "mask": …}, with true or 1 for each action that is allowed.'
BATCH = 1024
MOST_UNPACKED = 4 << 30
"""Bytes of all arrays in an .npz file, or of a row group of a Parquet file, which are in memory at
once; and of the .npz file itself."""

SMALL = 64 << 20
"""Bytes that a file may unpack to, however small it is."""

ZIP = b"PK"

LONGEST_LINE = 64 << 20
"""Bytes of one line of JSON."""


class TableWriter(Protocol):
    """Takes actions, batch by batch."""

    def write(self, actions: NDArray[Any]) -> None:
        """Write further actions."""

    def close(self) -> None:
        """All of them have been written."""


def read(path: Path, ports: Sequence[Port]) -> Iterator[tuple[Table, float]]:
    """The rows of a file in batches of equally named columns; each with the share of the file that
    was read. `BadInput` with the row that does not fit."""
    refuse_unreadable(path)
    row = 0
    for columns, share in _READERS[kind_of(path)](path, ports):
        table = fitted(columns, ports, source=path.name, row=row)
        row += len(next(iter(table.values())))
        yield table, share
    if row == 0:
        raise BadInput(f"{path.name} has no rows")


def refuse_unreadable(path: Path) -> None:
    """Raise if there is no file of a kind that is known."""
    kind = kind_of(path)
    try:
        with regular.reader(path) as file:
            size = os.fstat(file.fileno()).st_size
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"there is no file {str(path)!r}") from None
    except OSError as error:
        raise BadInput(f"{str(path)!r} cannot be read: {error.strerror}") from None
    if kind == ".npz" and size > MOST_UNPACKED:
        raise BadInput(
            f"{path.name} has {size:,} bytes; of .npz at most {MOST_UNPACKED:,} are read, since it "
            "is in memory at once; .npy, .parquet and .jsonl may be of any size"
        )


def fitted(columns: Mapping[str, Any], ports: Sequence[Port], *, source: str, row: int) -> Table:
    """Columns as the ports want them; `row` is the number of the first row in the file."""
    wanted = {port.name: port for port in ports if not port.name.startswith("state.")}
    named = {_named(name, wanted): values for name, values in columns.items()}
    table = {}
    for name, port in wanted.items():
        if name not in named:
            if name == FIRST:
                continue
            given = ", ".join(sorted(columns)) or "none"
            raise BadInput(
                f"{source} lacks the column {name!r}; it has: {given}",
                hint=MASKED if name == MASK else None,
            )
        table[name] = _column(named[name], port, source=source, row=row)
    counts = {name: len(values) for name, values in table.items()}
    if len({*counts.values()}) > 1:
        raise BadInput(f"the columns of {source} are not equally long: {counts}")
    if FIRST in wanted and FIRST not in table:
        first = np.zeros(next(iter(counts.values())), np.bool_)
        first[0] = row == 0
        table[FIRST] = first
    return table


def from_json(value: Any, ports: Sequence[Port]) -> dict[str, Any]:
    """The columns of one row as JSON has it: an observation as the environment gives it, or by the
    names of its parts; or an object with `observation` and what else there is."""
    parts = [port.name.removeprefix(PREFIX) for port in ports if port.name.startswith(PREFIX)]
    if (flat := flattened(value, parts)) is not None:
        beside = value if isinstance(value, dict) else {}
        beside = {name: beside[name] for name in (MASK, FIRST) if name in beside}
        refuse_unknown_parts(value, [*parts, *beside])
        return _row(flat, beside)
    if not isinstance(value, dict):
        return {OBSERVATION: [value]}
    if (flat := flattened(value.get(OBSERVATION), parts)) is not None:
        refuse_unknown_parts(value[OBSERVATION], parts)
        return _row(flat, {name: part for name, part in value.items() if name != OBSERVATION})
    return _row({}, value)


def kind_of(path: Path) -> str:
    """The ending of a file's name, if it is a kind that is known."""
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise BadInput(f"{path.name!r} ends in {kind!r}; must be one of {', '.join(KINDS)}")
    return kind


class Output:
    """A file of actions that appears whole or not at all."""

    def __init__(self, path: Path) -> None:
        self._path, self._closed = path, False
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}{kind_of(path)}")
        self._sink = self._tried(lambda: _SINKS[kind_of(path)](self._temporary))

    def write(self, actions: NDArray[Any]) -> None:
        """Write further actions."""
        self._tried(lambda: self._sink.write(actions))

    def close(self) -> None:
        """Give the file its name."""
        self._closed = True
        self._tried(self._sink.close)
        self._tried(lambda: self._temporary.replace(self._path))

    def discard(self) -> None:
        """Leave nothing behind but a file that has its name."""
        if not self._closed:
            with suppress(OSError):
                self._sink.close()
        with suppress(OSError):
            self._temporary.unlink(missing_ok=True)

    def _tried(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except OSError as error:
            raise RlctlError(
                f"cannot write {str(self._path)!r}: {error.strerror}",
                hint=advice(error, then="try again"),
            ) from error


def _named(name: str, wanted: Mapping[str, Port]) -> str:
    return PREFIX + name if name not in wanted and PREFIX + name in wanted else name


def _row(parts: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """One row as columns; a mask of several choices may be one list for each."""
    named = {PREFIX + name: [part] for name, part in parts.items()}
    mask = others.get(MASK)
    if isinstance(mask, list) and mask and all(isinstance(part, list) for part in mask):
        others = {**others, MASK: [each for part in mask for each in part]}
    return named | {name: [part] for name, part in others.items()}


def _column(values: Any, port: Port, *, source: str, row: int) -> NDArray[Any]:
    """One column as an array (B, *shape) of the port's type."""
    kind = np.dtype(port.dtype)
    try:
        array = np.asarray(values)
        if array.shape[1:] != port.shape or array.dtype.kind not in NUMBERS:
            raise ValueError
    except (ValueError, TypeError, OverflowError):
        raise _misfit(values, port, source, row) from None
    cast, wrong = exactly(array, kind)
    if wrong is not None:
        at = row + int(np.argwhere(wrong)[0][0])
        raise BadInput(
            f"row {at + 1} of {source} has {array[wrong][0]} in {port.name!r}; must be "
            f"{form_of(kind)}"
        )
    return cast if cast.flags.writeable else cast.copy()  # Torch takes no others.


def _misfit(values: Any, port: Port, source: str, row: int) -> BadInput:
    """The error that names the first row which is not as the port wants it."""
    for at, value in enumerate(values):
        try:
            array = np.asarray(value)
            shape, number = array.shape, array.dtype.kind in NUMBERS
        except ValueError:
            shape, number = (), False
        if shape != port.shape or not number:
            seen = f"shape {list(shape)}" if number else f"{value!r:.80}"
            return BadInput(
                f"row {row + at + 1} of {source} has {seen} in {port.name!r}; must be numbers of "
                f"shape {list(port.shape)}"
            )
    return BadInput(f"{source} has values in {port.name!r} that do not fit {port.dtype}")


def _numpy_rows(path: Path, _ports: Sequence[Port]) -> Iterator[tuple[Mapping[str, Any], float]]:
    try:
        columns = _arrays(path)
        total = min((len(values) for values in columns.values()), default=0)
    except Damaged as error:
        raise BadInput(error.message) from None
    except (ValueError, OSError, EOFError, TypeError, MemoryError) as error:
        raise BadInput(f"{path.name} cannot be read: {error}") from None
    for start in range(0, total, BATCH):
        stop = min(start + BATCH, total)
        yield {name: values[start:stop] for name, values in columns.items()}, stop / total


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The array of an .npy file, of which only the rows that are asked for are in memory; or all of
    an .npz file."""
    with regular.reader(path) as file:
        if file.read(len(ZIP)) == ZIP:
            archive = Archive(
                file, path.name, _bounds("Save it as .npy, which may be of any size.")
            )
            names = [name for name in archive.names if name.endswith(".npy")]
            return {name.removesuffix(".npy"): npy.array(archive.read(name)) for name in names}
    return {OBSERVATION: np.load(path, mmap_mode="r", allow_pickle=False)}


def _bounds(hint: str) -> UnpackBounds:
    return UnpackBounds(MOST_UNPACKED, SMALL, hint)


def _parquet_rows(path: Path, _ports: Sequence[Port]) -> Iterator[tuple[Mapping[str, Any], float]]:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            _refuse_large_groups(file.metadata, path)
            total, done = file.metadata.num_rows, 0
            for batch in file.iter_batches(BATCH):
                done += len(batch)
                names = batch.schema.names
                yield {name: _values(batch.column(name)) for name in names}, done / total
    except (pyarrow.ArrowException, OSError) as error:
        raise BadInput(f"{path.name} cannot be read: {error}") from None


def _refuse_large_groups(metadata: Any, path: Path) -> None:
    """Raise if a Parquet file has a part too large to be read at once."""
    bounds = _bounds("Write it with smaller row groups; the file may be of any size.")
    most = bounds.of(path.stat().st_size)
    for number in range(metadata.num_row_groups):
        size = metadata.row_group(number).total_byte_size
        if size > most:
            raise BadInput(
                f"row group {number + 1} of {path.name} has {size:,} bytes; at most {most:,} are "
                "read, since it is in memory at once",
                hint=bounds.hint,
            )


def _values(column: Any) -> Any:
    """A column of numbers, or of lists of them, as an array or as lists."""
    return (
        column.to_pylist()
        if column.null_count or column.type.num_fields
        else column.to_numpy(zero_copy_only=False)
    )


def _json_rows(path: Path, ports: Sequence[Port]) -> Iterator[tuple[Mapping[str, Any], float]]:
    size, gathered = max(path.stat().st_size, 1), []
    with regular.reader(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), 1):
            if len(line) > LONGEST_LINE:
                raise BadInput(
                    f"line {number} of {path.name} has more than {LONGEST_LINE:,} bytes; an "
                    "observation has fewer"
                )
            if not line.strip():
                continue
            try:
                gathered.append(from_json(json.loads(line), ports))
            except (ValueError, RecursionError) as error:
                raise BadInput(f"line {number} of {path.name} is not JSON: {error}") from None
            if len(gathered) == BATCH:
                yield _gathered(gathered, path.name), file.tell() / size
                gathered = []
    if gathered:
        yield _gathered(gathered, path.name), 1.0


def _gathered(rows: list[dict[str, Any]], source: str) -> dict[str, Any]:
    names = rows[0].keys()
    for row in rows:
        if row.keys() != names:
            raise BadInput(f"the lines of {source} do not all have the same names: {[*row]}")
    return {name: [row[name][0] for row in rows] for name in names}


class _NumpySink:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._parts: list[NDArray[Any]] = []
        path.touch()

    def write(self, actions: NDArray[Any]) -> None:
        self._parts.append(np.array(actions))

    def close(self) -> None:
        if not self._parts:
            return
        actions = np.concatenate(self._parts)
        with self._path.open("wb") as file:
            if self._path.suffix == ".npz":
                np.savez(file, action=actions)
            else:
                np.save(file, actions)


class _JsonSink:
    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")

    def write(self, actions: NDArray[Any]) -> None:
        self._file.writelines(json.dumps({"action": row}) + "\n" for row in actions.tolist())

    def close(self) -> None:
        self._file.close()


class _ParquetSink:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None
        path.touch()

    def write(self, actions: NDArray[Any]) -> None:
        import pyarrow
        from pyarrow import parquet

        flat = pyarrow.array(actions.ravel())
        for size in reversed(actions.shape[1:]):
            flat = pyarrow.FixedSizeListArray.from_arrays(flat, size)
        table = pyarrow.table({"action": flat})
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self._path, table.schema)
        self._writer.write_table(table)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


_READERS = {
    ".npy": _numpy_rows,
    ".npz": _numpy_rows,
    ".parquet": _parquet_rows,
    ".jsonl": _json_rows,
}
_SINKS: dict[str, Callable[[Path], TableWriter]] = {
    ".npy": _NumpySink,
    ".npz": _NumpySink,
    ".parquet": _ParquetSink,
    ".jsonl": _JsonSink,
}
