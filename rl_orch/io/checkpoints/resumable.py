"""The place a run can go on from: asked by whoever resumes one, and by the run process."""

from pathlib import Path

from rl_orch.errors import Conflict, Damaged
from rl_orch.io.checkpoints import catalog
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import folded
from rl_orch.records import EventKind


def newest_checkpoint(
    directory: RunDir, *, deep: bool = False, without_replay: bool = False
) -> catalog.Newest:
    """The newest intact checkpoint; none if the run never came to save one.

    Whoever goes on from it looks deep: into all of its replay segments, however many they are.

    `Damaged` if it did and none is left: beginning anew would pass for going on. `Conflict` if its
    replay buffer was let go of, unless it may go on without: an empty one would pass for it.
    """
    newest = catalog.newest(directory.checkpoints, deep=deep)
    if newest.path is not None:
        if not without_replay and catalog.replay_let_go(newest.path) and not trained(directory):
            raise _without_replay(directory, newest.path)
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


def trained(directory: RunDir) -> bool:
    """Whether training has come to its end, so that only the final evaluation is to be made."""
    spoken = folded(directory.events, (EventKind.STATE,))
    ended = [event.value for event in spoken if event.key == "ended"]
    return bool(ended) and ended[-1] == "trained"


def _without_replay(directory: RunDir, path: Path) -> Conflict:
    name = directory.path.name
    return Conflict(
        f"run {name} cannot go on from {path.name}: its replay buffer was let go of when it had "
        "succeeded",
        path=str(path),
        hint=f"To train its policy further in a run of its own: rlctl launch --from {name}",
    )
