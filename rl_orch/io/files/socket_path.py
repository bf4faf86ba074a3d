"""Unix sockets in folders of any length, which only their owner can reach."""

import hashlib
import os
import socket
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rl_orch.errors import RlctlError

_RUNTIME = Path("/tmp")
_THROUGH_PROC = sys.platform == "linux" and os.path.isdir("/proc/self/fd")


def location(folder: Path, name: str) -> Path:
    """Where the socket of a folder is.

    The path of a socket holds at most 107 bytes, and a folder's may be longer. Linux reaches the
    socket through the open folder; elsewhere it is in a folder of the user's own, under a name that
    follows from both.
    """
    if _THROUGH_PROC:
        return folder / name
    digest = hashlib.sha256(os.fsencode(folder.resolve() / name)).hexdigest()
    return _RUNTIME / f"rlctl-{os.getuid()}" / f"{digest[:32]}.sock"


@dataclass(frozen=True, slots=True)
class SocketPath:
    """The open folder of a socket, its name there, and a short enough path."""

    fd: int
    name: str
    path: str

    @classmethod
    def open(cls, folder: Path, name: str) -> "SocketPath":
        """The path, until it is closed."""
        file = location(folder, name)
        if not _THROUGH_PROC:
            _make_private(file.parent)
        fd = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
        short = f"/proc/self/fd/{fd}/{file.name}" if _THROUGH_PROC else str(file)
        return cls(fd, file.name, short)

    def close(self) -> None:
        """Let go of the folder."""
        os.close(self.fd)

    def listener(self, backlog: int) -> socket.socket:
        """A listening socket that only its owner can reach; in place of whatever had its name."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.unlink()
            listener.bind(self.path)
            os.chmod(self.name, 0o600, dir_fd=self.fd)  # Before anybody can connect.
            listener.listen(backlog)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
        return listener

    def inode(self) -> int | None:
        """Which file has the name now; None if there is none."""
        with suppress(FileNotFoundError):
            return os.stat(self.name, dir_fd=self.fd, follow_symlinks=False).st_ino
        return None

    def unlink(self) -> None:
        """Remove the socket, if it is there."""
        with suppress(FileNotFoundError):
            os.unlink(self.name, dir_fd=self.fd)


def _make_private(folder: Path) -> None:
    """Make the user's runtime folder, or refuse one that somebody else could have made."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o077:
        raise RlctlError(
            f"{folder} must be a folder that only you can enter; it is not", path=str(folder)
        )
