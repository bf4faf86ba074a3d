"""Regular files: opened without waiting, and never what else has the name of one.

Who opens a FIFO waits for somebody at its other end, and a device may have no end at all. Here
both are errors that say so. Reading as a whole has a bound, which the size is held against first.
"""

import errno
import os
import stat
from contextlib import suppress
from io import BufferedReader, BufferedWriter
from pathlib import Path

from rl_orch.errors import Damaged
from rl_orch.io.files import private

JSON_BYTES = 64 << 20
"""The most that is read of a document; ours have some hundred kilobytes."""

_SMALL = 1 << 16

KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
}


class NotRegular(OSError):
    """Something other than a file where a file is wanted; the message says what it is."""

    def __str__(self) -> str:
        return str(self.strerror)


class TooLong(OSError):
    """A file with more bytes than are read of it; the message has both numbers."""

    def __str__(self) -> str:
        return str(self.strerror)


def kind_of(mode: int) -> str:
    """The kind of what has this mode, for sentences."""
    return KINDS.get(stat.S_IFMT(mode), "a file")


def opened(path: Path, flags: int = os.O_RDONLY) -> int:
    """The descriptor of a file, or `NotRegular`. A link is followed unless the flags forbid it.

    Looked at before it is opened, since to open a device may do something, and after, since
    another may have its name by then.
    """
    with suppress(FileNotFoundError):
        _refuse_other(os.stat(path, follow_symlinks=not flags & os.O_NOFOLLOW), path)
    fd = private.inner_file(path, flags | os.O_NONBLOCK)
    try:
        _refuse_other(os.fstat(fd), path)
        os.set_blocking(fd, True)
    except BaseException:
        os.close(fd)
        raise
    return fd


def reader(path: Path, *, follow: bool = True) -> BufferedReader:
    """A file to read from, or `NotRegular`; also of a link, unless it is to be followed."""
    return os.fdopen(opened(path, os.O_RDONLY if follow else os.O_RDONLY | os.O_NOFOLLOW), "rb")


def read(path: Path, most: int = JSON_BYTES) -> bytes:
    """The bytes of a file; `NotRegular` or `TooLong` if that is not what there is."""
    with reader(path) as file:
        size = os.fstat(file.fileno()).st_size
        data = b"" if size > most else file.read(min(max(size, _SMALL), most) + 1)
    if max(size, len(data)) > most:
        said = f"it has {max(size, len(data)):,} bytes; at most {most:,} are read"
        raise TooLong(errno.EFBIG, said, str(path))
    return data


def read_text(path: Path, most: int = JSON_BYTES) -> str:
    """As `read`, for text in UTF-8."""
    return read(path, most).decode("utf-8")


def read_note(path: Path) -> str:
    """As `read_text`, for what may be missing or no text: then it is empty."""
    try:
        return read_text(path)
    except (OSError, ValueError):
        return ""


def part(path: Path, offset: int, most: int) -> bytes:
    """Some bytes of a file that may be growing; none where there is none, `Damaged` if it is no
    file."""
    try:
        file = reader(path)
    except FileNotFoundError:
        return b""
    except NotRegular as error:
        raise damaged(path, error) from None
    with file:
        return os.pread(file.fileno(), most, offset)


def size(path: Path) -> int:
    """The number of bytes that a file has; none where there is none, `Damaged` if it is no file."""
    try:
        facts = os.stat(path)
        _refuse_other(facts, path)
    except FileNotFoundError:
        return 0
    except NotRegular as error:
        raise damaged(path, error) from None
    return facts.st_size


def next_data(path: Path, offset: int) -> int:
    """The offset where a file has data again, from an offset on: its end if it has none, the offset
    itself where the file system cannot tell."""
    with suppress(OSError), reader(path) as file:
        try:
            return os.lseek(file.fileno(), offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return max(offset, os.fstat(file.fileno()).st_size)
    return offset


def appendable(path: Path) -> int:
    """The descriptor of a file to append to and to read; made if there is none, `Damaged` if
    something else has its name."""
    try:
        return opened(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    except NotRegular as error:
        raise damaged(path, error) from None


def appender(path: Path) -> BufferedWriter:
    """As `appendable`, as a file to write to."""
    return os.fdopen(appendable(path), "ab")


def write(path: Path, data: bytes) -> None:
    """Write a file, over what it had; `NotRegular` if something else has its name."""
    fd = opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW)
    with os.fdopen(fd, "wb") as file:
        file.write(data)


def damaged(path: Path, error: OSError) -> Damaged:
    """The error that a file cannot be used, with why not."""
    hint = "Remove it, or put back the file that was there."
    return Damaged(f"{str(path)!r} cannot be used: {error}", path=str(path), hint=hint)


def _refuse_other(facts: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(facts.st_mode):
        said = f"it is {kind_of(facts.st_mode)}, not a file"
        raise NotRegular(errno.EINVAL, said, str(path))
