"""The place a run can go on from: asked by whoever resumes one, and by the run process."""

from rl_orch.errors import Damaged
from rl_orch.io.checkpoints import catalog
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import folded
from rl_orch.records import EventKind


def newest_checkpoint(directory: RunDir, *, deep: bool = False) -> catalog.Newest:
    """The newest intact checkpoint; none if the run never came to save one.

    Whoever goes on from it looks deep: into all of its replay segments, however many they are.

    `Damaged` if it did and none is left: beginning anew would pass for going on.
    """
    newest = catalog.newest(directory.checkpoints, deep=deep)
    if newest.path is not None:
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
