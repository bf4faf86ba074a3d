"""Checkpoints that a program of somebody else's wrote: copied, digested, and sealed.

What was copied lies in a folder beside the sealed directory, `files_<its name>_<letters>`, which
the sealed directory names with the digest of every file. What the files hold is not known here.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NoReturn

from rl_orch.errors import BadInput, RlctlError
from rl_orch.io.files import private, regular, sealed
from rl_orch.io.machine import room
from rl_orch.io.run.directory import MODEL
from rl_orch.records import Record

DEPOSIT = "deposit.json"
NOUN = "checkpoint"
FILES = 100_000
"""The most files and folders that one checkpoint may have."""

_FOLDER = re.compile(r"files_step_[0-9]{12}_[0-9a-f]{8}")
_CHUNK_BYTES = 1 << 20


class FileDigest(Record):
    """A file as it was when it was copied."""

    sha256: str
    size: int


class ExternalCheckpoint(Record):
    """The document that a sealed directory holds of a copied checkpoint.

    `name` is the file or folder that was copied, in `folder`; `files` are the files below it.
    `seq` is the number of the event before the one that tells of it, `kept` and `best` are the
    checkpoints that stayed when it came, `saved` the tags of its event.
    """

    version: Literal[1] = 1
    run: str
    step: int
    attempt: int
    seq: int
    folder: str
    name: str
    files: dict[str, FileDigest]
    kept: tuple[str, ...]
    best: str | None
    best_said: bool
    saved: dict[str, Any]
    created_at: float


def is_deposit(path: Path) -> bool:
    """Whether a checkpoint was written by a program of somebody else's."""
    return os.path.lexists(path / DEPOSIT)  # To read it says whether it is a file.


def save(path: Path, source: Path, facts: Mapping[str, Any]) -> ExternalCheckpoint:
    """Copy a file or a folder and seal it; returns once all of it is on the disk.

    `facts` are the other fields of a `ExternalCheckpoint`. What is no file or folder, changes
    meanwhile, or has a name that is not UTF-8, is a BadInput; a disk that is full leaves nothing
    behind.
    """
    folder = path.with_name(f"files_{path.name}_{secrets.token_hex(4)}")
    try:
        folder.mkdir(parents=True)
        named = {"folder": folder.name, "name": source.name, "files": _copied(source, folder)}
        checkpoint = ExternalCheckpoint.model_validate({**facts, **named})
        data = checkpoint.model_dump_json().encode()
        sealed.write(path, {DEPOSIT: data}, noun=NOUN, most=regular.JSON_BYTES)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise RlctlError(f"cannot keep {source.name!r}: {error.strerror}") from error
        raise
    return checkpoint


def load(path: Path) -> ExternalCheckpoint:
    """The checkpoint in a directory, every byte verified; or `Damaged` with what is at fault."""
    checkpoint = _read(path)
    for name, expected in checkpoint.files.items():
        with _opened(path, path.with_name(checkpoint.folder) / name) as file:
            if os.fstat(file.fileno()).st_size != expected.size:
                raise sealed.damaged(path, f"has a file of the wrong size: {name}", noun=NOUN)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != expected.sha256:
            raise sealed.damaged(path, f"fails its digest: {name}", noun=NOUN)
    return checkpoint


def payload(path: Path, checkpoint: ExternalCheckpoint) -> Path:
    """The path of the copy of what the program wrote."""
    return path.with_name(checkpoint.folder) / checkpoint.name


def folder_of(path: Path) -> Path | None:
    """The folder of the copy that a sealed directory names; None where it names none."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        name = json.loads(regular.read(path / DEPOSIT))["folder"]
        return path.with_name(name) if _FOLDER.fullmatch(name) else None
    return None


def copied(path: Path, to: Path) -> bytes:
    """The document of another copy of a checkpoint, for the sealed directory that is to be there.

    Every byte is verified as it is read.
    """
    checkpoint = _read(path)
    folder = to.with_name(f"files_{to.name}_{secrets.token_hex(4)}")
    try:
        private.inner_folder(to.parent)
        folder.mkdir()
        files = _copied(payload(path, checkpoint), folder)
        if files != {name: each.model_dump() for name, each in checkpoint.files.items()}:
            raise sealed.damaged(path, "fails its digests", noun=NOUN)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise RlctlError(f"cannot copy {path.name!r}: {error.strerror}") from error
        raise
    return checkpoint.model_copy(update={"folder": folder.name}).model_dump_json().encode()


def sweep(root: Path) -> None:
    """Remove the copies that no sealed directory of the folder names any more.

    Where one of these cannot be read, its copy cannot be told from the others, and all stay.
    """
    copies = [path for path in root.glob("files_*") if _FOLDER.fullmatch(path.name)]
    if not copies:
        return
    named = set()
    for path in sealed.present(root):
        if is_deposit(path):
            folder = folder_of(path)
            if folder is None:
                return
            named.add(folder.name)
    for path in copies:
        if path.name not in named:
            shutil.rmtree(path, ignore_errors=True)


def _read(path: Path) -> ExternalCheckpoint:
    with_model = [MODEL] if os.path.lexists(path / MODEL) else []
    data = sealed.read(path, [DEPOSIT, *with_model], noun=NOUN, most=regular.JSON_BYTES)[DEPOSIT]
    try:
        checkpoint = ExternalCheckpoint.model_validate_json(data)
    except ValueError:
        raise sealed.damaged(path, f"is not in its format: {DEPOSIT}", noun=NOUN) from None
    names = [checkpoint.name, *checkpoint.files]
    if not _FOLDER.fullmatch(checkpoint.folder) or not all(map(_stays_inside, names)):
        raise sealed.damaged(path, f"names files elsewhere: {DEPOSIT}", noun=NOUN)
    return checkpoint


def _stays_inside(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and not name.startswith("/") and ".." not in parts and "\0" not in name


def _copied(source: Path, folder: Path) -> dict[str, dict[str, Any]]:
    """Copy what is there into a folder; the digest of each file by its path in it."""
    entries = list(_entries(source))
    _refuse_without_room(source, entries, folder)
    digests = {}
    for path in entries:
        name = path.relative_to(source.parent)
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            target.mkdir(exist_ok=True)
        else:
            digests[name.as_posix()] = _copy(path, target)
    if not digests:
        raise BadInput(f"{source.name!r} is an empty folder")
    for place, _, _ in os.walk(folder):
        sealed.sync_directory(Path(place))
    return digests


def _entries(source: Path) -> Iterator[Path]:
    """The files of a checkpoint, and its folders; a BadInput if it has anything else."""
    _refuse_garbled(source)
    if source.is_symlink() or not source.is_dir():
        _refuse_other(source)
        yield source
        return
    count = 0
    for place, folders, names in os.walk(source, onerror=_raise):
        for name in (*sorted(folders), *sorted(names)):
            path = Path(place, name)
            _refuse_garbled(path)
            if name not in folders or path.is_symlink():
                _refuse_other(path)
            count += 1
            if count > FILES:
                raise BadInput(f"{source.name!r} has more than {FILES:,} files and folders")
            yield path


def _raise(error: OSError) -> NoReturn:
    """A folder that cannot be read is not an empty one."""
    raise error


def _refuse_garbled(path: Path) -> None:
    """A name is written down as UTF-8: what is not would be another name when it is read."""
    try:
        path.name.encode()
    except UnicodeEncodeError:
        raise BadInput(f"{path.name!r} is not a name in UTF-8") from None


def _refuse_other(path: Path) -> None:
    if path.is_symlink():
        raise BadInput(f"{path.name!r} is a link; a checkpoint has files and folders only")
    if not path.exists():
        raise BadInput(f"{path.name!r} is not there")
    if not path.is_file():
        raise BadInput(f"{path.name!r} is neither a file nor a folder")


def _refuse_without_room(source: Path, entries: list[Path], folder: Path) -> None:
    """Raise if a copy, which has no holes, does not fit."""
    needed = sum(path.lstat().st_size for path in entries)
    hint = "Free space on that disk, then resume; what was kept before is whole."
    room.refuse_without(
        folder, f"checkpoint {source.name!r}", needed, files=len(entries), hint=hint
    )


def _copy(source: Path, target: Path) -> dict[str, Any]:
    """Copy one file, and return its size and digest. It must stay as it is meanwhile."""
    digest, size = hashlib.sha256(), 0
    fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as reader, target.open("xb") as writer:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            raise BadInput(f"{source.name!r} is neither a file nor a folder")
        while chunk := reader.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
            writer.write(chunk)
        writer.flush()
        os.fsync(writer.fileno())
        after = os.fstat(fd)
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise BadInput(f"{source.name!r} changed while it was copied")
    target.chmod(0o444 & stat.S_IMODE(target.stat().st_mode))
    return {"sha256": digest.hexdigest(), "size": size}


@contextmanager
def _opened(path: Path, file: Path) -> Iterator[BufferedReader]:
    """A regular file of a checkpoint; never what a link points to."""
    try:
        with regular.reader(file, follow=False) as opened:
            yield opened
    except FileNotFoundError:
        raise sealed.damaged(path, f"lacks {file.name}", noun=NOUN) from None
    except OSError as error:
        problem = f"cannot be read: {file.name}: {error.strerror}"
        raise sealed.damaged(path, problem, noun=NOUN) from error
