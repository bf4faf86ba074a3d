"""What can have the name of a file and is none: FIFOs, sockets, and devices where they can be made;
and files of 500 GB that take up nothing.
"""

import os
import socket
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

HUGE = 500 * 10**9
ENDLESS = os.makedev(1, 5)
"""The numbers of /dev/zero, which has no end."""


def a_socket(path: Path) -> None:
    """A socket that nobody listens at. Its address holds 107 bytes, so it is named from nearby."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
            made.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


def a_device(path: Path) -> None:
    """A device that gives zeros for as long as it is read."""
    os.mknod(path, stat.S_IFCHR | 0o666, ENDLESS)


def _can_make_devices() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        try:
            a_device(Path(folder, "device"))
        except OSError:
            return False
    return True


KINDS: dict[str, Callable[[Path], None]] = {"a FIFO": os.mkfifo, "a socket": a_socket}
"""What each is called in sentences → how it is made. Devices only who may make them can have."""

if _can_make_devices():
    KINDS["a device"] = a_device


def in_place(path: Path, kind: str) -> Path:
    """Something odd where a file was, or is to be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    KINDS[kind](path)
    return path


def a_hole(path: Path, size: int = HUGE) -> Path:
    """A file of that size with nothing in it but what it had."""
    with path.open("ab") as file:
        file.truncate(size)
    return path
