"""What a new run begins with: the policy that `start.from` names, found, and pinned by digest."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rl_orch.core.registry import references
from rl_orch.core.registry.references import KnowsModels, KnowsRuns, PolicySource
from rl_orch.errors import BadInput, NotFound
from rl_orch.io.checkpoints import catalog
from rl_orch.io.files import sealed
from rl_orch.io.policies import artefacts
from rl_orch.io.run.directory import RunDir
from rl_orch.spec.model import Spec


def weights(
    models: KnowsModels, runs: KnowsRuns, word: str, *, home: Path | None = None
) -> PolicySource:
    """The source of weights that a word means: a policy, or the newest checkpoint of a run that has
    no model. With a home, a path has to be in it."""
    try:
        source = references.source(models, runs, word)
    except NotFound as error:
        source = _newest(runs, word, error)
    named = source.model is None and source.run is None
    if home is not None and named and not source.path.resolve().is_relative_to(home.resolve()):
        raise BadInput(
            f"{word!r} is a path outside of the home of the service",
            path="start.from",
            hint=f"Name {references.MODEL_FORMS}.",
        )
    return source


def located(spec: Spec, source: PolicySource) -> Spec:
    """The spec with the path and digest of what it begins with."""
    path = _files(source, spec.start.wanted)
    digest = sealed.manifest_digest(path)
    if digest is None or spec.start.digest not in (None, digest):
        raise BadInput(
            f"start.digest is {spec.start.digest!r}; {source.name} has {digest!r}",
            path="start.digest",
            hint="Leave it out to begin with what is there now.",
        )
    return spec.changed({"start.from": str(path), "start.digest": digest})


def lineage(spec: Spec, source: PolicySource) -> dict[str, Any]:
    """Where a run's first weights come from, as its manifest says it."""
    path = Path(str(spec.start.source))
    directory = RunDir(path.parents[1])
    of_run = source.kind in ("artefact", "checkpoint") and directory.is_run
    return {
        "kind": source.kind,
        "path": str(path),
        "digest": spec.start.digest,
        "parts": spec.start.parts,
        "model": None if source.model is None else source.model.id,
        "run": directory.path.name if of_run else None,
        "checkpoint": path.name if of_run else None,
        "step": catalog.step_of(path) if of_run else None,
    }


def _files(source: PolicySource, wanted: Sequence[str]) -> Path:
    """The files to begin with: of a model, the checkpoint that it was sealed from, which has the
    critics too, as long as that is there."""
    path = source.path
    if source.kind == "artefact":
        checkpoint = artefacts.places_of(path)[1]
        is_there = sealed.manifest_digest(checkpoint) == artefacts.checkpoint_digest(path)
        if not is_there and "optimizer" in wanted:
            raise BadInput(
                f"of {source.name} there is its policy alone; its checkpoint was let go of",
                path="start.parts",
                hint="Set start.parts=policy; or name a run's newest or best checkpoint.",
            )
        path = checkpoint if is_there else path
    if "replay" in wanted and source.kind != "bundle" and catalog.replay_let_go(path):
        raise BadInput(
            f"the replay buffer of {source.name} was let go of when its run had succeeded",
            path="start.parts",
            hint="start.parts=policy+optimizer; checkpoint.keep_training_state=always keeps all.",
        )
    return path


def _newest(runs: KnowsRuns, word: str, error: NotFound) -> PolicySource:
    try:
        run = runs.get(word)
    except NotFound:
        raise error from None
    newest = catalog.newest(RunDir.of(run).checkpoints).path
    if newest is None:
        raise error
    return PolicySource(newest, "checkpoint", run=run)
