"""Contents of replay segments, written once in the background and verified whenever they are read.

Segments are immutable safetensors files; checkpoints list those that they need, with a digest each.
Whatever stops a writer, a file that has its name is whole. Which there are: `replay_files.py`.
"""

import hashlib
import json
import mmap
import os
import secrets
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as decode

from rl_orch.errors import Damaged, RlctlError
from rl_orch.io.checkpoints import replay_files
from rl_orch.io.checkpoints.replay_files import SegmentEntry
from rl_orch.io.files.sealed import sync_directory, unwritable
from rl_orch.io.machine import hardware

Arrays: TypeAlias = Mapping[str, NDArray[Any]]

NOUN = "replay segment"
QUEUE = 2
"""Segments that wait or are being written; whoever brings a third one waits."""

_CHUNK_BYTES = 8 << 20
_HEADER_BYTES = 1 << 20
_DTYPES = {
    **{f"<f{size}": f"F{8 * size}" for size in (2, 4, 8)},
    **{f"{'|' if size == 1 else '<'}i{size}": f"I{8 * size}" for size in (1, 2, 4, 8)},
    **{f"{'|' if size == 1 else '<'}u{size}": f"U{8 * size}" for size in (1, 2, 4, 8)},
    "|b1": "BOOL",
}


class SegmentLike(Protocol):
    """Consecutive rows of a replay buffer, as it hands them over."""

    @property
    def name(self) -> str:
        """The numbers of its first and last row."""

    @property
    def arrays(self) -> Arrays:
        """Its columns."""


class SegmentStore:
    """The segments of one run, written by one thread in the order they come.

    `known` are those that the checkpoint lists which training goes on from.
    """

    def __init__(self, folder: Path, known: Iterable[SegmentEntry] = ()) -> None:
        self.folder = folder
        self._known = {entry.name: entry for entry in known}
        self._pending: deque[Future[SegmentEntry]] = deque()
        self._writer: ThreadPoolExecutor | None = None

    def add_segment(self, segment: SegmentLike) -> None:
        """Have a segment written, sooner or later; its arrays must not change any more.

        An error of the writer comes up here or in `settle`.
        """
        while self._pending and (len(self._pending) >= QUEUE or self._pending[0].done()):
            self._take()
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1, thread_name_prefix="segments")
        self._pending.append(self._writer.submit(write, self.folder, segment))

    def flush(self) -> Mapping[str, SegmentEntry]:
        """Wait until all segments are on the disk; returns what is known of each, by name."""
        while self._pending:
            self._take()
        return dict(self._known)

    def retain(self, names: Collection[str]) -> None:
        """Remove all segments that no checkpoint needs any more; `names` are those that one does.

        Nothing may be on its way: whoever does not know of a segment yet would not name it.
        """
        self.flush()
        replay_files.retain(self.folder, names)
        self._known = {name: entry for name, entry in self._known.items() if name in names}

    def adopt(self, folder: Path, listed: Iterable[SegmentEntry]) -> Callable[[str], Arrays]:
        """Take over the segments of another run, and return what reads them, by name."""
        entries = tuple(listed)
        try:
            _make(self.folder)
            for entry in entries:
                _linked(folder, entry, self.folder)
            sync_directory(self.folder)
        except OSError as error:
            raise unwritable(f"{NOUN}s of {folder}", self.folder, error) from error
        self._known |= {entry.name: entry for entry in entries}
        return reader(self.folder, entries)

    def close(self) -> None:
        """Wait for the writer, whatever came of it, and let it go."""
        if self._writer is not None:
            self._writer.shutdown()
            self._writer = None

    def _take(self) -> None:
        entry = self._pending.popleft().result()
        self._known[entry.name] = entry


def write(folder: Path, segment: SegmentLike) -> SegmentEntry:
    """Write a segment and return once it is on the disk, whole, under its name."""
    path = replay_files.path_of(folder, segment.name)
    temporary = _temporary(folder, segment.name)
    try:
        _make(folder)
        sha256, size = _written(temporary, segment.arrays)
        os.replace(temporary, path)
        sync_directory(folder)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise unwritable(f"{NOUN} {path}", path, error) from error
    return SegmentEntry(segment.name, sha256, size)


def read(folder: Path, entry: SegmentEntry) -> dict[str, NDArray[Any]]:
    """The columns of a segment; or `Damaged` with its name if size, digest or format is wrong."""
    try:
        with replay_files.opened(folder, entry.name) as file:
            data = file.read(entry.bytes + 1)
    except FileNotFoundError:
        raise _damaged(folder, entry, "is missing") from None
    except OSError as error:
        raise _damaged(folder, entry, f"cannot be read ({error.strerror})") from error
    if len(data) != entry.bytes:
        raise _damaged(folder, entry, "has the wrong size")
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        raise _damaged(folder, entry, "fails its digest")
    try:
        if int.from_bytes(data[:8], "little") > _HEADER_BYTES:
            raise ValueError("its header is too long")
        return dict(decode(data))
    except (SafetensorError, KeyError, ValueError) as error:
        problem = f"is not in the safetensors format: {error}"
        raise _damaged(folder, entry, problem) from error


def reader(folder: Path, listed: Iterable[SegmentEntry]) -> Callable[[str], Arrays]:
    """A function that reads the segments that a checkpoint lists, by name."""
    entries = {entry.name: entry for entry in listed}

    def by_name(name: str) -> Arrays:
        if name not in entries:
            raise Damaged(f"{NOUN} {name} is not among those that the checkpoint lists")
        return read(folder, entries[name])

    return by_name


def allocator(
    folder: Path, share_of_memory: float
) -> Callable[[str, tuple[int, ...], DTypeLike], NDArray[Any]]:
    """A function that makes the arrays of a replay buffer: zeros in memory; or, once they would
    take more than that share of it together, in files of that folder which have no name and go with
    the process.

    Room for such a file is set aside at once: a disk that is full later would kill the process.
    """
    left = share_of_memory * hardware.memory_mb() * hardware.MIB

    def allocate(name: str, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        nonlocal left
        size = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
        if size <= left:
            left -= size
            return np.zeros(shape, dtype)
        try:
            _make(folder)
            with tempfile.TemporaryFile(dir=folder, prefix=replay_files.TEMPORARY) as file:
                os.posix_fallocate(file.fileno(), 0, size)
                mapped = mmap.mmap(file.fileno(), size)
                mapped.madvise(mmap.MADV_RANDOM)
        except OSError as error:
            raise RlctlError(
                f"the replay buffer's {name} take {size >> 20:,} MiB, more than "
                f"buffer.memory_share = {share_of_memory} of the memory, and no file for them "
                f"can be made in {str(folder)!r}: {error.strerror}",
                path="buffer.size",
                hint="Lower buffer.size, raise buffer.memory_share, or free space on that disk.",
            ) from error
        return np.frombuffer(mapped, dtype).reshape(shape)

    return allocate


def _linked(source: Path, entry: SegmentEntry, folder: Path) -> None:
    """Have a segment in a folder as well: by a second name, or a copy where that cannot be."""
    with suppress(Damaged):
        read(folder, entry)
        return
    file, temporary = replay_files.path_of(source, entry.name), _temporary(folder, entry.name)
    try:
        os.link(file, temporary, follow_symlinks=False)
    except OSError:
        shutil.copyfile(file, temporary, follow_symlinks=False)
        with temporary.open("rb") as copy:
            os.fsync(copy.fileno())
    os.replace(temporary, replay_files.path_of(folder, entry.name))


def _temporary(folder: Path, name: str) -> Path:
    return folder / f"{replay_files.TEMPORARY}{name}-{secrets.token_hex(8)}"


def _make(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(exist_ok=True)
        sync_directory(folder.parent)


def _written(path: Path, arrays: Arrays) -> tuple[str, int]:
    """Write a new safetensors file; its digest and size.

    Not by the library: it copies everything twice, and lets no other thread go on meanwhile.
    """
    columns = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    sha256, size = hashlib.sha256(), 0
    with path.open("xb", buffering=0) as file:
        for data in (_header(columns), *map(_bytes_of, columns.values())):
            for start in range(0, len(data), _CHUNK_BYTES):
                chunk = data[start : start + _CHUNK_BYTES]
                sha256.update(chunk)
                size += len(chunk)
                while len(chunk):
                    chunk = chunk[file.write(chunk) or 0 :]
        os.fsync(file.fileno())
    return sha256.hexdigest(), size


def _header(columns: Arrays) -> memoryview:
    listed: dict[str, Any] = {}
    offset = 0
    for name, array in columns.items():
        end = offset + array.nbytes
        shape = list(array.shape)
        listed[name] = {
            "dtype": _DTYPES[array.dtype.str],
            "shape": shape,
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(listed, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return memoryview(len(text).to_bytes(8, "little") + text)


def _damaged(folder: Path, entry: SegmentEntry, problem: str) -> Damaged:
    return Damaged(
        f"{NOUN} {entry.name} {problem}",
        path=str(replay_files.path_of(folder, entry.name)),
        hint="Restore it from a copy, or go on from a checkpoint that does not need it.",
    )


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data
