"""Files and folders that are made for their user alone, whatever the umask is.

Only in a folder that is shared with a group on purpose, since the group can write to it or it is
set-group-ID, what is made is the group's too, as far as the umask allows. What has been made so
hands it down: nothing is open to more than the folder that it is in.
"""

import os
import stat
from pathlib import Path

SHARED = stat.S_ISGID | stat.S_IWGRP


def own_folder(path: Path) -> None:
    """Make a folder of ours, if it is not there. Folders above it that are missing are as usual."""
    if not path.parent.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(0o770 if _is_shared(path.parent) else 0o700, exist_ok=True)


def own_file(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file of ours: an `opener` of `open`."""
    shared = _is_shared(Path(path).parent)
    return os.open(path, flags, 0o660 if shared else 0o600)


def inner_folder(path: Path) -> None:
    """Make a folder, if it is not there, that is open to nobody its parent is not open to."""
    path.mkdir(0o777 & _mode(path.parent), exist_ok=True)


def inner_file(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file that is open to nobody its folder is not open to: an `opener` of `open`."""
    return os.open(path, flags, 0o666 & _mode(Path(path).parent))


def keep_within(folder: Path) -> None:
    """Let all that this process makes be open to nobody that a folder is not open to."""
    os.umask(os.umask(0o077) | (0o077 & ~_mode(folder)))


def _is_shared(folder: Path) -> bool:
    return bool(_mode(folder) & SHARED)


def _mode(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)
