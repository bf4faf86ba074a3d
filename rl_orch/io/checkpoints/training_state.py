"""Training state that a run lets go of once it has succeeded: its replay buffer, and all of its
checkpoints but those that stay.

The note of it is on the disk before anything is deleted, so that no checkpoint ever lacks segments
without one. What was cut short is finished by whoever does the same again.
"""

import os
import shutil
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from rl_orch.io.checkpoints import catalog, external, replay_files
from rl_orch.io.run.directory import RunDir
from rl_orch.records import LetGo


def let_go(directory: RunDir, keep: Collection[str], *, now: float) -> LetGo | None:
    """Let go of all checkpoints of a run but these, and of its replay buffer; returns the note,
    which is none where there was never anything to let go of. Nobody may be at work in the run."""
    root, before = directory.checkpoints, directory.let_go() or LetGo(at=now)
    names = [name for name in catalog.all_names(root) if name not in keep]
    going = [name for name in names if name not in before.checkpoints]
    steps = [catalog.step_of(root / name) for name in keep]
    through = max((step for step in steps if step is not None), default=None)
    counted = before.segments and before.through in (None, through)
    segments = [] if counted else replay_files.names(directory.replay)
    freed = sum(map(_size, _folders(root, going)))
    freed += sum(_size(replay_files.path_of(directory.replay, name)) for name in segments)
    note = LetGo(
        at=before.at,
        checkpoints=(*before.checkpoints, *going),
        segments=before.segments + len(segments),
        bytes=before.bytes + freed,
        through=through,
    )
    if not note.checkpoints and not note.segments:
        return None
    if note != before:
        directory.write_let_go(note)
    catalog.retain(root, keep)
    if note.segments:
        shutil.rmtree(directory.replay, ignore_errors=True)
    return note


def _folders(root: Path, names: Collection[str]) -> list[Path]:
    """The folders of checkpoints, with those of what other programs wrote."""
    own = [root / name for name in names]
    copies = [external.folder_of(path) for path in own]
    return [*own, *(path for path in copies if path is not None)]


def _size(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    if path.is_file():
        return path.stat().st_size
    total = 0
    for place, _, names in os.walk(path):
        for name in names:
            with suppress(FileNotFoundError):
                total += Path(place, name).lstat().st_size
    return total
