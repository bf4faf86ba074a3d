"""The place a run can go on from: asked by whoever resumes one, and by the run process."""

from pathlib import Path

from rl_orch.errors import Conflict, Damaged
from rl_orch.io.checkpoints import catalog
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import folded
from rl_orch.records import EventKind


def newest_checkpoint(directory: RunDir, *, deep: bool = False) -> catalog.Newest:
    """The newest intact checkpoint; none if the run never came to save one.

    Whoever goes on from it looks deep: into all of its replay segments, however many they are.

    `Damaged` if it did and none is left: beginning anew would pass for going on. `Conflict` if its
    replay buffer was let go of: an empty one would pass for it.
    """
    newest = catalog.newest(directory.checkpoints, deep=deep)
    if newest.path is not None:
        _refuse_without_replay(directory, newest.path)
        return newest
    saved = [
        str(event.value)
        for event in folded(directory.events, (EventKind.CHECKPOINT,))
        if event.key == "saved"
    ]
    if not newest.passed_over and not saved:
        return newest
    what = "; ".join(newest.passed_over) or f"{saved[-1]} and all before it are gone"
    raise Damaged(
        f"no intact checkpoint is left of run {directory.path.name}: {what}",
        path=str(directory.checkpoints),
        hint="Restore one from a copy, or launch the spec anew: "
        f"rlctl launch -f {str(directory.spec_file)!r}",
    )


def _refuse_without_replay(directory: RunDir, path: Path) -> None:
    if catalog.replay_let_go(path):
        raise Conflict(
            f"run {directory.path.name} cannot go on from {path.name}: its replay buffer was let "
            "go of when it had succeeded",
            path=str(path),
            hint="To train its policy further, launch another run that starts from it: "
            f"rlctl launch -f {str(directory.spec_file)!r} start.from={directory.path.name}",
        )
