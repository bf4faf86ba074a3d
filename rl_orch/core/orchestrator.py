"""The verbs: launch, resume, ls, show, stop, rm. One class that every surface calls.

It knows the store and a runner, and nothing of terminals, HTTP or torch.
"""

import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rl_orch.core import imports
from rl_orch.core.foreground import (
    TICK_S,
    Pumps,
    StopRequests,
    Watch,
    carry_out,
    never,
    nobody,
    room,
)
from rl_orch.core.groups import fold
from rl_orch.core.loop import STOP_GRACE_S, Supervisor
from rl_orch.core.ports import Runner
from rl_orch.core.registry import Registry
from rl_orch.core.resumption import (
    RESUMABLE,
    changed_spec,
    claim,
    refuse_another_experiment,
    refuse_changes,
    refuse_final,
    refuse_gone,
    requeued,
)
from rl_orch.core.store import Page, Store
from rl_orch.errors import Conflict, NotFound, RlctlError
from rl_orch.io import history, manifest, processes, shelf
from rl_orch.io.rundir import RunDir
from rl_orch.records import (
    Checkpoint,
    EvalReport,
    Event,
    Group,
    Run,
    RunView,
    State,
    Verdict,
)
from rl_orch.spec.checks import refuse_pending
from rl_orch.spec.model import Spec

DATABASE = "rlctl.db"
ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
"""Letters and digits that are not mistaken for each other."""

ACTIVE = (State.QUEUED, State.STARTING, State.RUNNING, State.EVALUATING)
__all__ = ["GroupResult", "Orchestrator", "RunResult", "RunView", "Watch"]

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunResult:
    """What became of a run: the run, the report that was judged, and the verdict on it."""

    run: Run
    report: EvalReport | None
    verdict: Verdict | None

    @property
    def succeeded(self) -> bool:
        """Whether the run ended well: it was trained, and passed every gate that was set."""
        return self.run.state is State.SUCCEEDED


@dataclass(frozen=True, slots=True)
class GroupResult:
    """What became of a group: the group, and each of its runs in the order of the seeds."""

    group: Group
    results: tuple[RunResult, ...]


class Orchestrator:
    """Everything that can be done with the runs of one home."""

    def __init__(self, home: Path, runner: Runner, *, database: Path | None = None) -> None:
        self.home = home.absolute()
        self.database = (database or self.home / DATABASE).absolute()
        self._runner = runner
        self._opened: Store | None = None
        self._orphans: dict[str, Supervisor] = {}

    @property
    def store(self) -> Store:
        """The database, made when it is first written to."""
        if self._opened is None:
            self._opened = Store(self.database)
            if self.database.is_relative_to(self.home):
                self._opened.relocate(self.home)
        return self._opened

    @property
    def registry(self) -> Registry:
        """The models in the same database."""
        return Registry(self.store)

    def check(self, spec: Spec) -> None:
        """Raise if the spec could not be carried out here."""
        self._runner.check(spec)

    def create(self, spec: Spec, *, lease: str | None = None) -> Run:
        """A queued run with its directory, durable before this returns."""
        self._refuse(spec)
        return self._created(spec, self._new_id(spec.label), lease)

    def launch(
        self, spec: Spec, *, watch: Watch = nobody, stop_requests: StopRequests = never
    ) -> RunResult:
        """Carry a spec out in the foreground, from queued to its end."""
        lease = _lease()
        supervisor = self._supervisor(self.create(spec, lease=lease), lease)
        return self._carried_out([supervisor], watch, stop_requests)[0]

    def launch_group(
        self, spec: Spec, *, watch: Watch = nobody, stop_requests: StopRequests = never
    ) -> GroupResult:
        """Carry a spec out once for each of its seeds, as many at once as the cores allow."""
        self._refuse(spec)
        group, lease = self._new_id(spec.label), _lease()
        runs = [
            self._created(member, f"{group}-s{member.env.seed}", lease, group=group)
            for member in spec.members
        ]
        supervisors = [self._supervisor(run, lease) for run in runs]
        return _group_result(self._carried_out(supervisors, watch, stop_requests))

    def resume(
        self,
        reference: str,
        *,
        overrides: Sequence[str] = (),
        watch: Watch = nobody,
        stop_requests: StopRequests = never,
    ) -> RunResult:
        """Go on with a run where its newest intact checkpoint is, in the foreground, to its end.

        A run whose supervisor died while its root lives on is taken over as it is.
        """
        run = self.get(reference)
        refuse_final(run)
        refuse_another_experiment(run, overrides)
        supervisor = self._resumed(run, overrides)
        return self._carried_out([supervisor], watch, stop_requests)[0]

    def resume_group(
        self,
        reference: str,
        *,
        overrides: Sequence[str] = (),
        watch: Watch = nobody,
        stop_requests: StopRequests = never,
    ) -> GroupResult:
        """Go on with every run of a group that has not come to a final end."""
        found = self.group(reference)
        if found is None:
            raise NotFound(f"no group {reference!r}", hint="`rlctl ls` lists them.")
        runs = [self.store.get(run_id) for run_id in found.runs]
        open_runs = [run for run in runs if run.active or run.state in RESUMABLE]
        if not open_runs:
            raise Conflict(f"every run of group {found.id} has come to a final end")
        if len(open_runs) < len(runs):
            for run in open_runs:
                refuse_another_experiment(run, overrides)
        for run in open_runs:
            changed_spec(run, overrides)
        supervisors = self._resumed_where_possible(open_runs, overrides)
        self._carried_out(supervisors, watch, stop_requests)
        return _group_result([self._result(run.id) for run in self.store.group_runs(found.id)])

    def group(self, reference: str) -> Group | None:
        """The group meant by an id, a beginning of one or a name, as it really is, if one is."""
        if not self.database.exists():
            return None
        found = self.store.find_group(reference)
        if found is None:
            return None
        return fold([self._refreshed(run) for run in self.store.group_runs(found)])

    def import_run(self, path: Path, *, move: bool = False) -> Run:
        """Take in a run directory from another home: a copy of it, or the directory itself.

        What was trained elsewhere is evaluated here, by `resume`, before any gate believes it.
        """
        source = RunDir(path.resolve())
        run_id = imports.identify(source)
        if run_id in self.store and Path(self.store.get(run_id).path).is_dir():
            raise Conflict(
                f"run {run_id} is in {str(self.home)!r} already", hint=f"rlctl show {run_id}"
            )
        directory, lease = RunDir(self.home / "runs" / run_id), _lease()
        imports.bring(source, directory, move=move)
        imports.forget_processes(directory)
        run = imports.run_in(directory)
        if run_id in self.store:  # It was moved, and is no longer where it was known to be.
            self.registry.forget_run(run_id)
            self.store.remove(run_id)
        self.store.add(run, lease=lease)
        try:
            for attempt in imports.attempts_in(directory):
                self.store.put_attempt(attempt, lease=lease)
            imports.register_models(self.registry, run, lease=lease)
            run = self._looked_at(run, lease)
        finally:
            self.store.release(run_id, lease=lease)
        if move and source.path.exists() and not source.path.samefile(directory.path):
            shutil.rmtree(source.path)
        return run

    def ls(
        self, *, limit: int = 50, after: str | None = None, states: Sequence[State] = ()
    ) -> Page:
        """Runs, newest first, each as it really is at this moment."""
        if not self.database.exists():
            return Page((), None)
        for run in self.store.page(limit=1000, states=ACTIVE).runs:
            try:
                self._refreshed(run)
            except RlctlError as error:
                LOG.warning("run not looked at: %s: %s", run.id, error)
        return self.store.page(limit=limit, after=after, states=states)

    def get(self, reference: str) -> Run:
        """The run meant by an id, a beginning of one, a name, or `last`, as it really is."""
        if not self.database.exists():
            raise NotFound(
                f"no run {reference!r}: there are no runs in {str(self.home)!r} yet",
                hint="`rlctl launch --env CartPole-v1` makes one; RLCTL_HOME says where to look.",
            )
        return self._refreshed(self.store.find(reference))

    def show(self, reference: str) -> RunView:
        """A run with its attempts, checkpoints, models and final report."""
        run = self.get(reference)
        refuse_gone(run)
        directory = RunDir(Path(run.path))
        return RunView(
            run=run,
            spec=directory.spec(),
            attempts=tuple(self.store.attempts(run.id)),
            checkpoints=tuple(map(_checkpoint, shelf.listing(directory.checkpoints))),
            models=tuple(self.registry.of_run(run.id)),
            report=directory.read_report("final"),
            exactness=history.exactness(directory.events),
            passed_over=history.passed_over(directory.events),
            watched=run.active and self._is_watched(run.id),
            certificate=directory.read_certificate(),
            changes=tuple(directory.changes()),
        )

    def stop(self, reference: str, *, force: bool = False) -> Run:
        """End a run and return it ended: kindly at first, by force after the grace, or at once."""
        run = self.get(reference)
        directory = RunDir(Path(run.path))
        if not run.active and directory.lock_holder() is None:
            raise Conflict(f"run {run.id} is {run.state} already; there is nothing to stop")
        if run.active:
            directory.request_stop()
        self._signal(run, force=force)
        asked_at = time.monotonic()
        while (run := self.get(run.id)).active or directory.lock_holder() is not None:
            waited_s = time.monotonic() - asked_at
            if waited_s > STOP_GRACE_S and not force:
                force = True
                self._signal(run, force=True)
            elif waited_s > 2 * STOP_GRACE_S:
                raise RlctlError(f"run {run.id} is still {run.state} after {waited_s:.0f} s")
            time.sleep(TICK_S)
        return run

    def kill(self, run_id: str) -> None:
        """End a run's root at once and tell nobody, as a power cut would."""
        self._signal(self.store.get(run_id), force=True)

    def remove(self, reference: str) -> Run:
        """Delete a run that has ended: its directory, its row and its models."""
        run = self.get(reference)
        if run.active:
            raise Conflict(
                f"run {run.id} is {run.state}; a run must end before it can be removed",
                hint=f"rlctl stop {run.id}",
            )
        directory = RunDir(Path(run.path))
        if directory.spec_file.is_file():
            doomed = directory.path.with_name(f".removing-{run.id}")
            with directory.locked():
                directory.path.rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)
        self.registry.forget_run(run.id)
        self.store.remove(run.id)
        return run

    def _signal(self, run: Run, *, force: bool) -> None:
        attempts = self.store.attempts(run.id)
        noted = attempts[-1].handle if attempts else None
        handle = self._runner.adopt(Path(run.path)) or noted
        if handle is not None:
            self._runner.stop(handle, force=force)

    def _refreshed(self, run: Run) -> Run:
        """The run as it really is: a run whose supervisor died is looked at by whoever asks."""
        if not run.active:
            return run
        held_by = self.store.lease_of(run.id)
        if held_by is None:
            waits = run.state is State.QUEUED and not RunDir(Path(run.path)).stop_requested
        else:
            waits = processes.alive(held_by.rpartition("/")[0])
        lease = _lease()
        try:
            if waits or not self.store.take_lease(run.id, held_by=held_by, lease=lease):
                return self.store.get(run.id)
        except RlctlError as error:  # On a full disk, what was known can still be read.
            LOG.warning("run not looked at: %s: %s", run.id, error)
            return run
        try:
            return self._looked_at(self.store.get(run.id), lease)
        finally:
            self.store.release(run.id, lease=lease)

    def _is_watched(self, run_id: str) -> bool:
        held_by = self.store.lease_of(run_id)
        return held_by is not None and processes.alive(held_by.rpartition("/")[0])

    def _looked_at(self, run: Run, lease: str) -> Run:
        """A run after one tick that starts nothing. What is known of it is kept for the next."""
        if not run.active:
            return run
        known = self._orphans.get(run.id)
        if known is None or known.run.attempt != run.attempt:
            known = Supervisor(self.store, self.registry, self._runner, run, lease, may_start=False)
        self._orphans[run.id] = known
        known.run, known.lease = run, lease
        known.tick()
        return known.run

    def _refuse(self, spec: Spec) -> None:
        refuse_pending(spec)
        self.check(spec)

    def _created(self, spec: Spec, run_id: str, lease: str | None, group: str | None = None) -> Run:
        now = time.time()
        directory = RunDir(self.home / "runs" / run_id)
        run = Run(
            id=run_id,
            name=spec.label,
            group=group,
            env=spec.env.id,
            algo=spec.agent.algorithm,
            config_hash=spec.config_hash,
            path=str(directory.path),
            seed=spec.env.seed,
            total_timesteps=spec.train.total_timesteps,
            created_at=now,
            updated_at=now,
        )
        facts = manifest.describe(spec, run_id=run_id, group=group, created_at=now)
        try:
            directory.create(spec, facts)
        except (OSError, RlctlError) as error:
            shutil.rmtree(directory.path, ignore_errors=True)
            why = error.strerror if isinstance(error, OSError) else error
            raise RlctlError(
                f"run directory {str(directory.path)!r} cannot be made: {why}",
                hint="Set RLCTL_HOME to a folder that can be written to.",
            ) from None
        self.store.add(run, lease=lease)
        return run

    def _resumed(self, run: Run, overrides: Sequence[str]) -> Supervisor:
        """The run's supervisor from here on: its lease is ours, and it is queued or lives."""
        refuse_final(run)
        lease = _lease()
        claim(self.store, run, lease)
        try:
            run = self.store.get(run.id)
            refuse_final(run)
            if run.active:
                refuse_changes(run, overrides)
            else:
                run = requeued(run, overrides, self.check)
                self.store.save(run, lease=lease)
        except BaseException:
            self.store.release(run.id, lease=lease)
            raise
        return self._supervisor(run, lease)

    def _resumed_where_possible(
        self, runs: Sequence[Run], overrides: Sequence[str]
    ) -> list[Supervisor]:
        """The supervisors of those runs that can be gone on with, at least of one."""
        supervisors, refusals = [], []
        for run in runs:
            try:
                supervisors.append(self._resumed(run, overrides))
            except RlctlError as error:
                LOG.warning("not resumed: %s: %s", run.id, error)
                refusals.append(error)
        if not supervisors:
            raise refusals[0]
        return supervisors

    def _supervisor(self, run: Run, lease: str) -> Supervisor:
        return Supervisor(self.store, self.registry, self._runner, run, lease)

    def _carried_out(
        self, supervisors: Sequence[Supervisor], watch: Watch, stop_requests: StopRequests
    ) -> list[RunResult]:
        """What became of each run."""
        threads = supervisors[0].directory.spec().resources.threads
        pumps = Pumps()

        def watched(run: Run, events: Sequence[Event]) -> None:
            pumps.follow(run, events)
            watch(run, events)

        try:
            carry_out(supervisors, slots=room(threads), watch=watched, stop_requests=stop_requests)
        finally:
            pumps.close()
            self._release(supervisors)
        return [_result(supervisor) for supervisor in supervisors]

    def _release(self, supervisors: Sequence[Supervisor]) -> None:
        for supervisor in supervisors:
            self.store.release(supervisor.run.id, lease=supervisor.lease)

    def _result(self, run_id: str) -> RunResult:
        """What became of a run that ended some time ago."""
        run = self.store.get(run_id)
        models = [m for m in self.registry.of_run(run_id) if m.id == run.model_id]
        report = RunDir(Path(run.path)).read_report("final")
        return RunResult(run, report, models[0].verdict if models else None)

    def _new_id(self, label: str) -> str:
        slug = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:40] or "run"
        return f"{slug}-{''.join(secrets.choice(ALPHABET) for _ in range(6))}"


def _result(supervisor: Supervisor) -> RunResult:
    report = supervisor.directory.read_report("final")
    return RunResult(supervisor.run, report, supervisor.verdict)


def _group_result(results: Sequence[RunResult]) -> GroupResult:
    return GroupResult(fold([result.run for result in results]), tuple(results))


def _checkpoint(entry: shelf.Entry) -> Checkpoint:
    return Checkpoint(
        name=entry.path.name,
        step=entry.step,
        path=str(entry.path),
        intact=entry.intact,
        problem=entry.problem,
    )


def _lease() -> str:
    """A token that also says which process holds it, so that others can see whether it lives."""
    return f"{processes.identity(os.getpid())}/{secrets.token_hex(8)}"
