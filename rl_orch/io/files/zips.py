"""Zip archives of strangers: measured as a whole before an entry is opened, and never unpacked to
a disk.
"""

import io
import stat
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO

from rl_orch.errors import BadInput, Damaged

MOST_ENTRIES = 10_000
MOST_BYTES = 1 << 30
"""Of all entries together, unpacked; and of the archive itself."""

MOST_GROWTH = 100
"""Times its size that an archive may grow when it is unpacked."""

SMALL = 1 << 16
"""Up to here, an archive may grow as it likes."""

ENCRYPTED = 1
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

BROKEN = (
    *(zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError),
    *(ValueError, OverflowError, NotImplementedError),
)
"""What the library raises for a broken archive, by where it is broken."""


@dataclass(frozen=True, slots=True)
class UnpackBounds:
    """Bytes that an archive may come to, unpacked; `hint` is for who has a larger one."""

    most: int = MOST_BYTES
    small: int = SMALL
    hint: str = "Nothing of it was unpacked."

    def of(self, packed: int) -> int:
        """Bytes that so many packed ones may come to."""
        return min(self.most, max(self.small, MOST_GROWTH * packed))


class Archive:
    """An archive that is in bounds as a whole; `what` is what errors call it."""

    def __init__(
        self, data: bytes | IO[bytes], what: str, bounds: UnpackBounds = UnpackBounds()
    ) -> None:
        self.what = what
        file = io.BytesIO(data) if isinstance(data, bytes) else data
        try:
            size = file.seek(0, io.SEEK_END)
            self._zip = zipfile.ZipFile(file)
        except BROKEN as error:
            raise Damaged(f"{what} is no whole zip archive: {error}") from None
        self.names = tuple(info.filename for info in self._zip.infolist())
        self._refuse(self._zip.infolist(), bounds, size)

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
            with self._zip.open(name) as file:
                data = file.read(size + 1)  # Without a number, the library unpacks all that comes.
        except BROKEN as error:
            raise Damaged(f"{self.what} cannot be read: {name}: {error}") from None
        if len(data) != size:
            raise Damaged(f"{self.what} has {len(data):,} bytes in {name}, and says {size:,}")
        return data

    def _refuse(self, entries: list[zipfile.ZipInfo], bounds: UnpackBounds, size: int) -> None:
        if len(entries) > MOST_ENTRIES:
            raise BadInput(
                f"{self.what} has {len(entries):,} entries; at most {MOST_ENTRIES:,} are allowed",
                hint=bounds.hint,
            )
        if len(set(self.names)) < len(entries):
            raise BadInput(f"{self.what} has two entries of one name")
        total, most = sum(entry.file_size for entry in entries), bounds.of(size)
        if total > most:
            raise BadInput(
                f"{self.what} has {total:,} bytes unpacked; at most {most:,} are allowed for one "
                f"of {size:,}",
                hint=bounds.hint,
            )
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
