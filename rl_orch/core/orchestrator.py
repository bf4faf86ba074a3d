"""Operations on the runs of one home.

They are the shared verbs, and those that carry runs out in this very process. It knows the store
and runners, and nothing of terminals, HTTP or torch.
"""

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from rl_orch import plugins
from rl_orch.core.runs import run_import
from rl_orch.core.runs.creation import Draft
from rl_orch.core.runs.foreground import (
    RunObserver,
    StopRequests,
    carry_out,
    never,
    no_observer,
    room,
)
from rl_orch.core.runs.groups import fold
from rl_orch.core.runs.resumption import RunResumption, refuse_another_experiment, refuse_final
from rl_orch.core.runs.supervisor import Supervisor
from rl_orch.core.runs.tracking import Pumps
from rl_orch.core.verbs import Verbs, ready
from rl_orch.errors import Conflict, NotFound, RlctlError
from rl_orch.io.processes import pids
from rl_orch.io.processes.task_worker import ProgressCallback, unwatched
from rl_orch.io.run.directory import RunDir
from rl_orch.records import EvalReport, Event, Group, Run, RunView, State, Verdict
from rl_orch.spec.checks import refuse_pending
from rl_orch.spec.model import Spec

if TYPE_CHECKING:
    from rl_orch.records.jobs import JobAnswer, JobRequest

__all__ = ["GroupResult", "Orchestrator", "RunObserver", "RunResult", "RunView"]

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunResult:
    """Outcome of a run: the run, the report that was judged, and the verdict on it."""

    run: Run
    report: EvalReport | None
    verdict: Verdict | None

    @property
    def succeeded(self) -> bool:
        """Whether the run ended well: it was trained, and passed every gate that was set."""
        return self.run.state is State.SUCCEEDED


@dataclass(frozen=True, slots=True)
class GroupResult:
    """Outcome of a group: the group, and each of its runs in the order of the seeds."""

    group: Group
    results: tuple[RunResult, ...]


class Orchestrator(Verbs):
    """The shared verbs, and what this process does itself: launch, resume, import, kill.

    `serves` tells it from the client of a service.
    """

    serves: ClassVar[Literal[False]] = False

    def create(self, spec: Spec, *, lease: str | None = None) -> Run:
        """A queued run with its directory, durable before this returns."""
        (run_id,) = self._drafted(spec, lease).ids
        return self.store.get(run_id)

    def launch(
        self,
        spec: Spec,
        *,
        watch: RunObserver = no_observer,
        stop_requests: StopRequests = never,
        changes: Sequence[Mapping[str, Any]] = (),
    ) -> RunResult:
        """Carry a spec out in the foreground, from queued to its end, with `changes` to come."""
        (result,) = self._carried_out(self._supervisors(spec, changes), watch, stop_requests)
        return result

    def launch_group(
        self, spec: Spec, *, watch: RunObserver = no_observer, stop_requests: StopRequests = never
    ) -> GroupResult:
        """Carry a spec out once for each of its seeds.

        As many run at once as the cores allow.
        """
        return _group_result(self._carried_out(self._supervisors(spec), watch, stop_requests))

    def resume(
        self,
        reference: str,
        *,
        overrides: Sequence[str] = (),
        approximate: bool = False,
        watch: RunObserver = no_observer,
        stop_requests: StopRequests = never,
    ) -> RunResult:
        """Go on with a run from its newest intact checkpoint, in the foreground.

        It is carried out to its end. A run whose supervisor died while its process lives is taken
        over as it is.
        """
        run = self.get(self.resumed_id(reference, overrides))
        refuse_final(run, overrides)
        refuse_another_experiment(run, overrides)
        supervisor = self._resumed(self.resumption(overrides, approximate=approximate), run)
        return self._carried_out([supervisor], watch, stop_requests)[0]

    def resume_group(
        self,
        reference: str,
        *,
        overrides: Sequence[str] = (),
        approximate: bool = False,
        watch: RunObserver = no_observer,
        stop_requests: StopRequests = never,
    ) -> GroupResult:
        """Go on with every run of a group that has no final end yet, or with a larger budget."""
        group = self.group(reference)
        if group is None:
            raise NotFound(f"no group {reference!r}", hint="`rlctl ls` lists them.")
        resumption = self.resumption(overrides, approximate=approximate)
        supervisors, refusals = resumption.of_group(group, partial(self._resumed, resumption))
        for refusal in refusals:
            LOG.warning("%s", refusal)
        self._carried_out(supervisors, watch, stop_requests)
        return _group_result([self._result(run.id) for run in self.store.group_runs(group.id)])

    def carry_out(
        self, request: "JobRequest[JobAnswer]", watch: ProgressCallback = unwatched
    ) -> "JobAnswer":
        """Evaluate, export, profile, import and more: what a request asks for, done here."""
        kinds: Any = plugins.part("job kinds")
        answer: JobAnswer = kinds.carry_out(kinds.Workplace(self, watch), request)
        return answer

    def import_run(
        self, path: Path, *, move: bool = False, watch: ProgressCallback = unwatched
    ) -> Run:
        """Take in a run directory from another home: a copy of it, or the directory itself.

        What was trained elsewhere is evaluated here, by `resume`, before any gate believes it. If
        this does not come to its end, nothing stays.
        """
        self.refuse_unwritable()
        source = RunDir(path.resolve())
        run_id = run_import.identify(source)
        self._refuse_present(run_id)
        if run_id in self.store:
            self.registry.refuse_named(run_id)
        target = RunDir(self.home / "runs" / run_id)
        with run_import.bringing(source, target, move=move, watch=watch) as coming:
            watch("verifying", 0.0)
            models = run_import.models_in(RunDir(coming.place))
            self._refuse_present(run_id, besides=coming.place)
            if run_id in self.store:  # It was moved, and is no longer where it was known to be.
                self.registry.forget_run(run_id)
                self.store.remove(run_id)
            run = self._taken_in(coming, models)
        if move and coming.is_copy:
            shutil.rmtree(source.path)
        return run

    def _refuse_present(self, run_id: str, *, besides: Path | None = None) -> None:
        if run_id not in self.store:
            return
        path = Path(self.store.get(run_id).path)
        if path != besides and path.is_dir():
            raise Conflict(
                f"run {run_id} is in {str(self.home)!r} already", hint=f"rlctl show {run_id}"
            )

    def _taken_in(self, coming: run_import.IncomingRun, models: Mapping[str, EvalReport]) -> Run:
        """Record an incoming run with its attempts and models, and return it."""
        run, lease = coming.run, pids.lease()
        self.store.add(run, lease=lease, ready=coming.publish)
        with self.arriving(run.id, lease):
            for attempt in run_import.attempts_in(coming.target):
                self.store.put_attempt(attempt, lease=lease)
            run_import.register_models(self.registry, run, models, lease=lease)
            return self.orphans.looked_at(run, lease)

    @contextmanager
    def arriving(
        self, run_id: str, lease: str, undo: Callable[[], None] = lambda: None
    ) -> Iterator[None]:
        """A run that was just recorded, while what belongs to it is.

        Whatever is raised meanwhile, nothing stays of it here; `undo` is for its files. A lease
        that cannot be released then takes nothing back: it ends with this process.
        """
        try:
            yield
        except BaseException:
            self.orphans.forget(run_id)
            with suppress(RlctlError):
                self.registry.forget_run(run_id)
                self.store.remove(run_id)
            undo()
            raise
        finally:
            self.store.release(run_id, lease=lease)

    def kill(self, run_id: str) -> None:
        """End a run process at once and tell nobody, as a power cut would."""
        self._signal(self.store.get(run_id), force=True)

    def _supervisors(
        self, spec: Spec, changes: Sequence[Mapping[str, Any]] = ()
    ) -> list[Supervisor]:
        lease = pids.lease()
        drafted = self._drafted(spec, lease, changes)
        return [
            self.supervisor(self.store.get(run.id), lease, carried_spec=member)
            for run, member in zip(drafted.runs, drafted.specs, strict=True)
        ]

    def _drafted(
        self, spec: Spec, lease: str | None, changes: Sequence[Mapping[str, Any]] = ()
    ) -> Draft:
        """The runs that a spec makes; what is worth a warning is logged."""
        refuse_pending(spec)
        spec, warnings = ready(self.home, spec)
        for finding in warnings:
            LOG.warning("%s", finding)
        warn = partial(LOG.warning, "%s")
        return self._created(spec, lease=lease, changes=changes, warn=warn)[1]

    def _resumed(self, resumption: RunResumption, run: Run) -> Supervisor:
        """The run's supervisor from here on: its lease is ours, and it is queued or lives."""
        lease = pids.lease()
        run, spec = resumption.reopened(run, lease, partial(self.store.save, lease=lease))
        return self.supervisor(run, lease, carried_spec=spec)

    def _carried_out(
        self, supervisors: Sequence[Supervisor], watch: RunObserver, stop_requests: StopRequests
    ) -> list[RunResult]:
        """Results of the runs, in the order of their supervisors."""
        pumps, specs = Pumps(), {each.run.id: each.carried_spec for each in supervisors}

        def watched(run: Run, events: Sequence[Event]) -> None:
            pumps.follow(run, events, specs[run.id])
            watch(run, events)

        try:
            slots = room(supervisors[0].spec.resources.threads)
            carry_out(supervisors, slots=slots, watch=watched, stop_requests=stop_requests)
        finally:
            pumps.close()
            for supervisor in supervisors:
                self.store.release(supervisor.run.id, lease=supervisor.lease)
                pids.let_go(supervisor.lease)
        return [_result(supervisor) for supervisor in supervisors]

    def _result(self, run_id: str) -> RunResult:
        """Outcome of a run that ended some time ago."""
        run = self.store.get(run_id)
        models = [m for m in self.registry.of_run(run_id) if m.id == run.model_id]
        report = RunDir.of(run).read_report("final")
        return RunResult(run, report, models[0].verdict if models else None)


def _result(supervisor: Supervisor) -> RunResult:
    report = supervisor.directory.read_report("final")
    return RunResult(supervisor.run, report, supervisor.verdict)


def _group_result(results: Sequence[RunResult]) -> GroupResult:
    return GroupResult(fold([result.run for result in results]), tuple(results))
