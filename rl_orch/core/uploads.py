"""Uploads: files and folders that callers bring for runs and jobs, in the home, for some days."""

import errno
import json
import re
import secrets
import shutil
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rl_orch.errors import BadInput, NotFound, Unavailable
from rl_orch.io.files import archives, private
from rl_orch.io.machine import room

FOLDER = "uploads"
MARK = "upload:"
NAME = re.compile(r"upload:([0-9a-f]{24})")
PATH = re.compile(r"/uploads/([0-9a-f]{24})/content/")
ARCHIVE, CONTENT = "archive.tar", "content"
KEPT_S = 7 * 86400.0
COPIES = 2
"""An archive, and what is unpacked of it."""

NO_ROOM = "Free space on the disk of the service's home, then send it again."


class UploadRoom:
    """Uploads under way, and the room on the disk of their home that they are yet to take."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._sizes: dict[str, int] = {}

    def reserve(self, size: int) -> tuple[str, Path]:
        """A new upload of so many bytes: its id, and the file that its archive is written to. Its
        room is its own until it is given back."""
        upload_id = secrets.token_hex(12)
        with self._lock:
            room.refuse_without(
                self._home,
                "an upload",
                COPIES * size,
                promised=self.promised_bytes,
                kind=Unavailable,
                hint=f"{NO_ROOM} Uploads under way take theirs until they have ended.",
            )
            self._sizes[upload_id] = size
        path = self._home / FOLDER / upload_id / ARCHIVE
        try:
            private.own_folder(self._home / FOLDER)
            private.inner_folder(path.parent)
        except BaseException:
            self.give_back(upload_id)
            raise
        return upload_id, path

    def give_back(self, upload_id: str) -> None:
        """The upload has ended, well or not."""
        with self._lock:
            self._sizes.pop(upload_id, None)

    @property
    def promised_bytes(self) -> int:
        """Bytes that the uploads under way have yet to write."""
        return sum(COPIES * size - self._written(name) for name, size in [*self._sizes.items()])

    def _written(self, upload_id: str) -> int:
        try:
            return (self._home / FOLDER / upload_id / ARCHIVE).stat().st_size
        except OSError:
            return 0


@contextmanager
def told_of_full_disk() -> Iterator[None]:
    """A disk that fills up while an upload is written is an error of ours."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise Unavailable(f"the upload found no room: {error.strerror}", hint=NO_ROOM) from None


def unpack(home: Path, upload_id: str) -> str:
    """Unpack the archive of an upload, and return the word that names it; nothing of it stays
    where it holds anything but files and folders."""
    folder = home / FOLDER / upload_id
    try:
        archives.unpack(folder / ARCHIVE, folder / CONTENT)
        if (count := len(list((folder / CONTENT).iterdir()))) != 1:
            raise BadInput(f"the archive holds {count} files and folders side by side; must be one")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    (folder / ARCHIVE).unlink()
    return f"{MARK}{upload_id}"


def discard(home: Path, word: str) -> None:
    """Let go of an upload."""
    shutil.rmtree(home / FOLDER / word.removeprefix(MARK), ignore_errors=True)


def content(home: Path, word: str) -> Path:
    """The one file or folder that an upload holds."""
    match = NAME.fullmatch(word)
    if match is None:
        raise BadInput(
            f"{word[:100]!r} is no upload; a service reads no paths of its own machine",
            hint="Send it with `POST /uploads`, and name it by the word that it answers.",
        )
    folder = home / FOLDER / match[1] / CONTENT
    entries = list(folder.iterdir()) if folder.is_dir() else []
    if len(entries) != 1:
        raise NotFound(f"no upload {word!r}", hint="Uploads are kept for a week; send it again.")
    return entries[0]


def named_in(document: Any) -> set[str]:
    """The uploads that a document names, or has paths in, however deep."""
    text = json.dumps(document)
    return {f"{MARK}{match[1]}" for kind in (NAME, PATH) for match in kind.finditer(text)}


def sweep(home: Path, *, wanted: Collection[str] = ()) -> None:
    """Let go of uploads that are older than a week, but for those that are wanted."""
    for folder in (home / FOLDER).glob("*"):
        with suppress(FileNotFoundError):  # Somebody else has let go of it.
            old = time.time() - folder.stat().st_mtime > KEPT_S
            if old and f"{MARK}{folder.name}" not in wanted:
                shutil.rmtree(folder, ignore_errors=True)
