"""The checkpoints of an external run: taken from its program, sealed, told of, pruned.

A program may say which of them is the best. One that never does has its newest taken for it.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_orch.errors import BadInput
from rl_orch.io.checkpoints import catalog, external
from rl_orch.io.checkpoints.checkpoint_retention import CheckpointRetention
from rl_orch.io.checkpoints.external import ExternalCheckpoint
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import EventWriter
from rl_orch.records import EventKind
from rl_orch.worker.external.line_protocol import Saved


def kept_by(checkpoint: ExternalCheckpoint, root: Path) -> CheckpointRetention:
    """Checkpoints kept when one came; a best one that has gone since is none."""
    kept = CheckpointRetention(checkpoint.kept, checkpoint.best, best_said=checkpoint.best_said)
    return kept.in_folder(root)


@dataclass(slots=True)
class CheckpointKeeper:
    """Takes checkpoints from `folder`, where the program writes them, into the run directory."""

    directory: RunDir
    writer: EventWriter
    folder: Path
    attempt: int
    keep_last: int
    kept: CheckpointRetention

    def take(self, said: Saved) -> None:
        """Keep what the program tells of; an error if that cannot be done, and then nothing is.

        Events are on the disk before the checkpoint, and all that comes after it is done again by
        an attempt that goes on from it.
        """
        root, name = self.directory.checkpoints, catalog.name_of(said.step)
        kept = self.kept.after_word(name, best=said.best, last=self.keep_last)
        gone = [old for old in catalog.all_names(root) if old not in kept.names]
        tags = {"best": kept.best == name, "evaluated": False, "removed": gone}
        self.writer.sync()
        facts = {
            "run": self.directory.path.name,
            "step": said.step,
            "attempt": self.attempt,
            "seq": self.writer.seq,
            "kept": kept.names,
            "best": kept.best,
            "best_said": kept.best_said,
            "saved": tags,
            "created_at": time.time(),
        }
        checkpoint = external.save(root / name, self._found(said.path), facts)
        self.kept = kept
        self.announce(checkpoint)

    def announce(self, checkpoint: ExternalCheckpoint) -> None:
        """Let go of what is no longer kept, and tell of a checkpoint."""
        catalog.retain(self.directory.checkpoints, {*checkpoint.kept, *self.directory.pinned()})
        tags: Mapping[str, Any] = checkpoint.saved
        name = catalog.name_of(checkpoint.step)
        self.writer.emit(EventKind.CHECKPOINT, "saved", name, step=checkpoint.step, tags=tags)
        self.writer.flush()

    def _found(self, path: str) -> Path:
        """Path that the program names.

        It must lie in its folder by name, not only by a link.
        """
        given = self.folder / path
        if ".." in given.parts or not given.is_relative_to(self.folder) or given == self.folder:
            raise BadInput(f"{path!r} is not inside the folder for checkpoints")
        places = given.relative_to(self.folder).parents
        if any((self.folder / place).is_symlink() for place in places):
            raise BadInput(f"{path!r} leads through a link")
        return given
