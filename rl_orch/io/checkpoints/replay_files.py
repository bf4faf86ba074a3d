"""The files of replay segments in a run's folder `replay`: which there are, whether they are whole,
which stay. What is in one, and how it is written, is in `replay_segments.py`.
"""

import hashlib
import os
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

from rl_orch.io.files import regular

SUFFIX = ".safetensors"
TEMPORARY = ".tmp-"
_NAME = re.compile(r"[0-9]{15}-[0-9]{15}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """A segment as a checkpoint lists it."""

    name: str
    sha256: str
    bytes: int


def entries(replay_meta: Any) -> tuple[SegmentEntry, ...]:
    """The segments that a checkpoint's `replay_meta` lists; a ValueError if it is no such list."""
    listed = replay_meta.get("segments", []) if isinstance(replay_meta, Mapping) else []
    if not isinstance(listed, list):
        raise ValueError("segments is not a list")
    return tuple(map(_entry, listed))


def path_of(folder: Path, name: str) -> Path:
    """The file of the segment of that name."""
    return folder / (name + SUFFIX)


def fault(folder: Path, entry: SegmentEntry, *, digest: bool) -> str | None:
    """The fault of a segment's file, to be said of it; None if it is whole.

    Without `digest` its size is enough: a buffer may have many gigabytes.
    """
    try:
        with opened(folder, entry.name) as file:
            if os.fstat(file.fileno()).st_size != entry.bytes:
                return "has the wrong size"
            if digest and hashlib.file_digest(file, "sha256").hexdigest() != entry.sha256:
                return "fails its digest"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return None


def opened(folder: Path, name: str) -> BufferedReader:
    """The file of a segment, open for reading; never what a link points to."""
    return regular.reader(path_of(folder, name), follow=False)


def names(folder: Path) -> list[str]:
    """The names of all segments that are there, oldest rows first."""
    try:
        segments = [
            file.removesuffix(SUFFIX) for file in os.listdir(folder) if file.endswith(SUFFIX)
        ]
    except FileNotFoundError:
        return []
    return sorted(name for name in segments if _NAME.fullmatch(name))


def retain(folder: Path, wanted: Collection[str]) -> list[str]:
    """Remove every segment but these; returns the names of those that are gone."""
    gone = [name for name in names(folder) if name not in wanted]
    for name in gone:
        with suppress(FileNotFoundError):
            os.unlink(path_of(folder, name))
    return gone


def sweep(folder: Path) -> list[Path]:
    """Remove what a dead writer left half written. The caller holds the run's directory."""
    left = sorted(folder.glob(f"{TEMPORARY}*"))
    for path in left:
        with suppress(FileNotFoundError):
            os.unlink(path)
    return left


def _entry(listed: Any) -> SegmentEntry:
    match listed:
        case {"name": str(name), "sha256": str(sha256), "bytes": int(size)} if (
            _NAME.fullmatch(name) and _DIGEST.fullmatch(sha256) and size >= 0
        ):
            return SegmentEntry(name, sha256, size)
    raise ValueError(f"{str(listed)[:200]} is no segment")
