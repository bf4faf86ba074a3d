"""TensorBoard files as they grow: the scalars that another program writes, in their order.

A file is a row of records, each with its length and checksums. The messages in them are read with
tensorboard's own classes, which need neither torch nor tensorflow.
"""

import os
import stat
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from tensorboard.compat.proto import event_pb2, types_pb2  # type: ignore[import-untyped]

from rl_orch.io.files import regular
from rl_orch.io.files.tfrecords import masked_crc

RECORD_BYTES = 64 << 10
"""A record of scalars takes far less; pictures and histograms that take more are not looked at."""

FILES = 1000
"""The most files of one folder that are followed: the newest of those that are written to."""

_HEADER = struct.Struct("<QI")
_CRC = struct.Struct("<I")
_NUMBERS = {
    types_pb2.DT_FLOAT: ("float_val", "<f"),
    types_pb2.DT_DOUBLE: ("double_val", "<d"),
    types_pb2.DT_INT32: ("int_val", "<i"),
    types_pb2.DT_INT64: ("int64_val", "<q"),
}


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number at a step."""

    step: int
    key: str
    value: float


class Scalars:
    """Scalars in the event files below a folder, from now on.

    Only those count that were written after this was made. `full` says whether there were more
    files than are followed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._old = {file.path: file.size for file in _event_files(folder)}
        self._files = {path: _File(path, size) for path, size in self._old.items()}
        self.full = False

    @property
    def damaged(self) -> list[Path]:
        """The files that cannot be read on, because a record in them fails its checksum."""
        return [file.path for file in self._files.values() if file.damaged]

    def read(self) -> Iterator[Scalar]:
        """Scalars that are new, file by file."""
        for listed in self._followed():
            file = self._files.setdefault(listed.path, _File(listed.path))
            if listed.size > file.offset:
                yield from file.read()

    def _followed(self) -> list["_Listed"]:
        """The newest files, by name. Those that nobody has touched since the start do not count."""
        grown = [one for one in _event_files(self._folder) if self._old.get(one.path) != one.size]
        self.full = self.full or len(grown) > FILES
        newest = sorted(grown, key=lambda one: (one.changed_ns, one.path), reverse=True)[:FILES]
        return sorted(newest, key=lambda one: one.path)


@dataclass(frozen=True, slots=True)
class _Listed:
    """An event file in its folder's listing."""

    path: Path
    size: int
    changed_ns: int


@dataclass(slots=True)
class _File:
    """An event file, and how far it was read. A record that is not all there yet is left."""

    path: Path
    offset: int = 0
    damaged: bool = False

    def read(self) -> Iterator[Scalar]:
        with suppress(OSError), regular.reader(self.path) as file:
            size = os.fstat(file.fileno()).st_size
            while not self.damaged and size - self.offset >= _HEADER.size + _CRC.size:
                file.seek(self.offset)
                head = file.read(_HEADER.size)
                length, check = _HEADER.unpack(head)
                end = self.offset + _HEADER.size + length + _CRC.size
                if masked_crc(head[:8]) != check:
                    self.damaged = True
                    return
                if end > size:
                    return
                if length <= RECORD_BYTES:
                    data, seal = file.read(length), file.read(_CRC.size)
                    self.damaged = masked_crc(data) != _CRC.unpack(seal)[0]
                    yield from () if self.damaged else _scalars(data)
                self.offset = end


def _event_files(folder: Path) -> Iterator[_Listed]:
    """The event files below a folder. No link is followed."""
    for place, _, names in os.walk(folder):
        for name in names:
            if "tfevents" in name:
                path = Path(place, name)
                with suppress(OSError):
                    facts = path.lstat()
                    if stat.S_ISREG(facts.st_mode):
                        yield _Listed(path, facts.st_size, facts.st_mtime_ns)


def _scalars(record: bytes) -> Iterator[Scalar]:
    """The numbers in a record; it may hold something else, or nothing that is understood."""
    try:
        event = event_pb2.Event.FromString(record)
    except DecodeError:
        return
    for value in event.summary.value:
        number = _number(value)
        if number is not None:
            yield Scalar(event.step, value.tag, number)


def _number(value: Any) -> float | None:
    """The number in a value of either style: as torch writes it, or as TensorFlow 2 does."""
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return float(value.simple_value)
    if kind != "tensor" or value.tensor.dtype not in _NUMBERS:
        return None
    tensor, (name, code) = value.tensor, _NUMBERS[value.tensor.dtype]
    if any(dimension.size != 1 for dimension in tensor.tensor_shape.dim):
        return None
    numbers, content = getattr(tensor, name), tensor.tensor_content
    if len(numbers) == 1:
        return float(numbers[0])
    return float(struct.unpack(code, content)[0]) if len(content) == struct.calcsize(code) else None
