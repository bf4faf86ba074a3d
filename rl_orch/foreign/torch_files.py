"""Tensors in what `torch.save` writes, without torch."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_orch.errors import BadInput, Damaged
from rl_orch.foreign import pickles
from rl_orch.foreign.pickles import Storage, View
from rl_orch.io.files.zips import Archive

PICKLE = "data.pkl"
MOST_DIMENSIONS = 8
MOST_TENSORS = 10_000
DEEPEST = 8

Tensors = dict[str, NDArray[Any]]


def is_torch(archive: Archive) -> bool:
    """Whether an archive is one of torch's."""
    return any(name.split("/")[1:] == [PICKLE] for name in archive.names)


def tensors(archive: Archive) -> Tensors:
    """The tensors of a state dict by name; of several, each behind its number or key and a dot."""
    pickled = [name for name in archive.names if name.split("/")[1:] == [PICKLE]]
    if len(pickled) != 1:
        raise BadInput(f"{archive.what} has {len(pickled)} pickles; torch writes one")
    root = pickled[0].removesuffix(PICKLE)
    order = f"{root}byteorder"
    if order in archive and archive.read(order, most=16) != b"little":
        raise BadInput(f"{archive.what} was saved on a machine with another order of bytes")
    said = pickles.said_by(archive.read(pickled[0], most=pickles.MOST_BYTES), archive.what)
    found = dict(_views(said, "", archive.what))
    if not found:
        raise BadInput(f"{archive.what} has no tensors")
    return {name: _tensor(archive, root, name, view) for name, view in found.items()}


def _views(said: Any, name: str, what: str) -> Iterator[tuple[str, View]]:
    """All tensors in what a pickle says; other values are passed over."""
    waiting, count = [(said, name, 0)], 0
    while waiting:
        value, name, depth = waiting.pop(0)
        count += 1
        if count > MOST_TENSORS or depth > DEEPEST:
            raise BadInput(f"{what} has more parts than a policy: over {MOST_TENSORS:,}, or nested")
        if isinstance(value, View):
            yield name, value
            continue
        prefix = f"{name}." if name else ""
        waiting += [(item, f"{prefix}{key}", depth + 1) for key, item in _parts(value)]


def _parts(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list | tuple) else []


def _tensor(archive: Archive, root: str, name: str, view: View) -> NDArray[Any]:
    numbers = _numbers(archive, f"{root}data/{view.storage.key}", view.storage)
    count = math.prod(view.shape)
    if len(view.shape) > MOST_DIMENSIONS or count > len(numbers):
        raise BadInput(
            f"{archive.what} says that {name} has the shape {list(view.shape)[:10]}, but it has "
            f"{len(numbers):,} numbers for it"
        )
    steps = zip(view.shape, view.strides, strict=False)
    last = view.offset + sum((size - 1) * stride for size, stride in steps)
    if len(view.strides) != len(view.shape) or (count and last >= len(numbers)):
        raise Damaged(f"{archive.what} has a tensor that reaches beyond its numbers: {name}")
    strides = [stride * numbers.itemsize for stride in view.strides]
    seen = np.lib.stride_tricks.as_strided(numbers[view.offset :], view.shape, strides)
    return np.array(seen)


def _numbers(archive: Archive, entry: str, storage: Storage) -> NDArray[Any]:
    data = archive.read(entry)
    half = storage.dtype == "bfloat16"
    dtype = np.dtype("uint16" if half else storage.dtype)
    if len(data) != storage.count * dtype.itemsize:
        raise Damaged(
            f"{archive.what} has {len(data):,} bytes in {entry}; {storage.count:,} numbers of "
            f"{storage.dtype} take {storage.count * dtype.itemsize:,}"
        )
    numbers = np.frombuffer(data, dtype)
    if half:  # The upper half of a float32.
        return (numbers.astype(np.uint32) << 16).view(np.float32)
    return numbers
