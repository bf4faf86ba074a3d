"""Zip archives of strangers: measured as a whole before an entry is opened, and never unpacked to
a disk.
"""

import io
import stat
import struct
import zipfile
import zlib
from pathlib import PurePosixPath

from rl_orch.errors import BadInput, Damaged

MOST_ENTRIES = 10_000
MOST_BYTES = 1 << 30
"""Of all entries together, unpacked; and of the archive itself."""

MOST_GROWTH = 100
"""Times its size that an entry may grow when it is unpacked."""

SMALL = 1 << 16
"""Entries up to here may grow as they like."""

ENCRYPTED = 1
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

BROKEN = (
    *(zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError),
    *(ValueError, OverflowError, NotImplementedError),
)
"""What the library raises for a broken archive, by where it is broken."""


class Archive:
    """An archive whose every entry is in bounds; `what` is what errors call it."""

    def __init__(self, data: bytes, what: str) -> None:
        self.what = what
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except BROKEN as error:
            raise Damaged(f"{what} is no whole zip archive: {error}") from None
        self.names = tuple(info.filename for info in self._zip.infolist())
        self._refuse(self._zip.infolist())

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def read(self, name: str, *, most: int = MOST_BYTES) -> bytes:
        """The bytes of an entry, at most so many."""
        if name not in self.names:
            raise BadInput(f"{self.what} has no {name}")
        size = self._zip.getinfo(name).file_size
        if size > most:
            raise BadInput(f"{self.what} has {size:,} bytes in {name}; at most {most:,} are read")
        try:
            return self._zip.read(name)
        except BROKEN as error:
            raise Damaged(f"{self.what} cannot be read: {name}: {error}") from None

    def _refuse(self, entries: list[zipfile.ZipInfo]) -> None:
        if len(entries) > MOST_ENTRIES:
            self._bomb(f"{len(entries):,} entries; at most {MOST_ENTRIES:,} are allowed")
        if len(set(self.names)) < len(entries):
            raise BadInput(f"{self.what} has two entries of one name")
        total = sum(entry.file_size for entry in entries)
        if total > MOST_BYTES:
            self._bomb(f"{total:,} bytes unpacked; at most {MOST_BYTES:,} are allowed")
        for entry in entries:
            self._refuse_entry(entry)

    def _refuse_entry(self, entry: zipfile.ZipInfo) -> None:
        name, path = entry.filename, PurePosixPath(entry.filename)
        if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or not name:
            raise BadInput(f"{self.what} has an entry that leads outside: {name!r}")
        if stat.S_ISLNK(entry.external_attr >> 16):
            raise BadInput(f"{self.what} has an entry that is a link: {name!r}")
        if entry.flag_bits & ENCRYPTED:
            raise BadInput(f"{self.what} has an entry that is encrypted: {name!r}")
        if entry.compress_type not in METHODS:
            raise BadInput(f"{self.what} has an entry that is packed in an unusual way: {name!r}")
        growth = entry.file_size / max(entry.compress_size, 1)
        if entry.file_size > SMALL and growth > MOST_GROWTH:
            self._bomb(f"an entry that grows {growth:,.0f}-fold when it is unpacked: {name!r}")

    def _bomb(self, problem: str) -> None:
        raise BadInput(f"{self.what} has {problem}", hint="Nothing of it was unpacked.")
