"""The verbs: launch, ls, show, stop, rm. One class that every surface calls.

It knows the store and a runner, and nothing of terminals, HTTP or torch.
"""

import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rl_orch import plugins
from rl_orch.core.loop import STOP_GRACE_S, Supervisor
from rl_orch.core.ports import Runner
from rl_orch.core.registry import Registry
from rl_orch.core.store import Page, Store
from rl_orch.errors import Conflict, LeaseLost, NotFound, RlctlError
from rl_orch.io import manifest, processes, shelf
from rl_orch.io.rundir import RunDir
from rl_orch.io.telemetry import Delivered, Pump
from rl_orch.records import Attempt, EvalReport, Event, ModelVersion, Run, State, Verdict
from rl_orch.spec.checks import refuse_pending
from rl_orch.spec.model import Spec

TICK_S = 0.1
DATABASE = "rlctl.db"
ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
"""Letters and digits that are not mistaken for each other."""

Watch = Callable[[Run, Sequence[Event]], None]
"""Called after each tick with the run as it is and the events that are new."""

ACTIVE = (State.QUEUED, State.STARTING, State.RUNNING, State.EVALUATING)
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
class RunView:
    """A run with everything that belongs to it."""

    run: Run
    spec: Spec
    attempts: tuple[Attempt, ...]
    checkpoints: tuple[shelf.Entry, ...]
    models: tuple[ModelVersion, ...]
    report: EvalReport | None


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
        refuse_pending(spec)
        self.check(spec)
        now = time.time()
        run_id = self._new_id(spec.label)
        directory = RunDir(self.home / "runs" / run_id)
        run = Run(
            id=run_id,
            name=spec.label,
            env=spec.env.id,
            algo=spec.agent.algorithm,
            config_hash=spec.config_hash,
            path=str(directory.path),
            seed=spec.env.seed,
            total_timesteps=spec.train.total_timesteps,
            created_at=now,
            updated_at=now,
        )
        facts = manifest.describe(spec, run_id=run_id, group=None, created_at=now)
        try:
            directory.create(spec, facts)
        except OSError as error:
            shutil.rmtree(directory.path, ignore_errors=True)
            raise RlctlError(
                f"run directory {str(directory.path)!r} cannot be made: {error.strerror}",
                hint="Set RLCTL_HOME to a folder that can be written to.",
            ) from None
        self.store.add(run, lease=lease)
        return run

    def launch(
        self,
        spec: Spec,
        *,
        watch: Watch | None = None,
        stop_requests: Callable[[], int] = lambda: 0,
    ) -> RunResult:
        """Carry a spec out in the foreground, from queued to its end.

        `stop_requests` counts how often the user has asked to stop: once ends the run after a
        last checkpoint, twice at once.
        """
        lease = _lease()
        run = self.create(spec, lease=lease)
        supervisor = Supervisor(self.store, self.registry, self._runner, run, lease)
        pumps = self._pumps(run)
        try:
            _carry_out(supervisor, watch or _nobody, stop_requests)
        except LeaseLost:
            raise
        except BaseException:
            _wind_down(supervisor)
            raise
        finally:
            for pump in pumps:
                _warn_of_loss(pump.stop())
            self.store.release(run.id, lease=lease)
        report = supervisor.directory.read_report("final")
        return RunResult(supervisor.run, report, supervisor.verdict)

    def _pumps(self, run: Run) -> list[Pump]:
        """Trackers follow the run; one that cannot even be opened is done without."""
        directory = RunDir(Path(run.path))
        try:
            tensorboard = plugins.load("trackers", "tensorboard")(directory.tensorboard)
        except Exception as error:
            LOG.warning("tracker not opened: tensorboard: %s", error)
            return []
        return [Pump(directory.path, "tensorboard", tensorboard)]

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
        directory = RunDir(Path(run.path))
        return RunView(
            run=run,
            spec=directory.spec(),
            attempts=tuple(self.store.attempts(run.id)),
            checkpoints=tuple(shelf.listing(directory.checkpoints)),
            models=tuple(self.registry.of_run(run.id)),
            report=directory.read_report("final"),
        )

    def stop(self, reference: str, *, force: bool = False) -> Run:
        """End a run and return it ended: kindly at first, by force after the grace, or at once."""
        run = self.get(reference)
        if not run.active:
            raise Conflict(f"run {run.id} is {run.state} already; there is nothing to stop")
        RunDir(Path(run.path)).request_stop()
        self._signal(run, force=force)
        asked_at = time.monotonic()
        while (run := self.get(run.id)).active:
            waited_s = time.monotonic() - asked_at
            if waited_s > STOP_GRACE_S and not force:
                force = True
                self._signal(run, force=True)
            elif waited_s > 2 * STOP_GRACE_S:
                raise RlctlError(f"run {run.id} is still {run.state} after {waited_s:.0f} s")
            time.sleep(TICK_S)
        return run

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
        handle = noted or self._runner.adopt(Path(run.path))
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
        if waits or not self.store.take_lease(run.id, held_by=held_by, lease=lease):
            return self.store.get(run.id)
        try:
            return self._looked_at(self.store.get(run.id), lease)
        finally:
            self.store.release(run.id, lease=lease)

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

    def _new_id(self, label: str) -> str:
        slug = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:40] or "run"
        return f"{slug}-{''.join(secrets.choice(ALPHABET) for _ in range(6))}"


def _carry_out(supervisor: Supervisor, watch: Watch, stop_requests: Callable[[], int]) -> None:
    """Tick until the run has ended."""
    heeded = 0
    while supervisor.run.active:
        if stop_requests() > heeded:
            heeded += 1
            supervisor.ask_to_stop()
        events = supervisor.tick()
        watch(supervisor.run, events)
        if supervisor.run.active:
            time.sleep(TICK_S)


def _wind_down(supervisor: Supervisor) -> None:
    """End a run whose supervision is interrupted, so that nothing trains on unwatched.

    An interrupt in the meantime ends it at once.
    """
    try:
        supervisor.ask_to_stop()
        _carry_out(supervisor, _nobody, lambda: 0)
    except KeyboardInterrupt:
        supervisor.ask_to_stop()
        _carry_out(supervisor, _nobody, lambda: 0)
    except RlctlError as error:
        LOG.warning("run not ended: %s: %s", supervisor.run.id, error)


def _warn_of_loss(delivered: Delivered) -> None:
    if delivered.dropped or delivered.error:
        LOG.warning("tracker lost %d events: %s", delivered.dropped, delivered.error)


def _lease() -> str:
    """A token that also says which process holds it, so that others can see whether it lives."""
    return f"{processes.identity(os.getpid())}/{secrets.token_hex(8)}"


def _nobody(_run: Run, _events: Sequence[Event]) -> None:
    """Watches nothing."""
