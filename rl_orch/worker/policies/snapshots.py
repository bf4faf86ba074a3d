"""Sources of weights for a training: checkpoints with their run's spec, models, and bundles.

The one place that opens one; nothing that could run code is loaded.
"""

from pathlib import Path

from rl_orch.errors import Damaged
from rl_orch.io.checkpoints import catalog, checkpoint_files, replay_files
from rl_orch.io.checkpoints.replay_segments import SegmentStore
from rl_orch.io.files import sealed
from rl_orch.io.files.tensors import decode
from rl_orch.io.policies import artefacts, bundles, requests
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.warm_start import WarmStart
from rl_orch.spec.model import Spec


def warm_start(
    spec: Spec, store: SegmentStore | None = None, *, home: Path | None = None
) -> WarmStart | None:
    """What a spec says to begin with, if it does; the store takes over its replay segments.

    In a home that was moved it is where it was in it. `Damaged` if there is no longer what the
    spec's digest says.
    """
    start = spec.start
    if start.source is None:
        return None
    path = Path(start.source)
    if home is not None:
        path = sealed.followed(path, start.digest, home)
    digest = sealed.manifest_digest(path)
    if start.digest not in (None, digest):
        raise Damaged(
            f"{start.source!r}, which start.from names, is {digest or 'gone'} by now",
            path="start.from",
            hint="Put it back from a copy, or launch the spec anew.",
        )
    return weights_at(path, start.wanted, partial=start.partial, store=store)


def weights_at(
    path: Path,
    wanted: tuple[str, ...],
    *,
    partial: bool = False,
    store: SegmentStore | None = None,
) -> WarmStart:
    """The weights at a path, every byte verified, and as much else as is wanted and there."""
    if bundles.is_bundle(path):
        bundle = bundles.read(path)
        tensors = decode(bundle.files[bundles.WEIGHTS], path, bundles.WEIGHTS, noun=bundles.NOUN)
        return WarmStart(StateTree(tensors), bundle.spec, wanted, partial)
    requests.refuse_unloadable(path)
    if artefacts.is_artefact(path):
        tensors = checkpoint_files.load(path).tensors
        return WarmStart(StateTree(tensors), artefacts.read(path).spec, wanted, partial)
    spec, loaded = requests.run_of(path).spec(), checkpoint_files.load(path)
    segments = None
    if store is not None and "replay" in wanted:
        listed = replay_files.entries(loaded.document["replay_meta"])
        segments = store.adopt(catalog.replay_of(path), listed)
    snapshot = StateTree(loaded.tensors, loaded.document)
    return WarmStart(snapshot, spec, wanted, partial, segments)
