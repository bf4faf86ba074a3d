"""Archives of files and folders as tar (ustar), without anything that could lead out of them.

Only heads of 512 bytes are parsed, one by one: no links, no devices, no holes, no long names that
stand elsewhere; nothing is compressed, so that nothing is larger than it came.
"""

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO

from rl_orch.errors import BadInput
from rl_orch.io.files import private, trees

BLOCK = tarfile.BLOCKSIZE
KINDS = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE)


def pack(path: Path, target: IO[bytes]) -> None:
    """Write a file or folder as an archive; a BadInput that names what none can hold."""
    with tarfile.open(fileobj=target, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise BadInput(f"{str(path)!r} is no file and no folder", path=str(path))
        archive.add(path, arcname=path.name, recursive=False)
        entries = trees.survey(path, _is_of_process).entries if path.is_dir() else ()
        for entry in entries:
            inner = path.joinpath(*entry.parts)
            try:
                archive.add(inner, arcname="/".join((path.name, *entry.parts)), recursive=False)
            except ValueError as error:
                raise BadInput(f"{str(inner)!r} cannot be sent: {error}", path=str(inner)) from None


def unpack(archive: Path, target: Path) -> None:
    """Write what an archive holds into a new folder; a BadInput at anything but files in it."""
    private.inner_folder(target, exist_ok=False)
    entries: set[tuple[str, ...]] = set()
    with archive.open("rb") as file:
        for head in _heads(file):
            parts = _parts(head.name)
            entries.update(parts[:depth] for depth in range(1, len(parts) + 1))
            if len(entries) > trees.MOST_ENTRIES:
                most = f"{trees.MOST_ENTRIES:,} files and folders"
                raise BadInput(f"the archive holds more than {most}")
            path = target.joinpath(*parts)
            try:
                if head.type == tarfile.DIRTYPE:
                    private.inner_folder(path)
                else:
                    private.inner_folder(path.parent)
                    _write(file, path, head.size)
            except (FileExistsError, NotADirectoryError):
                raise BadInput(f"the archive holds {head.name[:100]!r} twice") from None


def _is_of_process(parts: tuple[str, ...], mode: int) -> bool:
    """Whether something is a socket, which stands for a process and not for data."""
    return parts[-1].endswith(".sock")


def _heads(file: BinaryIO) -> Iterator[tarfile.TarInfo]:
    """The heads of all members, each followed by its data, which must be read before the next."""
    while True:
        block = file.read(BLOCK)
        if not block.strip(b"\0"):
            return
        try:
            head = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        except (tarfile.HeaderError, UnicodeDecodeError, ValueError) as error:
            raise BadInput(f"it is no tar archive: {error}") from None
        if head.type not in KINDS or head.size < 0:
            raise BadInput(
                f"the archive holds {head.name[:100]!r}, which is neither a file nor a folder",
                hint="Pack it with `tar --format=ustar --dereference`.",
            )
        yield head


def _parts(name: str) -> tuple[str, ...]:
    """The parts of a member's name, none of which leads out of the archive."""
    parts = tuple(name.rstrip("/").split("/"))
    odd = "\\" in name or any(part in ("", ".", "..") for part in parts)
    if odd or len(parts) > trees.DEEPEST or any(len(os.fsencode(part)) > 255 for part in parts):
        raise BadInput(f"the archive holds {name[:100]!r}, which is no path inside it")
    return parts


def _write(file: BinaryIO, path: Path, size: int) -> None:
    with open(path, "xb", opener=private.inner_file) as made:
        left = size
        while left and (data := file.read(min(left, 1 << 20))):
            left -= made.write(data)
    if left:
        raise BadInput(f"the archive ends within {path.name!r}")
    file.seek(-size % BLOCK, os.SEEK_CUR)
