"""Ends of trainings, read from the newest checkpoint as the training that goes on from there does:
those that a callback or the gate's patience would bring again at once, and those that observers
heard of, and that a larger budget would not have brought.
"""

import json
from dataclasses import dataclass
from typing import Any

from rl_orch.errors import BadInput, Conflict, RlctlError
from rl_orch.gate import judge, rules_of_reports
from rl_orch.io.checkpoints import catalog
from rl_orch.io.files import regular
from rl_orch.io.run.directory import RunDir
from rl_orch.records import EvalReport, Run
from rl_orch.spec.model import Spec


@dataclass(frozen=True, slots=True)
class EarlyEnd:
    """The reason why a training would end at once, and the error that says so."""

    reason: str
    refusal: RlctlError


def early_end(run: Run, spec: Spec) -> EarlyEnd | None:
    """The end that the run would meet at once by that spec, whatever its budget; None if none."""
    loop, report = _newest(run, spec)
    if report is not None:
        failed = int(loop.get("failed_evaluations", 0)) + 1
        if (end := _by_patience(run, spec, EvalReport.model_validate(report), failed)) is not None:
            return end
    called_off = loop.get("called_off")
    return None if called_off is None else _by_callback(run, str(called_off))


def unscheduled(run: Run, spec: Spec) -> list[str] | None:
    """The observers that heard of an evaluation that only the end of the run brought, which may be
    none; None if there was no such evaluation."""
    loop, report = _newest(run, spec)
    heard = loop.get("unscheduled")
    return None if report is None or heard is None else [*map(str, heard)]


def _newest(run: Run, spec: Spec) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """What training remembers in the newest checkpoint, and its evaluation, if any."""
    newest = catalog.newest(RunDir.of(run).checkpoints).path
    if newest is None or not spec.runner.traits.trains_here:
        return {}, None
    state = json.loads(regular.read_text(newest / catalog.STATE))
    return state.get("trainer_state", {}), state.get("meta", {}).get("report")


def _by_patience(run: Run, spec: Spec, report: EvalReport, failed: int) -> EarlyEnd | None:
    patience = spec.gates.patience
    if patience is None or failed < patience:
        return None
    verdict = judge(report, None, rules_of_reports(spec.gates), env_steps=run.env_steps)
    if verdict is None or verdict.passed:
        return None
    why = next(check.sentence for check in verdict.checks if not check.passed)
    reason = f"gates.patience is {patience}, and {failed} evaluations in a row failed: {why}"
    refusal = BadInput(
        f"run {run.id} ended because {reason}; it would do so at once again",
        path="gates.patience",
        hint="Add gates.patience=null, or a larger one; --approximate counts them anew.",
    )
    return EarlyEnd(reason, refusal)


def _by_callback(run: Run, called_off: str) -> EarlyEnd:
    refusal = Conflict(
        f"run {run.id} ended because {called_off}; it would do so at once again",
        hint="--approximate goes on all the same, and the run says so; in a run of its own: "
        f"rlctl launch --from {run.id} --total-timesteps STEPS",
    )
    return EarlyEnd(called_off, refusal)
