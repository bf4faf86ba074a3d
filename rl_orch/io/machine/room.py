"""Room on a disk, asked for before something large is written to it."""

import os
from dataclasses import dataclass
from pathlib import Path

from rl_orch.errors import RlctlError
from rl_orch.io.machine.hardware import MIB, nearest

SPARE_BYTES = 64 << 20
"""What stays free on the disk: for the database, and for runs that are at work."""


@dataclass(frozen=True, slots=True)
class Room:
    """The room that a disk has left: bytes, and further files; None where it has no bound or tells
    none."""

    bytes: int | None
    files: int | None


def left(path: Path) -> Room:
    """The room for this user's files; on the disk that a path is on or would be made on."""
    facts = os.statvfs(nearest(path))
    return Room(
        facts.f_bavail * facts.f_frsize if facts.f_blocks else None,
        facts.f_favail if facts.f_files else None,
    )


def refuse_without(
    folder: Path,
    what: str,
    needed: int,
    *,
    files: int = 0,
    promised: int = 0,
    spare: int = SPARE_BYTES,
    kind: type[RlctlError] = RlctlError,
    hint: str,
) -> None:
    """Raise if so many bytes and files do not fit: where a folder is or will be, besides the bytes
    that were promised to others."""
    room = left(folder)
    if room.bytes is not None and needed + promised + spare > room.bytes:
        besides = f", and {_mib(spare)} stay free" if spare else ""
        others = f", {_mib(promised)} of them for others under way" if promised else ""
        raise kind(
            f"{what} takes {_mib(needed)} of disk{besides}; there are "
            f"{room.bytes // MIB:,} MiB left for {str(folder)!r}{others}",
            path=str(folder),
            hint=hint,
        )
    if room.files is not None and files > room.files:
        raise kind(
            f"{what} has {files:,} files and folders; the disk has room for {room.files:,} more in "
            f"{str(folder)!r}",
            path=str(folder),
            hint=hint,
        )


def _mib(count: int) -> str:
    return f"{-(-count // MIB):,} MiB"
