"""Evidence for a gate besides a report: what its rules want, and what they then read.

Processes with torch gather most of it (`worker/tasks/gather.py`). All of it goes into one file,
whose digest is kept with the verdict.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_orch import gate
from rl_orch.core.registry.models import Registry
from rl_orch.io.metrics import series
from rl_orch.io.policies import artefacts
from rl_orch.io.run import gate_evidence as files
from rl_orch.io.run import history
from rl_orch.io.run.directory import RunDir, write_text
from rl_orch.io.run.gate_evidence import Baseline, Champion, EvidenceRequest, GateEvidence
from rl_orch.records import EvalReport, EventKind
from rl_orch.records.queries import ModelQuery

LATENCY, BUNDLE = "latency", "bundle"
NEEDED_FOR = {"max_latency_ms": LATENCY, "max_bundle_mb": BUNDLE, "export_parity": BUNDLE}
"""Rule → what has to be measured for it."""


def wanted(
    registry: Registry, env_id: str, checkpoint: Path, rules: Sequence[gate.Rule]
) -> EvidenceRequest:
    """Evidence that rules ask for about a checkpoint; who has an alias is as of now."""
    needed = {NEEDED_FOR[rule.name] for rule in rules if rule.name in NEEDED_FOR}
    aliases = sorted({rule.against for rule in rules if rule.against is not None})
    return EvidenceRequest(
        checkpoint=checkpoint.name,
        champions={alias: _champion(registry, env_id, alias, checkpoint) for alias in aliases},
        latency=LATENCY in needed,
        bundle=BUNDLE in needed,
    )


def lacking(known: GateEvidence, asked: EvidenceRequest) -> EvidenceRequest:
    """The part of a request that was not gathered yet. Pure."""
    champions = {
        alias: champion
        for alias, champion in asked.champions.items()
        if not _is_known(known.baselines.get(alias), champion)
    }
    return asked.model_copy(
        update={
            "champions": champions,
            "latency": asked.latency and known.latency is None,
            "bundle": asked.bundle and known.bundle is None,
        }
    )


def unplayed(asked: EvidenceRequest, digest: str | None) -> GateEvidence:
    """Evidence that needs no playing: which aliases are nobody's, or the model's own. Pure."""
    baselines = {
        alias: Baseline(champion=champion)
        for alias, champion in asked.champions.items()
        if not files.plays(champion)
    }
    return GateEvidence(digest=digest, baselines=baselines)


def joined(known: GateEvidence, news: GateEvidence) -> GateEvidence:
    """Evidence gathered before and now; what is new counts. Pure."""
    found = {
        "baselines": {**known.baselines, **news.baselines},
        "latency": news.latency or known.latency,
        "bundle": news.bundle or known.bundle,
        "problems": news.problems,
    }
    return known.model_copy(update=found)


def with_events(known: GateEvidence, directory: RunDir, rules: Sequence[gate.Rule]) -> GateEvidence:
    """With what the run's events say, as far as rules read it; the event file only if they do."""
    names = {rule.name for rule in rules}
    news: dict[str, Any] = {"history": None, "guardrail_events": None}
    if "converged" in names:
        evaluated = series.events(directory.path, EventKind.EVAL)
        news["history"] = history.of_events(evaluated).evaluations
    if "guardrail_clean" in names:
        spoken = series.events(directory.path, EventKind.STATE, EventKind.GUARDRAIL)
        news["guardrail_events"] = history.guardrail_events(spoken)
    return known.model_copy(update=news)


def evidence(
    report: EvalReport, known: GateEvidence, rules: Sequence[gate.Rule], *, env_steps: int
) -> gate.Evidence:
    """Evidence that was gathered, as rules read it. Pure."""
    played = {
        alias: found.report
        for alias, found in known.baselines.items()
        if found.report is not None or not files.plays(found.champion)
    }
    return gate.Evidence(
        report,
        env_steps,
        played,
        own=frozenset(alias for alias, found in known.baselines.items() if _is_own(found.champion)),
        history=known.history,
        latency_ms=None if known.latency is None else known.latency.p99_ms,
        bundle_bytes=None if known.bundle is None else known.bundle.bytes,
        guardrail_events=known.guardrail_events,
        parity=None if known.bundle is None else known.bundle.parity,
        problems=_problems(known, rules),
    )


def kept(directory: RunDir, model_id: int, report: EvalReport, known: GateEvidence | None) -> Path:
    """The file of all that rules have read of a model."""
    return written(directory, f"model-{model_id}", files.documents(report, known))


def written(directory: RunDir, stem: str, documents: Mapping[str, Any]) -> Path:
    """The file of some documents. Its name holds their digest, so that what a verdict has read is
    never overwritten."""
    text = files.text(dict(documents))
    file = directory.report_file(f"{stem}-{hashlib.sha256(text.encode()).hexdigest()[:12]}")
    write_text(file, text)
    return file


def _champion(registry: Registry, env_id: str, alias: str, checkpoint: Path) -> Champion | None:
    found = registry.find(ModelQuery(env=env_id, alias=alias, limit=1))
    if not found:
        return None
    path = Path(found[0].model_path)
    return Champion(
        model_id=found[0].id,
        directory=str(path.parents[1]),
        checkpoint=path.name,
        digest=found[0].digest,
        itself=checkpoint in (path, *artefacts.places_of(path)),
    )


def _is_known(found: Baseline | None, champion: Champion | None) -> bool:
    if found is None or found.champion != champion or found.problem is not None:
        return False
    return found.report is not None or not files.plays(champion)


def _is_own(champion: Champion | None) -> bool:
    return champion is not None and champion.itself


def _problems(known: GateEvidence, rules: Sequence[gate.Rule]) -> dict[str, str]:
    """Reasons why evidence is missing, by rule."""
    found: dict[str, str] = {}
    for rule in rules:
        baseline = known.baselines.get(rule.against or "")
        problem = known.problems.get(NEEDED_FOR.get(rule.name, ""))
        if baseline is not None:
            problem = baseline.problem
        if problem is not None:
            found[rule.name] = problem
    return found
