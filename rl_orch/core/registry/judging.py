"""Judging models that are in the registry: alone, against the gate of their spec, and beside
another one over the same episodes. What was read is kept in the run's directory, with its digest.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from rl_orch import gate
from rl_orch.core.ports import ModelEvaluator
from rl_orch.core.registry import evidence
from rl_orch.core.registry.models import Registry
from rl_orch.core.registry.promotion import PromotionRule
from rl_orch.core.registry.references import registered_digest
from rl_orch.core.registry.registration import FINAL
from rl_orch.core.registry.verdicts import Judgement
from rl_orch.errors import BadInput
from rl_orch.io.files import sealed
from rl_orch.io.policies import artefacts
from rl_orch.io.run import gate_evidence
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.gate_evidence import EvidenceRequest, GateEvidence
from rl_orch.records import EvalReport, ModelVersion, StoredVerdict
from rl_orch.spec.model import Spec

BASELINE = "@baseline"
"""The champion's report beside the challenger's, in one file; no policy has such a name."""


@dataclass(frozen=True, slots=True)
class ValidationRequest:
    """Request to judge a model: by another return than its spec asks for, over so many episodes,
    and on episodes that are played now whether or not there is a report."""

    min_return: float | None = None
    episodes: int | None = None
    fresh: bool = False


def validate(
    registry: Registry, assess: ModelEvaluator, model: ModelVersion, request: ValidationRequest
) -> StoredVerdict:
    """The verdict of its spec's gate on a model, kept.

    The report is that of the final evaluation, if it was of this model. Else, or if that is wished
    for, the model is played by a process of its own.
    """
    digest = registered_digest(model)
    directory, path = directory_of(model), Path(model.model_path)
    spec = artefacts.spec_of(path)
    rules = _rules(model, spec, request)
    report = _known(directory, model, request)
    file = directory.report_file(FINAL) if report is not None else None
    gathered = GateEvidence(digest=digest)
    if report is not None:
        artefacts.verify(path)
        known = (gate_evidence.read(directory, FINAL, each) for each in model.digests)
        gathered = next(filter(None, known), gathered)
    else:
        report, _ = assess.assess(model, None, request.episodes or spec.eval.final_episodes)
        _verify_unless_played(path, report)
    wanted = evidence.wanted(registry, model.env_id, path, rules)
    gathered = _completed(assess, model, report, gathered, wanted)
    gathered = evidence.with_events(gathered, directory, rules)
    steps = model.total_timesteps or report.trained_steps
    verdict = gate.weigh(evidence.evidence(report, gathered, rules, env_steps=steps), rules)
    assert verdict is not None
    more = gathered if gate.read_more(rules) else None
    if file is None or more is not None:
        file = evidence.kept(directory, model.id, report, more)
    judgement = Judgement(verdict, rules, file, digest=digest, episodes=report.summary.n)
    return registry.decide(model, judgement, report)


def compare(
    registry: Registry,
    assess: ModelEvaluator,
    model: ModelVersion,
    champion: ModelVersion,
    rule: PromotionRule,
    episodes: int,
) -> StoredVerdict:
    """The verdict on a model beside the champion, both over the same episodes, kept."""
    digest, theirs = (registered_digest(each) for each in (model, champion))
    report, baseline = assess.assess(model, champion, episodes)
    assert baseline is not None
    for each, played in ((model, report), (champion, baseline)):
        _verify_unless_played(Path(each.model_path), played)
    reports = {report.policy: report, BASELINE: baseline}
    documents = {name: json.loads(each.model_dump_json()) for name, each in reports.items()}
    file = evidence.written(directory_of(model), f"against-{champion.id}", documents)
    verdict = gate.judge(report, baseline, (rule.gate_rule,), env_steps=report.trained_steps)
    assert verdict is not None
    judgement = Judgement(
        verdict, (rule.gate_rule,), file, champion.id, digest, theirs, report.summary.n
    )
    return registry.decide(model, judgement, report)


def directory_of(model: ModelVersion) -> RunDir:
    """The run directory that a model's artefact is in."""
    return RunDir(Path(model.model_path).parents[1])


def _verify_unless_played(path: Path, report: EvalReport) -> None:
    """Raise `Damaged` unless the files of a model are whole. A report that names their digest is
    by somebody who has verified every byte to play them: then none is read again."""
    if report.digest is None or report.digest != sealed.manifest_digest(path):
        artefacts.verify(path)


def _known(directory: RunDir, model: ModelVersion, request: ValidationRequest) -> EvalReport | None:
    """The report of the final evaluation, if it is of these very files and enough."""
    if request.fresh or request.episodes is not None or model.digest is None:
        return None
    report = directory.read_report(FINAL)
    if report is None or report.checkpoint != Path(model.model_path).name:
        return None
    return report if report.digest in (None, *model.digests) else None


def _rules(model: ModelVersion, spec: Spec, request: ValidationRequest) -> tuple[gate.Rule, ...]:
    gates = spec.gates
    if request.min_return is not None:
        gates = gates.model_copy(update={"min_return": request.min_return})
    rules = gate.rules_from(gates)
    if not rules:
        raise BadInput(
            f"model {model.id} has no gate to pass: its spec sets none",
            path="gates",
            hint="Say what is asked of it, such as --min-return 475.",
        )
    return rules


def _completed(
    assess: ModelEvaluator,
    model: ModelVersion,
    report: EvalReport,
    gathered: GateEvidence,
    wanted: EvidenceRequest,
) -> GateEvidence:
    """All that is wanted, as far as it can be had: what is known already is not asked again."""
    lacking = evidence.lacking(gathered, wanted)
    news = evidence.unplayed(lacking, gathered.digest)
    if lacking.laborious:
        news = assess.gather(model, report, lacking)
    return evidence.joined(gathered, news)
