"""The folder of a run's checkpoints: which there are, how they stand, which stay.

A checkpoint is a directory `step_<12 digits>`; what is in one is in `checkpoints.py`.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from rl_orch.errors import Damaged, NotFound
from rl_orch.io import sealed

TENSORS = "tensors.safetensors"
STATE = "state.json"
FILES = (TENSORS, STATE)
NOUN = "checkpoint"
_NAME = re.compile(r"step_([0-9]{12})")


@dataclass(frozen=True, slots=True)
class Entry:
    """A checkpoint in a listing; `problem` is a sentence if it is not intact."""

    step: int
    path: Path
    intact: bool
    problem: str | None = None


def verify(path: Path) -> None:
    """Raise `Damaged` unless all files of a checkpoint are there and pass their digests."""
    sealed.verify(path, FILES, noun=NOUN)


def listing(root: Path) -> list[Entry]:
    """All checkpoints in a directory, oldest step first. Reads every byte of them."""
    entries = [_entry(path) for path in reversed(_newest_first(root))]
    return [entry for entry in entries if entry is not None]


def newest_intact(root: Path) -> Path | None:
    """The checkpoint with the highest step that passes its digests. Reads no older ones."""
    for path in _newest_first(root):
        entry = _entry(path)
        if entry is not None and entry.intact:
            return path
    return None


def sweep(root: Path) -> list[Path]:
    """Remove what dead writers left behind, and return it. A living writer is left alone."""
    return sealed.sweep(root)


def retain(root: Path, *, last: int, best: Path | None = None) -> list[Path]:
    """Remove all but the `last` newest checkpoints and the best one; return what was removed.

    The newest intact checkpoint always stays, even if all that came after it are damaged.
    """
    if last < 1:
        raise ValueError(f"last is {last}; at least 1 checkpoint must stay")
    wanted = best and sealed.original_name(best)
    surplus = [p for p in _newest_first(root)[last:] if sealed.original_name(p) != wanted]
    intact = newest_intact(root) if surplus else None
    removed = [path for path in surplus if path != intact]
    for path in removed:
        sealed.discard(path)
    return removed


def step_of(path: Path) -> int | None:
    """The step in a directory's name, or None if it is not the name of a checkpoint."""
    found = _NAME.fullmatch(sealed.original_name(path))
    return int(found[1]) if found else None


def _newest_first(root: Path) -> list[Path]:
    return [path for path in reversed(sealed.present(root)) if step_of(path) is not None]


def _entry(path: Path) -> Entry | None:
    """How a checkpoint stands, or None if it went away in the meantime."""
    step = step_of(path)
    assert step is not None
    try:
        verify(path)
    except NotFound:
        return None
    except Damaged as error:
        return Entry(step, path, False, error.message) if path.exists() else None
    return Entry(step, path, True)
