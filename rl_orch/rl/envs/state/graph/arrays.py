"""Arrays as one run of bytes and a table of them; those that share memory share it again.

A row of the table is [dtype, shape, strides, offset, block, writeable]: where the array lies in a
block of memory, and a block is [start, size] in the bytes.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rl_orch.rl.envs.state.graph.errors import Uncapturable

Bytes: TypeAlias = NDArray[np.uint8]

_KINDS = frozenset("biufcSUMm")


class Packer:
    """Collects arrays; `pack` copies them."""

    def __init__(self) -> None:
        self._arrays: list[NDArray[Any]] = []
        self._numbers: dict[int, int] = {}

    def add(self, array: NDArray[Any]) -> int:
        """The number of an array in the table; one array has one number."""
        if array.dtype.kind not in _KINDS or not array.itemsize:
            raise Uncapturable(f"is an array of {array.dtype}")
        number = self._numbers.setdefault(id(array), len(self._arrays))
        if number == len(self._arrays):
            self._arrays.append(array)
        return number

    def pack(self) -> tuple[dict[str, Any], Bytes]:
        """The table, and the bytes that it speaks of."""
        owners = [owner(array) for array in self._arrays]
        users = Counter(map(id, owners))
        rows: list[list[Any]] = []
        blocks: list[list[int]] = []
        chunks: list[Bytes] = []
        numbers: dict[int, int] = {}
        for array, memory in zip(self._arrays, owners, strict=True):
            shared = users[id(memory)] > 1
            # A lone view is kept without the rest of the memory that it looks at.
            placed = array if shared or array.base is None else array.copy(order="K")
            memory = memory if shared else placed
            number = numbers.setdefault(id(memory), len(blocks)) if shared else len(blocks)
            if number == len(blocks):
                blocks.append([sum(blocks[-1]) if blocks else 0, memory.nbytes])
                chunks.append(bytes_of(memory))
            offset = _address(placed) - _address(memory)
            lies = [list(placed.strides), offset, number, array.flags.writeable]
            rows.append([array.dtype.str, list(array.shape), *lies])
        data = np.concatenate(chunks) if chunks else np.empty(0, np.uint8)
        return {"rows": rows, "blocks": blocks}, data


class Unpacker:
    """The arrays again, in the memory of those offered for them, or in new."""

    def __init__(self, table: dict[str, Any], data: Bytes) -> None:
        self._rows = [_Row(*row) for row in table["rows"]]
        self._blocks = [data[start : start + size] for start, size in table["blocks"]]
        self._users = Counter(row.block for row in self._rows)
        self._offers: list[tuple[int, NDArray[Any]]] = []
        self._arrays: dict[int, NDArray[Any]] = {}
        self._memory: dict[int, NDArray[Any]] = {}

    def offer(self, number: int, array: NDArray[Any]) -> None:
        """Say that the array is what an environment has in the place of number `number`."""
        row = self._rows[number]
        if array.dtype.str == row.dtype and array.shape == tuple(row.shape):
            self._offers.append((number, array))

    def resolve(self, constants: Collection[int]) -> None:
        """Choose among the offers, and write what was packed into the memory of the chosen.

        An array that already holds the right bytes is chosen first and left as it is. Memory whose
        id is among the `constants` belongs to others too, and is never written.
        """
        offers = [offer for offer in self._offers if self._fits(*offer)]
        held = [self._holds(*offer) for offer in offers]
        free = [_is_free(array, constants) for _, array in offers]
        claimed: dict[int, int] = {}
        for (number, array), holds in zip(offers, held, strict=True):
            if holds:
                self._choose(number, array, claimed)
        for (number, array), holds, mine in zip(offers, held, free, strict=True):
            if mine and not holds:
                self._choose(number, array, claimed)
        for number, array in self._arrays.items():
            if not self._holds(number, array):
                self._write(number, array)

    def get(self, number: int) -> NDArray[Any]:
        """The array of that number; every call returns the same one."""
        if number not in self._arrays:
            self._arrays[number] = self._made(number)
        return self._arrays[number]

    def _fits(self, number: int, array: NDArray[Any]) -> bool:
        """Whether the array lies in its memory as the packed one did; a lone one may lie anyhow."""
        row = self._rows[number]
        if not self._shares(number):
            return True
        memory = owner(array)
        place = _address(array) - _address(memory), list(array.strides), memory.nbytes
        same = place == (row.offset, row.strides, len(self._blocks[row.block]))
        return same and memory.base is None

    def _holds(self, number: int, array: NDArray[Any]) -> bool:
        if self._shares(number):
            return np.array_equal(bytes_of(owner(array)), self._blocks[self._rows[number].block])
        return array.tobytes() == self._packed(number).tobytes()

    def _choose(self, number: int, array: NDArray[Any], claimed: dict[int, int]) -> None:
        """Take the array, unless its number has one or its memory is another block's."""
        block, memory = self._rows[number].block, owner(array)
        if number in self._arrays or claimed.setdefault(id(memory), block) != block:
            return
        if self._memory.setdefault(block, memory) is memory:
            self._arrays[number] = array

    def _write(self, number: int, array: NDArray[Any]) -> None:
        if self._shares(number):
            bytes_of(owner(array))[:] = self._blocks[self._rows[number].block]
        else:
            array[...] = self._packed(number)

    def _shares(self, number: int) -> bool:
        return self._users[self._rows[number].block] > 1

    def _packed(self, number: int) -> NDArray[Any]:
        """The array within the bytes that were packed."""
        return self._rows[number].of(self._blocks[self._rows[number].block])

    def _made(self, number: int) -> NDArray[Any]:
        row = self._rows[number]
        if self._shares(number):
            if row.block not in self._memory:
                self._memory[row.block] = self._blocks[row.block].copy()
            array = row.of(bytes_of(self._memory[row.block]))
        else:
            array = self._packed(number).copy(order="K")
        array.flags.writeable = row.writeable
        return array


@dataclass(frozen=True, slots=True)
class _Row:
    """The place of an array in its block."""

    dtype: str
    shape: list[int]
    strides: list[int]
    offset: int
    block: int
    writeable: bool

    def of(self, memory: Bytes) -> NDArray[Any]:
        """The array as a view of a block of memory."""
        kind = dtype_of(self.dtype)
        if not memory.size:
            return np.empty(self.shape, kind)
        strides = tuple(self.strides)
        return np.ndarray(tuple(self.shape), kind, memory, self.offset, strides)


def dtype_of(text: str) -> np.dtype[Any]:
    """The dtype of that name, if it is one that is packed."""
    kind = np.dtype(text)
    if kind.kind not in _KINDS:
        raise Uncapturable(f"is an array of {kind}")
    return kind


def owner(array: NDArray[Any]) -> NDArray[Any]:
    """The array whose memory this one looks at: itself, unless another array owns the memory."""
    memory = array
    while isinstance(memory.base, np.ndarray):
        memory = memory.base
    return memory if memory.base is None else array


def bytes_of(memory: NDArray[Any]) -> Bytes:
    """A view of the memory of an array without gaps; in the order in which it lies there."""
    if not memory.flags.c_contiguous:
        memory = memory.transpose(np.argsort([-stride for stride in memory.strides], kind="stable"))
    return memory.reshape(-1).view(np.uint8)


def _is_free(array: NDArray[Any], constants: Collection[int]) -> bool:
    return array.flags.writeable and id(owner(array)) not in constants


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])
