"""How each kind of job is carried out, for whoever asks here and for those who ask a service."""

import os
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rl_orch import stats
from rl_orch.core import uploads
from rl_orch.core.jobs import recorded
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.policies import evaluation, profile
from rl_orch.core.policies.advice import advise
from rl_orch.core.policies.export import default_out, export, infer, show
from rl_orch.core.policy_import import PolicyImportRequest, import_policy
from rl_orch.core.preflight.facts import examine
from rl_orch.core.registry import references
from rl_orch.core.registry.references import PolicySource
from rl_orch.core.resume_certificate import Trial
from rl_orch.core.verbs import ready
from rl_orch.errors import BadInput, NotFound
from rl_orch.io import service_note
from rl_orch.io.machine import hardware
from rl_orch.io.policies import bundles
from rl_orch.io.processes import import_path
from rl_orch.io.processes.task_worker import ProgressCallback
from rl_orch.records import Event, Record, exactness, jobs, models, reports, runs, tasks
from rl_orch.spec import code, consent
from rl_orch.spec.checks import refuse_pending
from rl_orch.spec.code import NamedCode
from rl_orch.spec.model import Spec
from rl_orch.spec.tuned import resolve_tuned

ARTIFACT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
WORD = re.compile(r"[^\x00-\x1f\x7f]{0,300}")
PORT = 7311


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where a job is carried out, for whom, and who watches.

    For a service `folder` is that of the job: words are names in its home or uploads, and what is
    made is put there. Without one, paths are those of whoever asks.
    """

    here: Orchestrator
    watch: ProgressCallback
    folder: Path | None = None
    who: str | None = None

    def file(self, word: str) -> Path:
        """The file or folder that a word means."""
        if self.folder is None:
            return Path(os.path.abspath(word))
        return uploads.content(self.here.home, word)

    def discard(self, *words: str | None) -> None:
        """Let go of uploads that the home has taken in."""
        for word in words:
            if word is not None and self.folder is not None:
                uploads.discard(self.here.home, word)

    def launched(self, spec: Spec) -> Spec:
        """A spec to launch, whose runs a service ends with their job."""
        if self.folder is None:
            return spec
        return spec.changed({"tags": spec.tags | {jobs.JOB_TAG: self.folder.name}})

    def out(self, word: str | None) -> Path | None:
        """Where to write what is made, if that was said."""
        if word is None or self.folder is None:
            return None if word is None else Path(os.path.abspath(word))
        if not ARTIFACT.fullmatch(word):
            raise BadInput(
                f"out is {word[:100]!r}; must be the name of an artifact: letters, digits, . _ -",
                path="out",
            )
        return self.folder / word

    def source(self, word: str, env: str | None = None, command: str = "eval") -> PolicySource:
        """Source of the policy that is meant, if it has learned the environment that is meant."""
        found = self._source(word)
        if env is not None:
            references.refuse_other_env(
                self.here.models,
                found,
                env,
                lambda other, there: f"rlctl {command} {other} --env {there}",
            )
        return found

    def _source(self, word: str) -> PolicySource:
        if word.startswith(uploads.MARK) and self.folder is not None:
            return PolicySource(uploads.content(self.here.home, word), "bundle")
        if self.folder is not None and os.sep in word:
            word = self.here.get(word).id  # The name of a run; no path is looked at.
        elif self.folder is None and references.is_at(Path(word)):
            path = Path(os.path.abspath(word))
            return PolicySource(path, references.kind_of(path))
        elif self.folder is None:
            references.refuse_file(word)
        try:
            return references.source(self.here.models, self.here, word)
        except OSError as error:
            raise NotFound(
                f"no policy {word!r}, which cannot be looked at as a path: "
                f"{error.strerror or error}",
                hint=f"Name {references.FORMS}.",
            ) from None


def carry_out(at: Workplace, request: jobs.JobRequest[Any]) -> Record:
    """What a request is answered with."""
    if at.folder is not None and (folders := getattr(request, "module_path", ())):
        os.environ |= import_path.variable([*folders, *import_path.searched()])
        import_path.search()
    return WAYS[request.kind](at, request)


def refuse_paths(request: jobs.JobRequest[Any], spec: Spec | None) -> None:
    """Raise if a request to a service names a path, and no upload and nothing in its home."""
    words = {name: getattr(request, name) for name in request.policies}
    if spec is not None:
        words["spec.start.from"] = spec.start.source
    for name, word in words.items():
        if word is not None and not WORD.fullmatch(word):
            raise BadInput(f"{name} is {word[:100]!r}; must be text on one line", path=name)
        if word is not None and references.is_path(word):
            raise BadInput(
                f"{name} is {word[:100]!r}, a path; a service reads none of its own machine",
                path=name,
                hint=f"Name {references.MODEL_FORMS}; or an upload, as `POST /uploads` names it.",
            )
    for name in request.files:
        word = getattr(request, name)
        if word is not None and not uploads.NAME.fullmatch(word):
            raise BadInput(
                f"{name} is {word[:100]!r}; must be an upload",
                path=name,
                hint="Send it with `POST /uploads`, and name it by the word that it answers.",
            )
    if request.out is not None and not ARTIFACT.fullmatch(request.out):
        raise BadInput(f"out is {request.out[:100]!r}; must be a plain file name", path="out")


def named_code(home: Path, request: jobs.JobRequest[Any], spec: Spec | None) -> list[NamedCode]:
    """Code of the caller's choosing that a request would have imported or run."""
    named = [each for name in request.code for each in _named_in(request, name, spec)]
    for word in [getattr(request, name) for name in request.policies]:
        if word is not None and word.startswith(uploads.MARK):
            named += code.named_by(bundles.read_spec(uploads.content(home, word)))
    return named


def _named_in(request: jobs.JobRequest[Any], name: str, spec: Spec | None) -> list[NamedCode]:
    """The code that a field names."""
    value = getattr(request, name)
    if value is None:
        return []
    match name:
        case "spec":
            return [] if spec is None else code.named_by(spec)
        case "overrides":
            return list(code.named_by_overrides(value))
        case "settings":
            return list(code.named_by_overrides([override for _step, override in value]))
    return list(code.named_in({name: value}))


def spec_of(request: Any) -> Spec:
    """The spec of a request that has one."""
    return resolve_tuned(request.spec)


def evaluate(at: Workplace, job: jobs.EvaluateJob) -> jobs.PolicyEvaluation:
    """Play a policy, and another one on the same episodes, and keep what came of it."""
    source = at.source(job.policy, job.env)
    other = None if job.against is None else at.source(job.against, job.env)
    evaluation.refuse(job)
    folder = at.out(job.out)
    evaluation.make_room(source, folder)
    evaluated = evaluation.evaluate(source, other, job, partial(at.watch, "playing"))
    files = evaluation.keep(source, evaluated.answer, folder)
    report, baseline = evaluated.answer.report, evaluated.answer.baseline
    target = evaluation.target_of(source)
    return jobs.PolicyEvaluation(
        name=source.name,
        word=job.policy,
        path=str(source.path),
        run_id=None if source.run is None else source.run.id,
        env=report.env_id,
        seed=report.seed,
        deterministic=report.deterministic,
        result=_evaluated(report, target),
        against=None if baseline is None else _evaluated(baseline, target),
        comparison=evaluated.comparison,
        files={name: str(path) for name, path in files.items()},
    )


def _evaluated(report: reports.EvalReport, target: float | None) -> jobs.EvaluatedPolicy:
    return jobs.EvaluatedPolicy(
        model_id=None if report.model is None else int(report.model),
        eval=report.summary,
        aggregates=evaluation.aggregates(report, target),
        mean_length=report.mean_length,
        metrics={name: sum(each) / len(each) for name, each in report.metrics.items()},
        estimates=stats.metric_estimates(report.metrics, shares=report.shares, seed=report.seed),
        cut=report.cut_sentence,
    )


def export_policy(at: Workplace, job: jobs.ExportJob) -> tasks.ExportAnswer:
    """Write a policy out: where it is to go, or among the exports of its run."""
    source = at.source(job.policy)
    out = at.out(job.out) or default_out(source.path, job.format, at.folder)
    task = tasks.ExportTask(
        source=str(source.path),
        module_path=tuple(source.module_path),
        out=str(out),
        **job.model_dump(exclude={"policy", "out"}),
        # What the registry knows of a policy's origin, and its files do not.
        lineage={} if source.model is None else {"model": source.model.id},
    )
    return export(task, at.watch)


def validate(at: Workplace, job: jobs.ValidateJob) -> models.StoredVerdict:
    """Hold a model against the gate of its spec."""
    return at.here.models.validate(
        job.model, min_return=job.min_return, episodes=job.episodes, fresh=job.fresh
    )


def promote(at: Workplace, job: jobs.PromoteJob) -> models.AliasChange:
    """Give a model an alias, if gates let it pass."""
    asked = job.model_dump(exclude={"model", "out"})
    return at.here.models.promote(job.model, **asked, who=at.who)


def profile_spec(at: Workplace, job: jobs.ProfileJob) -> jobs.ProfileResult:
    """Train for a short time and say where the time goes."""
    asked = spec_of(job)
    profile.refuse_unless_local(asked)
    refuse_pending(asked)
    # A group trains the same with every seed.
    asked, _ = ready(at.here.home, (asked.members or [asked])[0])
    spec = at.here.check(asked)
    measured = profile.profile(spec, seconds=job.seconds, steps=job.steps, watch=at.watch)
    advice = advise(spec, measured, cores=hardware.cores(), gpus=len(hardware.gpus()))
    suggestions = tuple(jobs.Suggestion(**asdict(each)) for each in advice)
    return jobs.ProfileResult(asked=asked, spec=spec, profile=measured, advice=suggestions)


def infer_actions(at: Workplace, job: jobs.InferJob) -> tasks.InferAnswer:
    """Actions of a policy for observations."""
    source = at.source(job.policy, job.env, "infer")
    out = at.out(job.out)
    task = tasks.InferTask(
        source=str(source.path),
        module_path=tuple(source.module_path),
        input=None if job.input is None else str(at.file(job.input)),
        output=None if out is None else str(out),
        **job.model_dump(include={"observation", "sample", "seed", "using"}),
    )
    return infer(task, at.watch)


def film(at: Workplace, job: jobs.FilmJob) -> tasks.FilmAnswer:
    """Drive an episode of a policy again, into a film or a window."""
    if at.folder is not None and job.out is None:
        raise BadInput(
            "a service has no screen here", path="out", hint="Film it: --video episode.mp4"
        )
    source, out = at.source(job.policy), at.out(job.out)
    records = None if job.records is None else at.file(job.records)
    chosen = recorded.episode(source, job.episode, job.of, records)
    if out is None:
        recorded.refuse_unseen()
    task = tasks.FilmTask(
        policy=evaluation.named(source),
        seed=job.seed,
        deterministic=not job.sample,
        film=None if out is None else str(out),
    ).model_copy(update=chosen)
    return show(task, at.watch)


def doctor(at: Workplace, job: jobs.DoctorJob) -> jobs.Diagnosis:
    """Look at the machine, and whether a spec could run there."""
    spec = None if job.spec is None else spec_of(job)
    named = job.database if spec is None else spec.registry.db_path
    if at.folder is not None:
        named = str(at.here.location)
    database = service_note.database_of(at.here.home, named)
    findings = examine(at.here.home, spec, database=database, port=PORT)
    return jobs.Diagnosis(findings=tuple(jobs.MachineFinding(**asdict(each)) for each in findings))


def take_in_run(at: Workplace, job: jobs.ImportRunJob) -> runs.Run:
    """Take in a copy of a run directory."""
    run = at.here.import_run(at.file(job.directory), watch=at.watch)
    at.discard(job.directory)
    return run


def take_in_policy(at: Workplace, job: jobs.ImportPolicyJob) -> models.ModelVersion:
    """Take in a policy that another library, or another home, has saved."""
    request = PolicyImportRequest(
        job.env,
        job.algorithm,
        job.name,
        None if job.normalizer is None else at.file(job.normalizer),
        job.overrides,
    )
    model = import_policy(at.here, at.file(job.file), request, watch=at.watch)
    at.discard(job.file, job.normalizer)
    return model


def certify(at: Workplace, job: jobs.VerifyResumeJob) -> exactness.Certificate:
    """Certify that a spec resumes bit for bit."""
    spec = spec_of(job)
    if spec.seeds is not None:
        raise BadInput("verify-resume takes one seed", path="seeds", hint="Set env.seed instead.")
    if consent.is_needed(spec) and not job.consent:
        raise BadInput("nobody has agreed to the program of this spec", path="runner.command")

    def watch(run: runs.Run, _events: Sequence[Event]) -> None:
        at.watch(f"{run.id} {run.state}", run.env_steps / run.total_timesteps)

    chance = random.Random(job.moments)
    trial = Trial(at.here, at.launched(spec), job.kills, chance, watch, settings=job.settings)
    return trial.certify()


WAYS: dict[str, Callable[..., Record]] = {
    jobs.EvaluateJob.kind: evaluate,
    jobs.ExportJob.kind: export_policy,
    jobs.ValidateJob.kind: validate,
    jobs.PromoteJob.kind: promote,
    jobs.ProfileJob.kind: profile_spec,
    jobs.InferJob.kind: infer_actions,
    jobs.FilmJob.kind: film,
    jobs.DoctorJob.kind: doctor,
    jobs.ImportRunJob.kind: take_in_run,
    jobs.ImportPolicyJob.kind: take_in_policy,
    jobs.VerifyResumeJob.kind: certify,
}
"""How each kind is carried out."""
