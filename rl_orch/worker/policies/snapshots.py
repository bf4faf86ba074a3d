"""Snapshots that weights are taken from: of a checkpoint with its run's spec, or of a bundle.

The one place that opens a source of weights for training; nothing that could run code is loaded.
"""

from dataclasses import dataclass
from pathlib import Path

from rl_orch.errors import Damaged
from rl_orch.io.checkpoints import catalog, checkpoint_files, replay_files
from rl_orch.io.checkpoints.replay_files import SegmentEntry
from rl_orch.io.checkpoints.replay_segments import SegmentStore
from rl_orch.io.files import sealed
from rl_orch.io.files.tensors import decode
from rl_orch.io.policies import bundles, requests
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.warm_start import WarmStart
from rl_orch.spec.model import Spec


@dataclass(frozen=True, slots=True)
class SourceSnapshot:
    """The snapshot at a path, verified, with the spec that it was trained by and its digest.

    `segments` are those of its replay buffer, in the folder `replay`; a bundle has none.
    """

    state: StateTree
    spec: Spec
    step: int
    digest: str | None
    segments: tuple[SegmentEntry, ...] = ()
    replay: Path | None = None


def snapshot_at(path: Path, digest: str | None = None) -> SourceSnapshot:
    """The snapshot at a path; `Damaged` if it is no longer the one of that digest."""
    found = sealed.manifest_digest(path)
    if digest is not None and found != digest:
        there = "has another digest now" if found else "is gone"
        raise Damaged(
            f"{str(path)!r}, which start.from names, {there}",
            path="start.from",
            hint="Put it back from a copy, or launch the spec anew.",
        )
    if bundles.is_bundle(path):
        bundle = bundles.read(path)
        tensors = decode(bundle.files[bundles.WEIGHTS], path, bundles.WEIGHTS, noun=bundles.NOUN)
        return SourceSnapshot(StateTree(tensors), bundle.spec, bundle.report.step, found)
    requests.refuse_unloadable(path)
    spec, loaded = requests.run_of(path).spec(), checkpoint_files.load(path)
    return SourceSnapshot(
        StateTree(loaded.tensors, loaded.document),
        spec,
        loaded.step,
        found,
        replay_files.entries(loaded.document["replay_meta"]),
        catalog.replay_of(path),
    )


def warm_start(spec: Spec, store: SegmentStore | None = None) -> WarmStart | None:
    """What a spec says to begin with, if it does; the store takes over its replay segments."""
    if spec.start.source is None:
        return None
    source = snapshot_at(Path(spec.start.source), spec.start.digest)
    segments = None
    if store is not None and source.replay is not None and "replay" in spec.start.wanted:
        segments = store.adopt(source.replay, source.segments)
    return WarmStart(source.state, source.spec, spec.start.wanted, spec.start.partial, segments)
