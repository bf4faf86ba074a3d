"""Uploads: files and folders that callers bring for runs and jobs, in the home, for some days."""

import json
import re
import secrets
import shutil
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from rl_orch.errors import BadInput, NotFound
from rl_orch.io.files import archives, private
from rl_orch.io.machine import room

FOLDER = "uploads"
MARK = "upload:"
NAME = re.compile(r"upload:([0-9a-f]{24})")
PATH = re.compile(r"/uploads/([0-9a-f]{24})/content/")
ARCHIVE, CONTENT = "archive.tar", "content"
KEPT_S = 7 * 86400.0


def reserve(home: Path, size: int) -> tuple[str, Path]:
    """A new upload of so many bytes: its id, and the file that its archive is written to."""
    hint = "Free space on the disk of the service's home."
    room.refuse_without(home, "an upload", 2 * size, hint=hint)
    upload_id = secrets.token_hex(12)
    private.own_folder(home / FOLDER)
    private.inner_folder(home / FOLDER / upload_id)
    return upload_id, home / FOLDER / upload_id / ARCHIVE


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
