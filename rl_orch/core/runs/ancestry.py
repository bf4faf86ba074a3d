"""What a new run begins with: the policy that `start.from` names, found, and pinned by digest."""

import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rl_orch.core import uploads
from rl_orch.core.registry import references
from rl_orch.core.registry.models import Registry
from rl_orch.core.registry.references import KnowsModels, KnowsRuns, PolicySource
from rl_orch.core.registry.registration import FINAL, let_go_of_training_state
from rl_orch.core.runs import creation
from rl_orch.core.store.runs import Store
from rl_orch.errors import BadInput, Conflict, NotFound, RlctlError
from rl_orch.io.checkpoints import catalog
from rl_orch.io.files import sealed
from rl_orch.io.policies import artefacts, bundles
from rl_orch.io.processes import pids
from rl_orch.io.run.directory import RunDir
from rl_orch.records import Run, State
from rl_orch.spec.model import Spec

LOG = logging.getLogger(__name__)


def weights(
    models: KnowsModels, runs: KnowsRuns, word: str, *, home: Path | None = None
) -> PolicySource:
    """The source of weights that a word means: a policy, or the newest checkpoint of a run that has
    no model. With a home, no path is looked at but those in it, and bundles may be uploads."""
    if home is not None and word.startswith(uploads.MARK):
        return _uploaded(word, home)
    if home is not None and references.is_path(word):
        word = _in_home(word, home)
    elif home is not None and os.sep in word:
        word = runs.get(word).id
    elif home is None and references.is_at(Path(word)):
        word = os.path.abspath(word)
    elif home is None:
        references.refuse_file(word)
    try:
        return references.source(models, runs, word)
    except NotFound as error:
        return _newest(runs, word, error)


def source_word(spec: Spec, home: Path) -> str:
    """The policy that a spec says to begin with. A path that was pinned in the home, which may have
    been moved since, is where it is in it now."""
    path = str(spec.start.source)
    return (
        str(sealed.followed(Path(path), spec.start.digest, home)) if os.path.isabs(path) else path
    )


def awaited(models: KnowsModels, runs: KnowsRuns, spec: Spec, after: Collection[str]) -> Run | None:
    """The run at work whose weights a spec is to begin with once it has ended, if it waits for it:
    what to take of it is known then."""
    word = str(spec.start.source)
    if uploads.MARK in word or references.names_model(models, word):
        return None
    try:
        run = runs.get(word)
    except NotFound:
        return None
    return run if run.active and not {run.id, run.group}.isdisjoint(after) else None


def waiting(store: Store, directory: RunDir) -> list[str]:
    """The runs that have yet to begin with weights of a run."""
    names = [other.path.name for other in directory.unbegun()]
    return [name for name in names if name in store and store.get(name).active]


def refuse_wanted(store: Store, run: Run, directory: RunDir) -> None:
    """Raise if another run has yet to begin with weights of a run."""
    if others := waiting(store, directory):
        raise Conflict(
            f"run {others[0]} has yet to begin with weights of run {run.id}",
            hint=f"rlctl wait {others[0]}, or rlctl stop {others[0]}",
        )


def release_source(store: Store, registry: Registry, directory: RunDir, *, now: float) -> None:
    """Let the run that one began with let go of its training state, if it succeeded meanwhile and
    no other waits for it. Who has it in hand is left alone; trouble with it is not this run's."""
    try:
        if directory.spec().start.source is None:
            return
        name = (directory.start() or {}).get("run")
        if name is not None and name in store and _is_whole(store, store.get(name)):
            _release(store, registry, name, now=now)
    except (RlctlError, OSError) as error:
        LOG.warning("training state not let go of: %s: %s", directory.path.name, error)


def _is_whole(store: Store, run: Run) -> bool:
    """Whether a run has succeeded, has let nothing go, and nobody waits for its weights."""
    source = RunDir.of(run)
    whole = run.state is State.SUCCEEDED and source.let_go() is None
    return whole and not waiting(store, source)


def _release(store: Store, registry: Registry, run_id: str, *, now: float) -> None:
    """Let go of a run's training state while nobody else may go on with it."""
    lease = pids.lease()
    try:
        if not store.take_lease(run_id, held_by=None, lease=lease):
            return
        try:
            run = store.get(run_id)
            report = RunDir.of(run).read_report(FINAL)
            if report is not None and _is_whole(store, run):
                spec = RunDir.of(run).spec()
                let_go_of_training_state(registry, run, spec, report.checkpoint, now=now)
        finally:
            store.release(run_id, lease=lease)
    finally:
        pids.let_go(lease)


def noter(store: Store, started: Mapping[str, Any] | None) -> Callable[[Sequence[str]], None]:
    """What notes, with the run whose weights others are to begin with, that they are.

    What cannot be noted is refused; not in another home, of which nobody here removes anything.
    """
    if started is None or started["run"] is None:
        return lambda _ids: None
    known = Path(store.get(started["run"]).path) if started["run"] in store else None
    path = known if started["path"] is None else Path(started["path"]).parents[1]
    assert path is not None, "a run that is awaited is known"
    source = RunDir(path)

    def note(ids: Sequence[str]) -> None:
        try:
            source.note_children(ids)
        except RlctlError:
            if known is not None and known.resolve() == path.resolve():
                raise

    return note


def joined(
    store: Callable[[], Store],
    folders: Sequence[str],
    spec: Spec,
    started: Mapping[str, Any] | None,
) -> list[str]:
    """The folders, and those of the run whose weights a spec begins with, if it is known here:
    a spec that was taken over from it names its modules. The store is opened for such a run alone.
    """
    run_id = None if started is None else started["run"]
    if started is None or run_id is None or run_id not in store():
        return [*folders]
    source = RunDir.of(store().get(run_id))
    path = started["path"]
    if path is not None and Path(path).parents[1].resolve() != source.path.resolve():
        return [*folders]
    own = source.module_path() if creation.names_module(spec) else []
    return list(dict.fromkeys([*folders, *own]))


def located(spec: Spec, source: PolicySource) -> Spec:
    """The spec with the path and digest of what it begins with."""
    path = files(source, spec.start.wanted)
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


def files(source: PolicySource, wanted: Sequence[str]) -> Path:
    """The files that parts are taken from: of a model, the checkpoint it was sealed from, which
    has the critics too, as long as that is there."""
    path = source.path
    if source.kind == "artefact":
        checkpoint = artefacts.places_of(path)[1]
        digest = sealed.manifest_digest(checkpoint)
        is_there = digest is not None and digest == artefacts.checkpoint_digest(path)
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


def _uploaded(word: str, home: Path) -> PolicySource:
    path = uploads.content(home, word)
    if not bundles.is_bundle(path):
        raise BadInput(f"{word} is no bundle", hint="`rlctl export` makes one.")
    return PolicySource(path, "bundle")


def _in_home(word: str, home: Path) -> str:
    """A path in the home. One that leads out is refused before it is known what is there."""
    path = Path(os.path.normpath(word))
    with suppress(OSError, ValueError):
        real = home.resolve()
        if any(map(path.is_relative_to, (home, real))) and path.resolve().is_relative_to(real):
            return str(path)
    raise BadInput(
        f"{word!r} is no path in the home of the service, which looks at no others",
        hint=f"Name {references.MODEL_FORMS}; a bundle can be sent.",
    )


def _newest(runs: KnowsRuns, word: str, error: NotFound) -> PolicySource:
    try:
        run = runs.get(word)
    except NotFound:
        raise error from None
    newest = catalog.newest(RunDir.of(run).checkpoints).path
    if newest is None:
        raise error
    return PolicySource(newest, "checkpoint", run=run)
