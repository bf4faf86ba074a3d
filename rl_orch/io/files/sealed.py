"""Sealed directories: a handful of files that are seen whole or not at all.

Each carries a `MANIFEST.json` with the size and digest of its files. What the files hold is not
known here.
"""

import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

from rl_orch.errors import Damaged, NotFound, RlctlError
from rl_orch.io.files import private, regular

MANIFEST = "MANIFEST.json"
MOST_BYTES = 16 << 30
"""Of all files of a directory together, unless there is a smaller bound: they are in memory at
once when they are written, and when they are loaded."""

_VERSION = 1
_MANIFEST_BYTES = 1 << 20
_REPLACED = ".replaced"


def write(
    path: Path,
    files: Mapping[str, bytes],
    *,
    noun: str,
    then: str = "resume",
    most: int = MOST_BYTES,
) -> None:
    """Write a directory of at most so many bytes; returns once it is whole and on the disk.

    One that has the name already is replaced; at every moment the old one or the new one can be
    read. If the disk refuses, nothing is left behind and the error says why, and what to do `then`.
    """
    total = sum(map(len, files.values()))
    if total > most:
        raise RlctlError(f"{noun} {path.name} would have {_bytes(total, most)} allowed")
    manifest = _manifest({name: _digest(data) for name, data in files.items()})
    try:
        private.inner_folder(path.parent)
        with _temporary(path) as temporary:
            for name, data in files.items():
                _write_file(temporary / name, data)
            _write_file(temporary / MANIFEST, manifest)
            sync_directory(temporary)
            _publish(temporary, path)
            sync_directory(path.parent)
    except OSError as error:
        raise unwritable(f"{noun} {path}", path, error, then=then) from error
    with suppress(OSError):
        discard(_aside(path))


def read(
    path: Path, names: Collection[str], *, noun: str, most: int = MOST_BYTES
) -> dict[str, bytes]:
    """The files of a directory that has exactly these; or `Damaged` with the name at fault.

    One with more than so many bytes in all is refused before any is read.
    """
    manifest = _read_manifest(path, names, noun)
    _refuse_large(path, names, noun, most)
    return {name: _verified(path, name, manifest[name], noun, keep=True) for name in names}


def verify(
    path: Path, names: Collection[str], *, noun: str, keep: Collection[str] = ()
) -> dict[str, bytes]:
    """As `read`, without holding more of the files in memory than are to be kept."""
    manifest = _read_manifest(path, names, noun)
    _refuse_large(path, names, noun, MOST_BYTES)
    files = {name: _verified(path, name, manifest[name], noun, keep=name in keep) for name in names}
    return {name: files[name] for name in keep}


def read_one(path: Path, name: str, *, noun: str, most: int = MOST_BYTES) -> bytes:
    """One file of a directory, of at most so many bytes, verified; the others are not opened."""
    names = listed(path, noun=noun) | {name}
    manifest = _read_manifest(path, names, noun)
    _refuse_large(path, [name], noun, most)
    return _verified(path, name, manifest[name], noun, keep=True)


def manifest_digest(path: Path) -> str | None:
    """The digest of a directory's manifest, which stands for all of its files; None without one."""
    try:
        with _opened(path, MANIFEST, "directory") as file:
            return hashlib.sha256(file.read(_MANIFEST_BYTES)).hexdigest()
    except (Damaged, ValueError):  # No path has a null character.
        return None


def followed(path: Path, digest: str | None, root: Path) -> Path:
    """The directory of that digest that a path named in a folder which may have been moved since:
    in it by as much of the path's end as leads there; the path itself where none is there."""
    parts = Path(os.path.normpath(path)).parts
    ends = (root.joinpath(*parts[first:]) for first in range(1, len(parts)))
    return next((end for end in ends if digest and manifest_digest(end) == digest), path)


def damaged(path: Path, problem: str, *, noun: str) -> Damaged:
    """The error that names a directory and what is wrong with it."""
    return Damaged(
        f"{noun} {path.name} {problem}",
        path=str(path),
        hint=f"Use an earlier {noun}, or restore this one from a copy.",
    )


def listed(path: Path, *, noun: str) -> set[str]:
    """The names that a directory's manifest lists, whatever else is there."""
    _refuse_unless_directory(path, noun)
    with _opened(path, MANIFEST, noun) as file:
        data = file.read(_MANIFEST_BYTES)
    files = _listed_files(data)
    if not files:
        raise damaged(path, f"fails its digest: {MANIFEST}", noun=noun)
    return set(files)


def present(root: Path) -> list[Path]:
    """The directories in a folder. One whose replacement was cut short counts under the name it
    stepped aside to, until `sweep` puts it back."""
    try:
        names = {name for name in os.listdir(root) if not name.startswith(".")}
    except FileNotFoundError:
        return []
    hidden = {name + _REPLACED for name in names}
    return [root / name for name in sorted(names - hidden)]


def original_name(path: Path) -> str:
    """The name a directory was written under, even if it stepped aside."""
    return path.name.removesuffix(_REPLACED)


def discard(path: Path) -> None:
    """Remove a directory. It loses its name first, so that nobody sees half of it."""
    if not os.path.lexists(path):
        return
    nameless = _temporary_name(path)
    os.replace(path, nameless)
    shutil.rmtree(nameless, ignore_errors=True)


def sweep(root: Path) -> list[Path]:
    """Remove what dead writers left in a folder, and return it. A living writer keeps its own."""
    leftovers = sorted(root.glob(".tmp-*"))
    removed = [path for path in leftovers if _is_abandoned(path)]
    for path in removed:
        shutil.rmtree(path, ignore_errors=True)
    if removed != leftovers:
        return removed  # A living writer may be about to use the name that a replaced one had.
    for aside in sorted(root.glob(f"*{_REPLACED}")):
        if os.path.lexists(root / original_name(aside)):
            discard(aside)
            removed.append(aside)
        else:
            os.replace(aside, root / original_name(aside))
    return removed


def sync_directory(path: Path) -> None:
    """Wait until the names in a directory are on the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def unwritable(what: str, path: Path, error: OSError, *, then: str = "resume") -> RlctlError:
    """The error that something cannot be written, with advice; `then` is for once it can."""
    hint = advice(error, then=then)
    return RlctlError(f"cannot write {what}: {error.strerror}", path=str(path), hint=hint)


def advice(error: OSError, *, then: str = "resume") -> str:
    """Advice about a disk that refuses to be written to; `then` is for once it does not."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"Free space on that disk, then {then}; what was written before is whole."
    return f"Check the disk and the permissions of that folder, then {then}."


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """A new directory beside the path; locked while its writer lives, removed if the disk fails."""
    temporary = _temporary_name(path)
    private.inner_folder(temporary, exist_ok=False)
    try:
        fd = os.open(temporary, os.O_RDONLY)
        try:
            with suppress(OSError):  # Some network file systems have no locks for directories.
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield temporary
        finally:
            os.close(fd)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _temporary_name(path: Path) -> Path:
    return path.with_name(f".tmp-{path.name}-{secrets.token_hex(8)}")


def _is_abandoned(temporary: Path) -> bool:
    """Whether no living process holds a temporary directory."""
    try:
        fd = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _write_file(path: Path, data: bytes) -> None:
    with open(path, "xb", opener=private.inner_file) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _publish(temporary: Path, path: Path) -> None:
    """Give a finished directory its name. One that has the name steps aside first, and is still
    listed then, because no system call both portable and atomic swaps two directories."""
    if not os.path.lexists(path):
        os.replace(temporary, path)
        return
    discard(_aside(path))
    os.replace(path, _aside(path))
    try:
        os.replace(temporary, path)
    except OSError:
        os.replace(_aside(path), path)
        raise


def _aside(path: Path) -> Path:
    return path.with_name(path.name + _REPLACED)


def _manifest(files: Mapping[str, Any]) -> bytes:
    """The one spelling of a manifest. It digests itself, so that its own damage is told apart."""
    listed = json.dumps(files, sort_keys=True, separators=(",", ":"))
    seal = hashlib.sha256(listed.encode()).hexdigest()
    return f'{{"version":{_VERSION},"files":{listed},"sha256":"{seal}"}}\n'.encode()


def _digest(data: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


def _read_manifest(path: Path, names: Collection[str], noun: str) -> dict[str, dict[str, Any]]:
    """Size and digest of every file, from a manifest that agrees with the directory."""
    _refuse_unless_directory(path, noun)
    wanted, listed = {*names, MANIFEST}, set(os.listdir(path))
    if missing := sorted(wanted - listed):
        raise damaged(path, f"lacks {', '.join(missing)}", noun=noun)
    if foreign := sorted(listed - wanted):
        raise damaged(path, f"has what does not belong to it: {', '.join(foreign)}", noun=noun)
    with _opened(path, MANIFEST, noun) as file:
        data = file.read(_MANIFEST_BYTES)
    files = _listed_files(data)
    if set(files) != set(names) or _manifest(files) != data:
        raise damaged(path, f"fails its digest: {MANIFEST}", noun=noun)
    return files


def _refuse_large(path: Path, names: Collection[str], noun: str, most: int) -> None:
    """Raise if a directory has more bytes than are read; by the sizes of its files alone."""
    with suppress(FileNotFoundError):  # Whoever reads it says so.
        total = sum(os.lstat(path / name).st_size for name in names)
        if total > most:
            raise damaged(path, f"has {_bytes(total, most)} read", noun=noun)


def _bytes(total: int, most: int) -> str:
    return f"{total:,} bytes; at most {most:,} are"


def _refuse_unless_directory(path: Path, noun: str) -> None:
    if not os.path.lexists(path):
        raise NotFound(f"there is no {noun} at {path}", path=str(path))
    if path.is_symlink():
        raise damaged(path, f"is a link; name the {noun} itself", noun=noun)
    if not path.is_dir():
        raise damaged(path, "is not a directory", noun=noun)


def _listed_files(data: bytes) -> dict[str, dict[str, Any]]:
    """The files that a manifest lists, or nothing if it is no manifest."""
    try:
        files = json.loads(data)["files"]
        return {name: {key: files[name][key] for key in ("sha256", "size")} for name in files}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}


def _verified(
    path: Path, name: str, expected: Mapping[str, Any], noun: str, *, keep: bool
) -> bytes:
    """The bytes of a file whose size and digest are right; none if they are not to be kept."""
    with _opened(path, name, noun) as file:
        size = os.fstat(file.fileno()).st_size
        if size != expected["size"]:
            raise damaged(path, f"has a file of the wrong size: {name}", noun=noun)
        data = file.read(size) if keep else b""
        digest = hashlib.sha256(data) if keep else hashlib.file_digest(file, "sha256")
    if digest.hexdigest() != expected["sha256"]:
        raise damaged(path, f"fails its digest: {name}", noun=noun)
    return data


@contextmanager
def _opened(path: Path, name: str, noun: str) -> Iterator[BufferedReader]:
    """A regular file of the directory itself; never what a link points to."""
    try:
        with regular.reader(path / name, follow=False) as file:
            yield file
    except regular.NotRegular as error:
        raise damaged(path, f"has something other than a file: {name}", noun=noun) from error
    except OSError as error:
        raise damaged(path, f"cannot be read: {name}: {error.strerror}", noun=noun) from error
