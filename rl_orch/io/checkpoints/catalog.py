"""The folder of a run's checkpoints: which there are, how they stand, which stay.

A checkpoint is a directory `step_<12 digits>`; what is in one is in `checkpoint_files.py`, or in
`external.py` if a program of somebody else's wrote it.
"""

import json
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rl_orch.errors import Damaged, NotFound
from rl_orch.io.checkpoints import external, replay_files
from rl_orch.io.files import regular, sealed
from rl_orch.io.run.directory import RunDir, replay_beside
from rl_orch.records import Checkpoint

TENSORS = "tensors.safetensors"
STATE = "state.json"
FILES = (TENSORS, STATE)
NOUN = "checkpoint"
ARTEFACT = "model"
"""What an artefact is called in a sentence."""

_NAME = re.compile(r"step_([0-9]{12})")


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A checkpoint in a listing; `problem` is a sentence if it is not intact. One whose replay its
    run has let go of is."""

    step: int
    path: Path
    intact: bool
    problem: str | None = None
    replay_let_go: bool = False

    def record(self) -> Checkpoint:
        """The entry as it is told to others."""
        return Checkpoint(
            name=self.path.name,
            step=self.step,
            path=str(self.path),
            intact=self.intact,
            problem=self.problem,
            replay_let_go=self.replay_let_go,
        )


def verify(path: Path, *, deep: bool = True) -> None:
    """Raise `Damaged` unless a checkpoint is intact: all its files are there and pass their
    digests, and all replay segments that it needs are there, unless its run has let go of them. Of
    these, the digests count only if it is to be deep."""
    segments = _segments_in(verify_policy(path))
    for entry in segments if segments and not replay_let_go(path) else ():
        fault = replay_files.fault(replay_of(path), entry, digest=deep)
        if fault is not None:
            problem = f"needs a replay segment that {fault}: {entry.name}"
            raise sealed.damaged(path, problem, noun=NOUN)


def verify_policy(path: Path) -> bytes:
    """Raise `Damaged` unless the files that a policy is loaded from are intact: there, and pass
    their digests, each read once. Returns `state.json`, of which other programs have none."""
    if external.is_deposit(path):
        external.load(path)
        return b""
    return sealed.verify(path, FILES, noun=NOUN, keep=(STATE,))[STATE]


def segments_of(path: Path) -> tuple[replay_files.SegmentEntry, ...]:
    """The replay segments that a checkpoint needs; none if it does not say so in our format."""
    with suppress(OSError):
        return _segments_in(regular.read(path / STATE))
    return ()


def replay_let_go(path: Path) -> bool:
    """Whether a checkpoint needs replay segments that its run has let go of."""
    let_go = RunDir(path.parents[1]).let_go()
    if let_go is None or not let_go.segments:
        return False
    step = step_of(path)
    later = let_go.through is not None and step is not None and step > let_go.through
    return not later and bool(segments_of(path))


def replay_of(path: Path) -> Path:
    """The folder of the segments of a checkpoint."""
    return replay_beside(path.parent)


def listing(root: Path) -> list[CatalogEntry]:
    """All checkpoints in a directory, oldest step first. Reads every byte of them, but not of the
    replay segments that they need."""
    entries = [_entry(path) for path in reversed(_newest_first(root))]
    return [entry for entry in entries if entry is not None]


@dataclass(frozen=True, slots=True)
class Newest:
    """The intact checkpoint with the highest step, and what is wrong with newer ones."""

    path: Path | None
    passed_over: tuple[str, ...] = ()


def newest(root: Path, *, deep: bool = False) -> Newest:
    """The newest intact checkpoint of a folder, if it has one. Reads no older ones, and replay
    segments only if it is to be deep."""
    problems: list[str] = []
    for path in _newest_first(root):
        entry = _entry(path, deep=deep)
        if entry is not None and entry.intact:
            return Newest(path, tuple(problems))
        if entry is not None:
            problems.append(str(entry.problem))
    return Newest(None, tuple(problems))


def sweep(root: Path) -> list[Path]:
    """Remove what dead writers left behind, and return it. A living writer is left alone."""
    removed = sealed.sweep(root)
    external.sweep(root)
    return removed


def all_names(root: Path) -> list[str]:
    """The names of all checkpoints in a folder, oldest step first, whether intact or not."""
    return [sealed.original_name(path) for path in reversed(_newest_first(root))]


def chosen(names: Sequence[str], *, last: int, best: str | None) -> list[str]:
    """The checkpoints that stay: the newest ones and the best, oldest first. Pure."""
    if last < 1:
        raise ValueError(f"last is {last}; at least 1 checkpoint must stay")
    ordered = sorted(set(names))
    return [name for name in ordered if name in ordered[-last:] or name == best]


def retain(root: Path, names: Collection[str]) -> None:
    """Remove every checkpoint but these. Where none of these is there, nothing is removed."""
    there = _newest_first(root)
    if not any(path.name in names for path in there):
        return
    for path in there:
        if sealed.original_name(path) not in names:
            sealed.discard(path)
    external.sweep(root)


def remove(path: Path) -> None:
    """Delete one checkpoint for good, and what it alone has needed: replay segments, and a copy of
    what another program wrote. Nobody may be at work in its run."""
    sweep(path.parent)  # Before it goes: what stepped aside for it must not come back.
    with suppress(FileNotFoundError):  # Somebody else may be deleting it as well.
        sealed.discard(path)
    external.sweep(path.parent)
    wanted = {entry.name for kept in _newest_first(path.parent) for entry in segments_of(kept)}
    replay_files.retain(replay_of(path), wanted)


def name_of(step: int) -> str:
    """The name of the checkpoint of a step."""
    if not 0 <= step < 10**12:
        raise ValueError(f"step is {step}; must be in [0, 10^12)")
    return f"step_{step:012d}"


def step_of(path: Path) -> int | None:
    """The step in a directory's name; None if it is not the name of a checkpoint."""
    match = _NAME.fullmatch(sealed.original_name(path))
    return int(match[1]) if match else None


def checkpoint_name(value: object) -> str | None:
    """The value if it is the plain name of a checkpoint: one that can lead nowhere else."""
    if not isinstance(value, str) or Path(value).name != value:
        return None
    return None if step_of(Path(value)) is None else value


def _segments_in(state: bytes) -> tuple[replay_files.SegmentEntry, ...]:
    try:
        return replay_files.entries(json.loads(state)["replay_meta"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()


def _newest_first(root: Path) -> list[Path]:
    return [path for path in reversed(sealed.present(root)) if step_of(path) is not None]


def _entry(path: Path, *, deep: bool = False) -> CatalogEntry | None:
    """The entry of a checkpoint, or None if it went away in the meantime."""
    step = step_of(path)
    assert step is not None
    try:
        verify(path, deep=deep)
    except NotFound:
        return None
    except Damaged as error:
        return CatalogEntry(step, path, False, error.message) if path.exists() else None
    return CatalogEntry(step, path, True, replay_let_go=replay_let_go(path))
