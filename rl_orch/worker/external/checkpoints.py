"""The checkpoints of an external run: taken from its program, sealed, told of, pruned.

A program may say which of them is the best. One that never does has its newest taken for it.
"""

import time
from collections.abc import Mapping
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


def kept_by(deposit: ExternalCheckpoint, root: Path) -> CheckpointRetention:
    """Checkpoints kept when a deposit came; a best one that has gone since is none."""
    kept = CheckpointRetention(deposit.kept, deposit.best, best_said=deposit.best_said)
    return kept.in_folder(root)


class CheckpointKeeper:
    """Takes checkpoints from `folder`, where the program writes them, into the run directory."""

    def __init__(
        self,
        directory: RunDir,
        writer: EventWriter,
        *,
        folder: Path,
        attempt: int,
        keep_last: int,
        kept: CheckpointRetention,
    ) -> None:
        self._directory = directory
        self._writer = writer
        self._folder = folder
        self._attempt = attempt
        self._keep_last = keep_last
        self._kept = kept

    def take(self, said: Saved) -> None:
        """Keep what the program tells of; an error if that cannot be done, and then nothing is.

        Events are on the disk before the checkpoint, and all that comes after it is done again by
        an attempt that goes on from it.
        """
        root, name = self._directory.checkpoints, catalog.name_of(said.step)
        kept = self._kept.after_word(name, best=said.best, last=self._keep_last)
        gone = [old for old in catalog.all_names(root) if old not in kept.names]
        tags = {"best": kept.best == name, "evaluated": False, "removed": gone}
        self._writer.sync()
        facts = {
            "run": self._directory.path.name,
            "step": said.step,
            "attempt": self._attempt,
            "seq": self._writer.seq,
            "kept": kept.names,
            "best": kept.best,
            "best_said": kept.best_said,
            "saved": tags,
            "created_at": time.time(),
        }
        deposit = external.save(root / name, self._found(said.path), facts)
        self._kept = kept
        self.announce(deposit)

    def announce(self, deposit: ExternalCheckpoint) -> None:
        """Let go of what is no longer kept, and tell of a checkpoint."""
        catalog.retain(self._directory.checkpoints, {*deposit.kept, *self._directory.pinned()})
        tags: Mapping[str, Any] = deposit.saved
        name = catalog.name_of(deposit.step)
        self._writer.emit(EventKind.CHECKPOINT, "saved", name, step=deposit.step, tags=tags)
        self._writer.flush()

    def _found(self, path: str) -> Path:
        """Path that the program names.

        It must lie in its folder by name, not only by a link.
        """
        given = self._folder / path
        if ".." in given.parts or not given.is_relative_to(self._folder) or given == self._folder:
            raise BadInput(f"{path!r} is not inside the folder for checkpoints")
        places = given.relative_to(self._folder).parents
        if any((self._folder / place).is_symlink() for place in places):
            raise BadInput(f"{path!r} leads through a link")
        return given
