"""Abilities of a folder's file system that runs rely on, found out by trying them."""

import fcntl
import os
import pwd
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rl_orch.errors import RlctlError
from rl_orch.io.machine.hardware import nearest
from rl_orch.io.run import command_socket

MOUNTED = "is mounted read-only"


@dataclass(frozen=True, slots=True)
class Abilities:
    """The abilities that a folder lacks, in words; how far its clock is ahead of this machine's.

    `unwritable` is the reason if nothing could be tried at all.
    """

    unwritable: str | None = None
    lacking: tuple[str, ...] = ()
    skew_s: float = 0.0


def abilities(path: Path) -> Abilities:
    """The abilities of the folder; where there is none yet, of the one that it would be made in."""
    there = nearest(path)
    try:
        with tempfile.TemporaryDirectory(prefix=".rlctl-", dir=there) as made:
            return _tried(Path(made))
    except OSError as error:
        return Abilities(unwritable=f"{str(there)!r}: {error.strerror}")


def writable(path: Path) -> bool:
    """Whether the folder may be written to, or made; nothing is."""
    return unwritable(path) is None


def unwritable(path: Path) -> str | None:
    """The reason why a folder can neither be written to nor made; in words that follow its name."""
    there = nearest(path)
    if not there.is_dir():
        return f"cannot be written to: {str(there)!r} is no folder"
    return obstacle(there)


def obstacle(path: Path) -> str | None:
    """The reason why a file or folder that is there cannot be written to; in words that follow its
    name."""
    if os.access(path, os.W_OK | (os.X_OK if path.is_dir() else 0)):
        return None
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return MOUNTED
    who, owner = _name_of(os.geteuid()), _name_of(path.stat().st_uid)
    return f"cannot be written to by {who}; it belongs to {owner}"


def refusal(path: Path, why: str) -> RlctlError:
    """The error that a folder cannot be written to, and what to do about it."""
    other = "or copy it to another disk and set RLCTL_HOME to the copy."
    mend = "Mount it writable" if why == MOUNTED else "Do it as a user who may"
    return RlctlError(f"{str(path)!r} {why}", path=str(path), hint=f"{mend}, {other}")


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _tried(folder: Path) -> Abilities:
    tries: dict[str, Callable[[Path], None]] = {
        "locks (flock)": _lock,
        "renaming over a file": _rename,
        "Unix sockets": _listen,
    }
    lacking = []
    for what, act in tries.items():
        try:
            act(folder)
        except (OSError, RlctlError) as error:
            lacking.append(f"{what}: {error}")
    return Abilities(lacking=tuple(lacking), skew_s=_skew_s(folder))


def _lock(folder: Path) -> None:
    """One can hold a lock, and a second cannot: some network file systems grant it to both."""
    with (folder / "lock").open("w") as first, (folder / "lock").open("w") as second:
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
    raise OSError("two processes can hold one lock at once")


def _rename(folder: Path) -> None:
    for name in ("old", "new"):
        (folder / name).write_text(name)
    (folder / "new").replace(folder / "old")
    if (folder / "old").read_text() != "new":
        raise OSError("the old file is still there")


def _listen(folder: Path) -> None:
    server = command_socket.serve(folder, lambda _request: {})
    try:
        command_socket.send(folder, "checkpoint")
    finally:
        server.close()


def _skew_s(folder: Path) -> float:
    """The seconds that the clock that stamps files is ahead; a file server has one of its own."""
    before = time.time()
    (folder / "now").write_text("now")
    after = time.time()
    stamped = (folder / "now").stat().st_mtime
    return min(0.0, stamped - before) if stamped < before else max(0.0, stamped - after)
