"""Files and folders that are made for their user alone, whatever the umask is.

Only in a home that is shared with a group on purpose, since the group can write to it or it is
set-group-ID, what is made is the group's too, as far as the umask allows. What is in a folder of
ours takes after it: nothing is open to more than the folder that it is in.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

_UNCHANGED = -1
_before = _UNCHANGED


def home_folder(path: Path) -> None:
    """Make a home, if there is none. Folders above it that are missing are made as usual."""
    if not path.parent.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(0o700, exist_ok=True)


def own_folder(path: Path, *, exist_ok: bool = True) -> None:
    """Make a folder in a home, which is made if there is none."""
    if not path.parent.exists():
        home_folder(path.parent)
    path.mkdir(0o770 if _is_shared(path.parent) else 0o700, exist_ok=exist_ok)


def own_file(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file in a home: an `opener` of `open`."""
    shared = _is_shared(Path(path).parent)
    return os.open(path, flags, 0o660 if shared else 0o600)


def inner_folder(path: Path, *, exist_ok: bool = True) -> None:
    """Make a folder, and those above it that are missing; open to nobody its parent is not."""
    if not path.parent.exists():
        inner_folder(path.parent)
    path.mkdir(0o777 & _mode(path.parent), exist_ok=exist_ok)


def inner_file(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file that is open to nobody its folder is not open to: an `opener` of `open`."""
    mode = 0o666 & _mode(Path(path).parent) if flags & os.O_CREAT else 0
    return os.open(path, flags, mode)


def close_tree(root: Path, *, like: Path) -> None:
    """Close what came from elsewhere to everybody that a folder is not open to."""
    allowed = 0o770 if _is_shared(like) else 0o700
    for folder, _, names in os.walk(root):
        for path in (Path(folder), *(Path(folder, name) for name in names)):
            mode = stat.S_IMODE(path.lstat().st_mode)
            if mode & 0o777 & ~allowed and not path.is_symlink():
                with suppress(PermissionError):  # It belongs to another of the group.
                    path.chmod(mode & ~0o777 | mode & allowed)


def open_to(path: Path) -> str | None:
    """Those that a file or folder is open to besides its user, in words; None if to nobody."""
    mode = _mode(path)
    if mode & 0o007:
        return f"everybody on this machine (mode {mode:o})"
    if mode & 0o070:
        return f"the group {_group(path)} (mode {mode:o})"
    return None


def keep_within(folder: Path) -> None:
    """Keep what this process makes from now on closed: open to nobody a folder is not open to."""
    global _before
    _before = os.umask(0o077)
    try:
        os.umask(_before | (0o077 & ~_mode(folder)))
    except OSError:  # Whoever works there says that it is gone.
        return


def users_umask() -> int:
    """The umask that this process was started with, if it has another one now; else -1, which
    leaves a child that of its parent."""
    return _before


def _group(path: Path) -> str:
    try:
        return path.group()
    except KeyError:
        return str(path.stat().st_gid)


def _is_shared(folder: Path) -> bool:
    mode = _mode(folder)
    entered, of_group = mode & stat.S_IXGRP, mode & (stat.S_ISGID | stat.S_IWGRP)
    return bool(entered and of_group) and not mode & stat.S_IWOTH


def _mode(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)
