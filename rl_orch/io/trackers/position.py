"""Positions: how far each tracker has come with the events of a run, as notes in its directory."""

import hashlib
import json
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from rl_orch.errors import Damaged
from rl_orch.io.files import private, regular
from rl_orch.records import TrackerStatus

_CHUNK_BYTES = 1 << 20
_LONGEST_FILE_NAME = 200


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a pump: a byte offset, and the newest attempt that had started there.

    `ended` once the sink was told of the end.
    """

    offset: int = 0
    attempt: int = 0
    written: int = 0
    ended: bool = False


def status(run_dir: Path, name: str) -> TrackerStatus:
    """How far a tracker has come with the events of a run directory."""
    size, note, path = 0, note_file(run_dir, name), run_dir / "events.jsonl"
    with suppress(OSError):
        size = path.stat().st_size
    noted = _noted(note)
    error = noted.get("error")
    return TrackerStatus(
        name=name,
        behind_bytes=max(0, size - read(note).offset),
        told_end=noted.get("ended") is not False,
        error=error if isinstance(error, str) else None,
    )


def noted_trackers(run_dir: Path) -> list[str]:
    """The trackers that a run directory has notes of; a very long name is told as its digest."""
    return sorted(unquote(path.stem) for path in (run_dir / "sinks").glob("[!.]*.json"))


def note_file(run_dir: Path, name: str) -> Path:
    """The note of a tracker: plugins may have any name, so its file's name is an encoding of it."""
    encoded = quote(name, safe=":", errors="replace")
    if encoded.startswith("."):
        encoded = encoded.replace(".", "%2E", 1)
    if not 0 < len(encoded) <= _LONGEST_FILE_NAME:
        encoded = hashlib.sha256(encoded.encode()).hexdigest()
    return run_dir / "sinks" / f"{encoded}.json"


def read(path: Path) -> Position:
    """The position that was noted; the beginning if there is no note, or none that can be read."""
    match _noted(path):
        case {"offset": int(offset), "attempt": int(attempt)} if offset >= 0:
            return Position(offset, attempt)
    return Position()


def write(path: Path, progress: Position, error: str | None) -> None:
    """Note a position, and the error that stands in its way."""
    private.inner_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    note: dict[str, Any] = {
        "offset": progress.offset,
        "attempt": progress.attempt,
        "ended": progress.ended,
    }
    note |= {} if error is None else {"error": error}
    regular.write(temporary, json.dumps(note).encode())
    os.replace(temporary, path)


def near_end(path: Path) -> Position:
    """The beginning of a line within the last part of an event file that one chunk holds."""
    try:
        start = max(0, path.stat().st_size - _CHUNK_BYTES)
        line = start and start + regular.part(path, start, _CHUNK_BYTES).find(b"\n") + 1
        return Position(line)
    except (OSError, Damaged):
        return Position()


def lines_after(path: Path, offset: int) -> int:
    """The complete lines after an offset, counted without a look at what they say."""
    with suppress(OSError), regular.reader(path) as file:
        file.seek(offset)
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(_CHUNK_BYTES), b""))
    return 0


def _noted(path: Path) -> dict[str, Any]:
    """What a note says; nothing if there is none, or none that can be read."""
    with suppress(OSError, ValueError, RecursionError):
        document = json.loads(regular.read(path))
        return document if isinstance(document, dict) else {}
    return {}
