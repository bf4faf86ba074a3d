"""`python -m rl_orch.worker.tasks.gather < question.json`: what a gate reads of a checkpoint
besides a report.

The process that makes the final evaluation of a run gathers the same by the same functions. What
cannot be gathered is a sentence in its place, and never the end of an evaluation.
"""

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rl_orch.errors import BadInput, Conflict, RlctlError
from rl_orch.io.checkpoints import external
from rl_orch.io.files import sealed
from rl_orch.io.policies import artefacts, bundles
from rl_orch.io.processes.task_worker import TaskWorker
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.gate_evidence import (
    Baseline,
    Bundled,
    Champion,
    EvidenceRequest,
    GateEvidence,
    GatherTask,
    Latency,
    plays,
)
from rl_orch.records import EvalReport, Parity
from rl_orch.records.tasks import ExportAnswer, ExportTask
from rl_orch.rl.evaluate import Evaluator, lanes_alone, report
from rl_orch.rl.measure.latency import decision_times
from rl_orch.rl.policies.policy import Actor
from rl_orch.spec.model import Spec
from rl_orch.worker.policies.load import on_cpu, opened, refuse_unless_alike, spec_in
from rl_orch.worker.task import Tell, answer_one

PERCENTILE = 99.0


@dataclass(frozen=True, slots=True)
class Judged:
    """A checkpoint of a run, and the report on it that a gate reads; and its policy, where that is
    loaded already, so that no byte of it is read again."""

    directory: RunDir
    path: Path
    spec: Spec
    report: EvalReport
    policy: Actor | None = None

    @contextmanager
    def on_cpu(self) -> Iterator[tuple[Actor, Spec]]:
        """The policy where it computes on the CPU, and its spec there."""
        spec = on_cpu(self.spec)
        if self.policy is not None and spec == self.spec:
            yield self.policy, spec
            return
        with opened(spec, self.directory, self.path) as (policy, _):
            yield policy, spec


def gather(judged: Judged, wanted: EvidenceRequest, tell: Tell) -> GateEvidence:
    """Evidence wanted of a checkpoint, as far as it can be had here; why not, of the rest."""
    baselines = {
        alias: _baseline(judged, alias, champion, tell)
        for alias, champion in wanted.champions.items()
    }
    found: dict[str, Any] = {}
    problems: dict[str, str] = {}
    measures = {"latency": (wanted.latency, latency), "bundle": (wanted.bundle, bundle)}
    for name, (asked, measure) in measures.items():
        if not asked:
            continue
        try:
            found[name] = measure(judged, tell)
        except Exception as error:  # Raised by anyone's code: see `said`.
            problems[name] = said(error)
    digest = sealed.manifest_digest(judged.path)
    return GateEvidence(digest=digest, baselines=baselines, problems=problems, **found)


def latency(judged: Judged, tell: Tell) -> Latency:
    """Latency of the policy's decisions: on the CPU, in one thread, on one observation."""
    tell("timing decisions", 0.0)
    with _one_thread(), judged.on_cpu() as (policy, spec):
        took = decision_times(
            policy, spec, seed=judged.report.seed, deterministic=spec.eval.deterministic
        )
    return Latency(p99_ms=1000.0 * float(np.percentile(took, PERCENTILE)), n=len(took))


def bundle(judged: Judged, tell: Tell) -> Bundled:
    """A bundle of the policy, among the exports of its run.

    It is made by a process of its own: what writes it is large and may fail in ways of its own.
    """
    if external.is_deposit(judged.path):
        raise BadInput(
            "it is the policy of an external program, which cannot be exported",
            hint="Leave gates.max_bundle_mb and gates.export_parity out.",
        )
    tell("making a bundle", 0.0)
    out = judged.directory.path / "exports" / f"{judged.path.name}.judged.bundle"
    task = ExportTask(
        source=str(judged.path),
        module_path=tuple(judged.directory.module_path()),
        format="bundle",
        out=str(out),
        report=judged.report,
    )
    hint = "`rlctl export` tries it again by hand."
    made = TaskWorker(ExportAnswer, ("export",), doing="the export", hint=hint).answer(task, tell)
    near = {form: bundles.GraphParity.model_validate(each) for form, each in made.parity.items()}
    return Bundled(
        path=made.path,
        bytes=made.bytes,
        digest=made.digest or "",
        parity=tuple(_parity(form, each) for form, each in near.items()),
    )


def _parity(form: str, near: bundles.GraphParity) -> Parity:
    return Parity(
        format=form, n=near.rows, largest_difference=near.largest_difference, passed=near.passed
    )


def said(error: Exception) -> str:
    """An error and what to do about it, as a part of a sentence.

    It may be any: environments and programs are the code of others, and the report is written
    after this, so that a mistake of theirs would cost a run its report.
    """
    if not isinstance(error, RlctlError):
        return f"{type(error).__name__}: {error}"
    return str(error) if error.hint is None else f"{error}. {error.hint}"


def _baseline(judged: Judged, alias: str, champion: Champion | None, tell: Tell) -> Baseline:
    """Baseline by a champion on the episodes of the report; not played where it is nobody else."""
    if champion is None or not plays(champion):
        return Baseline(champion=champion)
    tell(f"playing {alias}, model {champion.model_id}", 0.0)
    try:
        return Baseline(champion=champion, report=_played(judged, champion))
    except Exception as error:  # Raised by anyone's code: see `said`.
        problem = f"model {champion.model_id} cannot be played: {said(error)}"
        return Baseline(champion=champion, problem=problem)


def _played(judged: Judged, champion: Champion) -> EvalReport:
    """The report on a champion, over episodes of the very same seeds."""
    directory = RunDir(Path(champion.directory))
    path = directory.policy(champion.checkpoint)
    _refuse_changed(path, champion)
    spec = spec_in(directory, path).changed({"resources.device": judged.spec.resources.device})
    refuse_unless_alike(judged.spec, spec)
    seed, deterministic = judged.report.seed, judged.report.deterministic
    with (
        opened(spec, directory, path) as (policy, step),
        closing(Evaluator(spec, lanes=lanes_alone(spec))) as evaluator,
    ):
        episodes = len(judged.report.returns)
        played = evaluator.play(policy, episodes=episodes, seed=seed, deterministic=deterministic)
    found = report(played, spec, seed=seed, deterministic=deterministic)
    names = {"step": step, "checkpoint": path.name, "model": str(champion.model_id)}
    return found.model_copy(update=names)


def _refuse_changed(path: Path, champion: Champion) -> None:
    """Raise unless the files are those that were registered."""
    found = {sealed.manifest_digest(path), artefacts.checkpoint_digest(path)}
    if champion.digest is not None and not found & {None, champion.digest}:
        raise Conflict(
            f"its files are not those that were registered: {str(path)!r}",
            hint="`rlctl registry verify` says more.",
        )


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def answer(task: GatherTask, tell: Tell) -> GateEvidence:
    """Evidence wanted of the checkpoint that is named."""
    torch.set_num_threads(1)
    directory = RunDir(Path(task.directory))
    path = directory.policy(task.wanted.checkpoint)
    judged = Judged(directory, path, spec_in(directory, path), task.report)
    return gather(judged, task.wanted, tell)


if __name__ == "__main__":
    sys.exit(answer_one(GatherTask, answer))
