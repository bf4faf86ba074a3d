"""Runs whose supervisor has died, as whoever asks for them next finds and stops them.

In a `resident` process a service takes over such runs; elsewhere they are looked at once.
"""

import errno
import logging
from pathlib import Path
from typing import Any, Protocol

from rl_orch.core.registry.registration import FINAL
from rl_orch.core.runs import tracking
from rl_orch.core.runs.supervisor import Supervisor
from rl_orch.core.store.runs import Store
from rl_orch.core.store.services import Services
from rl_orch.errors import RlctlError
from rl_orch.io.processes import pids
from rl_orch.io.run.directory import RunDir
from rl_orch.records import Run, State
from rl_orch.spec.operations import TRACKERS

LOG = logging.getLogger(__name__)
UNNOTED = (errno.ENOENT, errno.ENOSPC, errno.EDQUOT)
"""Why a request may fail to be noted where a run can be stopped nevertheless."""


class OrphanHost(Protocol):
    """The verbs of runs, as far as orphans need them."""

    resident: bool

    @property
    def home(self) -> Path:
        """The folder of the runs."""

    @property
    def store(self) -> Store:
        """The database."""

    @property
    def services(self) -> Services:
        """The services that share it."""

    def supervisor(self, run: Run, lease: str, **how: Any) -> Supervisor:
        """Supervisor of the run, as the holder of a lease."""


class Orphans:
    """The runs of a home that nobody looks after any more."""

    def __init__(self, home: OrphanHost) -> None:
        self._home = home
        self._known: dict[str, Supervisor] = {}
        self._unnoted: set[str] = set()
        self._warned = False

    def look_after(self) -> None:
        """Look at each of them once."""
        if self._home.resident:
            return
        for run, held_by in self._home.store.active():
            if self._is_left_alone(run, held_by):
                continue
            try:
                self.refreshed(run)
            except RlctlError as error:
                LOG.warning("run not looked at: %s: %s", run.id, error)

    def refreshed(self, run: Run) -> Run:
        """The run as it really is: a run whose supervisor died is looked at by whoever asks."""
        if not run.active:
            return run
        store = self._home.store
        held_by = store.lease_of(run.id)
        if self._is_left_alone(run, held_by):
            return store.get(run.id)
        if store.obstacle is not None:
            return self._as_last_known(run, store.obstacle)
        lease = pids.lease()
        try:
            run = self._taken(run, held_by, lease)
        finally:
            pids.let_go(lease)
        if not run.active:
            # Nobody who looks waits for trackers of others, or loads their code: a service does.
            tracking.deliver(run, only=TRACKERS)
        return run

    def looked_at(self, run: Run, lease: str) -> Run:
        """A run after one tick that starts nothing. What is known of it is kept for the next."""
        if not run.active:
            return run
        supervisor = self._known.get(run.id)
        if supervisor is None or supervisor.run.attempt != run.attempt:
            supervisor = self._home.supervisor(run, lease, may_start=False)
        self._known[run.id] = supervisor
        supervisor.look_again(run, lease)
        if run.id in self._unnoted:
            supervisor.ask_to_stop()
        if supervisor.run.active:
            supervisor.tick()
        if not supervisor.run.active:
            del self._known[run.id]
            self._unnoted.discard(run.id)
        return supervisor.run

    def forget(self, run_id: str) -> None:
        """Know nothing more of a run."""
        self._known.pop(run_id, None)

    def note_stop(self, run: Run, *, force: bool) -> None:
        """Note in the run's directory that it is to end; where that is gone or full, only here."""
        try:
            RunDir.of(run).request_stop(force=force)
        except OSError as error:
            if error.errno not in UNNOTED:
                raise RlctlError(
                    f"run {run.id} cannot be asked to stop in {run.path!r}: {error.strerror}",
                    hint="Do it as somebody who may write there.",
                ) from None
            self._unnoted.add(run.id)

    def is_watched(self, run_id: str) -> bool:
        """Whether somebody who lives supervises the run."""
        held_by = self._home.store.lease_of(run_id)
        if held_by is None:
            return False
        return self._home.services.alive(held_by, self._home.store.get(run_id))

    def _taken(self, run: Run, held_by: str | None, lease: str) -> Run:
        """The run after a look at it as its supervisor; if another was first, as it is by then."""
        store = self._home.store
        try:
            if not store.take_lease(run.id, held_by=held_by, lease=lease):
                return store.get(run.id)
        except RlctlError as error:  # On a full disk, what was known can still be read.
            LOG.warning("run not looked at: %s: %s", run.id, error)
            return run
        try:
            return self.looked_at(store.get(run.id), lease)
        finally:
            store.release(run.id, lease=lease)

    def _is_left_alone(self, run: Run, held_by: str | None) -> bool:
        """Whether somebody looks after the run, or a service will where that makes a difference."""
        asked_to_stop = run.id in self._unnoted or RunDir.of(run).stop_requested
        if held_by is None:
            return run.state is State.QUEUED and not asked_to_stop
        services = self._home.services
        if services.alive(held_by, run):
            return True
        awaited = self._home.resident or (services.knows(held_by) and not _is_evaluated(run))
        return awaited and not asked_to_stop

    def _as_last_known(self, run: Run, obstacle: str) -> Run:
        """The run as it was last noted; that it may be otherwise by now is said once."""
        if not self._warned:
            self._warned = True
            LOG.warning(
                "%r %s: what has become of runs whose supervisor died is not noted there, and "
                "they are shown as they were last known",
                str(self._home.home),
                obstacle,
            )
        return run


def _is_evaluated(run: Run) -> bool:
    """Whether the final evaluation of a run has ended with a report, which ends the run as well."""
    directory = RunDir.of(run)
    reported = run.state is State.EVALUATING and directory.report_file(FINAL).exists()
    return reported and directory.lock_holder() is None
