"""Folders for what is on its way in: held by a lock while their maker lives, swept once it is dead.

A process that ends, however it does, lets go of its lock. Who comes next removes what it left.
"""

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rl_orch.io.files import private, regular

PREFIX = ".importing-"
LOCK = "lock"


@contextmanager
def workspace(folder: Path) -> Iterator[Path]:
    """A new folder in another one, for as long as this lasts; what it then has in it goes with it.

    What dead processes have left there goes first. Folders above that had to be made go as well,
    if nothing has come into them.
    """
    made = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    private.own_folder(folder)
    try:
        sweep(folder)
        path, lock = _held(folder)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)
    finally:
        with suppress(OSError):
            for parent in made:
                parent.rmdir()


def sweep(folder: Path) -> list[Path]:
    """Remove the workspaces in a folder whose makers are dead, and return them."""
    removed = []
    for path in sorted(folder.glob(f"{PREFIX}*")):
        if path.is_symlink():
            continue
        with suppress(OSError):
            lock = _opened(path)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
                removed.append(path)
            finally:
                os.close(lock)
    return removed


def _held(folder: Path) -> tuple[Path, int]:
    """A new workspace and its lock. Whoever sweeps may be faster than we: then it is made again."""
    while True:
        path = folder / f"{PREFIX}{secrets.token_hex(8)}"
        path.mkdir(mode=0o700)
        with suppress(FileNotFoundError):
            lock = _opened(path)
            with suppress(OSError):  # Some network file systems have no locks; there nobody sweeps.
                fcntl.flock(lock, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), os.stat(path / LOCK)):
                    return path, lock
            os.close(lock)


def _opened(path: Path) -> int:
    """The descriptor of a workspace's lock. Who sweeps makes it too, so that both have the same."""
    return regular.opened(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
