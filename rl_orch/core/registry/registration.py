"""Models as a run makes them: registered when it ends, forgotten when they go, judged once."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rl_orch import gate
from rl_orch.core.registry import evidence
from rl_orch.core.registry.model_retention import Retention, RetentionLimits
from rl_orch.core.registry.models import Registry
from rl_orch.core.registry.verdicts import Judgement
from rl_orch.core.store.runs import Store
from rl_orch.errors import NotFound, RlctlError
from rl_orch.io.checkpoints import catalog, training_state
from rl_orch.io.checkpoints.catalog import checkpoint_name
from rl_orch.io.files import sealed
from rl_orch.io.policies import artefacts
from rl_orch.io.run import gate_evidence
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.gate_evidence import GateEvidence
from rl_orch.records import EvalReport, Event, EventKind, Run, Verdict
from rl_orch.spec.live import in_force
from rl_orch.spec.model import Spec

LOG = logging.getLogger(__name__)

FINAL = "final"
"""The name of the report that the gate reads."""


def register_best(
    registry: Registry, run: Run, spec: Spec, best: str | None, *, lease: str
) -> None:
    """Register the best evaluated checkpoint of a run whose training has ended, and is not tried
    again.

    Until then none is: those on the way are pruned sooner or later, and models are numbered for
    people. It takes the place of what an earlier end of the run had registered, unless a gate was
    asked about that, or it has an alias: then both stay.
    """
    directory = RunDir.of(run, spec)
    report = report_on(directory, best) if best is not None and spec.registry.enable else None
    if report is not None:
        _register_alone(registry, run, spec, directory.checkpoints / str(best), report, lease=lease)


def _register_alone(
    registry: Registry, run: Run, spec: Spec, checkpoint: Path, report: EvalReport, *, lease: str
) -> None:
    """Register a checkpoint in place of what an earlier end of its run had registered."""
    register(registry, run, spec, checkpoint, report, lease=lease)
    if registry.at(checkpoint) is None:
        return  # It could not be sealed: better the earlier model than none.
    directory = RunDir.of(run, spec)
    spared = directory.pinned()
    for gone in registry.forget_others(run, checkpoint, spared=spared, lease=lease):
        if gone.parent == directory.models:
            _remove(gone)


def forget_pruned(registry: Registry, run: Run, spec: Spec, event: Event, *, lease: str) -> None:
    """Forget models whose checkpoints a resumed training has pruned, as an event says."""
    if event.kind is not EventKind.CHECKPOINT or event.key != "saved":
        return
    directory = RunDir.of(run, spec)
    pruned = event.tags.get("removed")
    for gone in map(checkpoint_name, pruned if isinstance(pruned, list) else ()):
        if gone is not None:
            registry.forget(run, directory.checkpoints / gone, lease=lease)
            if registry.at(directory.models / gone) is None:
                _remove(directory.models / gone)


def register(
    registry: Registry,
    run: Run,
    spec: Spec,
    checkpoint: Path,
    report: EvalReport,
    *,
    lease: str,
    anew: bool = False,
) -> None:
    """Register an evaluated checkpoint, once what acts of it is sealed: anew, where nobody vouches
    for an artefact that is there.

    A model that has an alias is not replaced by another checkpoint of its name. What cannot be
    sealed costs the model, never the run.
    """
    known = registry.at(checkpoint)
    digest = sealed.manifest_digest(checkpoint)
    if known is not None and known.aliases and digest not in (None, *known.digests):
        LOG.warning("model %s has an alias and stays as it is", known.id)
        return
    directory = RunDir.of(run, spec)
    trained = directory.spec_before(report.step)
    try:
        path = artefacts.seal(checkpoint, trained, anew=anew)
    except NotFound:
        return  # Training has pruned it by now, as one of the next events says.
    except (RlctlError, OSError) as error:
        LOG.warning("model not registered: %s", error)
        return
    commit, more = _commit(directory), ancestors(directory, report.step)
    registry.register(run, trained, path, report, lease=lease, git_commit=commit, lineage=more)


def report_on(directory: RunDir, name: str) -> EvalReport | None:
    """The report on a checkpoint. One that is damaged costs the model, never the run."""
    try:
        return directory.read_report(name)
    except RlctlError as error:
        LOG.warning("model not registered: %s", error)
        return None


def judge(
    registry: Registry, run: Run, spec: Spec, report: EvalReport, *, lease: str
) -> tuple[Run, Verdict | None]:
    """The run with its final evaluation, and the verdict of its gate on that.

    The evaluation is what a process of its own found.
    """
    directory, rules = RunDir.of(run), gate.rules_from(spec.gates)
    path = directory.checkpoints / str(report.checkpoint)
    gathered = gate_evidence.read(directory, FINAL, sealed.manifest_digest(path)) or GateEvidence()
    gathered = evidence.with_events(gathered, directory, rules)
    read = evidence.evidence(report, gathered, rules, env_steps=report.trained_steps)
    verdict = gate.weigh(read, rules)
    unknown = spec.registry.enable and registry.at(path) is None
    if unknown and not spec.runner.traits.trains_here:  # Its checkpoints are evaluated only once.
        _register_alone(registry, run, spec, path, report, lease=lease)
    model = registry.at(path)
    if model is not None and report.digest not in (None, *model.digests):
        model = None  # One with an alias stays, though its run has saved another in its place.
    if model is not None:
        file = directory.report_file(FINAL)
        if gate.read_more(rules):
            file = evidence.kept(directory, model.id, report, gathered)
        n = report.summary.n
        judgement = None if verdict is None else Judgement(verdict, rules, file, episodes=n)
        registry.judge(run, model.id, report, judgement, lease=lease)
    news = {
        "eval": report.summary,
        "verdict": None if verdict is None else verdict.word,
        "model_id": None if model is None else model.id,
    }
    return run.model_copy(update=news), verdict


def let_go_of_training_state(
    registry: Registry, run: Run, spec: Spec, best: str | None, *, now: float
) -> None:
    """Let go of what only training needs of a run that has succeeded, if its spec says so.

    Its newest and its best checkpoint stay, and those that a model still is. Trouble with that is
    not the run's.
    """
    if spec.checkpoint.keep_training_state == "always":
        return
    directory = RunDir.of(run)
    models = (Path(model.model_path) for model in registry.of_run(run.id))
    unsealed = {path.name for path in models if path.parent == directory.checkpoints}
    newest = catalog.newest(directory.checkpoints).path
    try:
        if newest is not None:
            training_state.let_go(directory, {newest.name, str(best), *unsealed}, now=now)
    except (RlctlError, OSError) as error:
        LOG.warning("training state not let go of: %s: %s", run.id, error)


def retain_models(store: Store, run: Run, directory: RunDir, clock: Callable[[], float]) -> None:
    """Remove models that the spec of an ended run leaves no room for.

    Trouble with that is not the run's; the next one to end, or to prune, finishes it.
    """
    retention = Retention(store, clock)
    try:
        options = directory.spec().registry
        limits = RetentionLimits(options.keep_top_n, options.max_age)
        if options.enable and limits.any:
            retention.prune(limits, env=run.env)
        else:
            retention.finish()
    except (RlctlError, OSError) as error:
        LOG.warning("models not retained as asked: %s: %s", run.id, error)


def ancestors(directory: RunDir, step: int) -> dict[str, Any]:
    """What a model comes from besides its run's spec: what that began with, what was set or loaded
    before a step. A manifest that is damaged costs that, never the run."""
    try:
        start, notes = directory.start(), directory.changes()
    except RlctlError:
        return {}
    loads = [n["load"]["digest"] for n in notes if "load" in n and n["step"] < step]
    known = {"start": start, "set": in_force(notes, step), "loaded": loads}
    return {name: value for name, value in known.items() if value}


def _remove(artefact: Path) -> None:
    """Delete an artefact that no row names. One that cannot be costs room, never the run."""
    try:
        artefacts.remove(artefact)
    except (RlctlError, OSError) as error:
        LOG.warning("artefact not deleted: %s: %s", artefact, error)


def _commit(directory: RunDir) -> str | None:
    """The commit that the manifest names. One that is damaged costs that, never the run."""
    try:
        commit = directory.manifest().get("git_commit")
    except RlctlError as error:
        LOG.warning("commit not known: %s", error)
        return None
    return commit if isinstance(commit, str) else None
