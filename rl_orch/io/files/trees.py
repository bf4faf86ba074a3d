"""Folders from elsewhere: measured as a whole before a byte of them is copied, and copied with the
holes that their files have. Files and folders only; what a folder is for is not known here.
"""

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from rl_orch.errors import BadInput, Conflict
from rl_orch.io.files import regular
from rl_orch.io.files.sealed import sync_directory

MOST_ENTRIES = 250_000
"""Files and folders."""

DEEPEST = 32
"""Folders inside each other."""

BLOCK = 4096
"""What a disk gives out at once."""

SMALL = 1 << 20
"""Files up to here count with all of their bytes, holes or not."""

MOST_EXTENTS = 1_000_000
"""A file in more pieces counts with all of its bytes, too."""

AT_ONCE = 64 << 20
READ_AT_ONCE = 1 << 20
NOT_HERE = (
    *(errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP),
    *(errno.EPERM, errno.ETXTBSY),
)
"""What the kernel says where it cannot copy between two files by itself."""

LeftOut = Callable[[tuple[str, ...], int], bool]
"""Whether what has these names, from the folder on, and this mode does not count at all."""

Tell = Callable[[float], None]
"""Takes the part of a copy that is done."""


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A file or folder as it was measured; `data` is what a copy of it takes on a disk."""

    parts: tuple[str, ...]
    mode: int
    size: int
    data: int
    identity: tuple[int, ...]

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return stat.S_ISDIR(self.mode)


@dataclass(frozen=True, slots=True)
class Tree:
    """A folder that was measured: what is in it, each folder before what it has."""

    root: Path
    entries: tuple[TreeEntry, ...]

    @property
    def data(self) -> int:
        """Bytes that a copy takes on a disk: holes take none."""
        return sum(entry.data for entry in self.entries)

    @property
    def filled(self) -> int:
        """Bytes that a copy takes where there are no holes."""
        return sum(max(entry.data, entry.size) for entry in self.entries)


def survey(root: Path, left_out: LeftOut) -> Tree:
    """All that is in a folder, no link followed; a BadInput that names what cannot be copied."""
    entries: list[TreeEntry] = []
    folders: list[tuple[str, ...]] = [()]
    while folders:
        parts = folders.pop()
        with os.scandir(root.joinpath(*parts)) as scanned:
            for each in scanned:
                entry = _measured(root, (*parts, each.name), left_out)
                if entry is None:
                    continue
                entries.append(entry)
                _refuse_many(root, entries, entry)
                if entry.is_folder:
                    folders.append(entry.parts)
    return Tree(root, tuple(entries))


def copy(tree: Tree, target: Path, tell: Tell) -> None:
    """Copy what was measured to a new folder; returns once all of it is on the disk.

    What has changed since is a Conflict: no more is ever written than was measured.
    """
    budget = _Budget(tree.data, tell)
    target.mkdir()
    for entry in tree.entries:
        there = target.joinpath(*entry.parts)
        if entry.is_folder:
            there.mkdir()
        else:
            _copy_file(tree.root.joinpath(*entry.parts), entry, there, budget)
    for entry in (entry for entry in reversed(tree.entries) if entry.is_folder):
        there = target.joinpath(*entry.parts)
        # Its owner must be able to remove what is in it.
        there.chmod(stat.S_IMODE(entry.mode) & 0o777 | stat.S_IRWXU)
        sync_directory(there)
    sync_directory(target)


def keeps_holes(folder: Path) -> bool:
    """Whether files on the disk of a folder can have holes; the folder must be writable."""
    probe = folder / f".hole-{secrets.token_hex(4)}"
    try:
        with probe.open("xb") as file:
            file.truncate(SMALL)
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_blocks * 512 < SMALL
    finally:
        probe.unlink(missing_ok=True)


def extents(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """The extents of a file's data, from and to, within its first so many bytes; one extent where
    the file system knows no holes."""
    at = 0
    while at < size:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
            at = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            start, at = at, size
        if start < size:
            yield start, min(at, size)


@dataclass(slots=True)
class _Budget:
    """The amount that may still be written, of how much."""

    total: int
    tell: Tell
    spent: int = 0

    def spend(self, count: int, path: Path) -> None:
        self.spent += count
        if self.spent > self.total:
            raise _changed(path)
        self.tell(self.spent / max(self.total, 1))


def _measured(root: Path, parts: tuple[str, ...], left_out: LeftOut) -> TreeEntry | None:
    """An entry of a folder; None if it does not count."""
    path = root.joinpath(*parts)
    facts = path.lstat()
    if left_out(parts, facts.st_mode):
        return None
    if stat.S_ISDIR(facts.st_mode):
        return TreeEntry(parts, facts.st_mode, 0, BLOCK, _identity(facts))
    if not stat.S_ISREG(facts.st_mode):
        raise _odd(path, facts.st_mode)
    return TreeEntry(
        parts, facts.st_mode, facts.st_size, _data(path, facts.st_size), _identity(facts)
    )


def _data(path: Path, size: int) -> int:
    """The bytes that a copy of a file takes on a disk."""
    if size <= SMALL:
        return -(-size // BLOCK) * BLOCK
    with regular.reader(path, follow=False) as file:
        pieces = list(islice(extents(file.fileno(), size), MOST_EXTENTS + 1))
    if len(pieces) > MOST_EXTENTS:
        return size
    return sum(-(-(end - start) // BLOCK) * BLOCK for start, end in pieces)


def _refuse_many(root: Path, entries: list[TreeEntry], newest: TreeEntry) -> None:
    if len(entries) > MOST_ENTRIES:
        raise BadInput(
            f"{str(root)!r} has more than {MOST_ENTRIES:,} files and folders, and is not copied",
            path=str(root),
            hint="Remove what does not belong to it, or pack it up.",
        )
    if newest.is_folder and len(newest.parts) > DEEPEST:
        raise BadInput(
            f"{str(root)!r} has more than {DEEPEST} folders inside each other, and is not copied",
            path=str(root.joinpath(*newest.parts)),
            hint="Remove what does not belong to it.",
        )


def _copy_file(source: Path, entry: TreeEntry, target: Path, budget: _Budget) -> None:
    with (
        regular.reader(source, follow=False) as original,
        open(target, "xb", opener=partial(os.open, mode=0o600)) as made,
    ):
        reading, writing = original.fileno(), made.fileno()
        _refuse_changed(reading, entry, source)
        for start, end in extents(reading, entry.size):
            for at in range(start, end, AT_ONCE):
                _copy_bytes(reading, writing, at, min(at + AT_ONCE, end), source)
                budget.spend(min(AT_ONCE, end - at), source)
        os.ftruncate(writing, entry.size)
        _refuse_changed(reading, entry, source)
        os.fchmod(writing, stat.S_IMODE(entry.mode) & 0o777)
        os.utime(writing, ns=(entry.identity[-1], entry.identity[-1]))
        os.fsync(writing)


def _copy_bytes(reading: int, writing: int, start: int, end: int, source: Path) -> None:
    while start < end:
        start += _copied(reading, writing, start, end - start) or _read(
            reading, writing, start, end - start, source
        )


def _copied(reading: int, writing: int, at: int, count: int) -> int:
    """The number of bytes the kernel has copied by itself, which may be none."""
    if not hasattr(os, "copy_file_range"):
        return 0
    try:
        return os.copy_file_range(reading, writing, count, at, at)
    except OSError as error:
        if error.errno not in NOT_HERE:
            raise
        return 0


def _read(reading: int, writing: int, at: int, count: int, source: Path) -> int:
    data = os.pread(reading, min(count, READ_AT_ONCE), at)
    if not data:
        raise _changed(source)
    return os.pwrite(writing, data, at)


def _identity(facts: os.stat_result) -> tuple[int, ...]:
    """The facts that change when a file becomes another one, or is written to."""
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns


def _refuse_changed(fd: int, entry: TreeEntry, path: Path) -> None:
    if _identity(os.fstat(fd)) != entry.identity:
        raise _changed(path)


def _changed(path: Path) -> Conflict:
    return Conflict(
        f"{str(path)!r} changed while it was copied; nothing was kept of it",
        path=str(path),
        hint="Stop whatever writes to it, then try again.",
    )


def _odd(path: Path, mode: int) -> BadInput:
    return BadInput(
        f"{str(path)!r} is {regular.kind_of(mode)}; only files and folders can be copied",
        path=str(path),
        hint="Put the file that it stands for in its place, or remove it.",
    )
