"""The service: a loop that places queued runs, supervises those at work, and takes over those
whose supervisor has died.

What is placed where is decided in `scheduler.py`. Several services may share a database: a lease
says who has a run, and every write is guarded by it.
"""

import logging
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rl_orch.core.queue import dependencies, scheduler
from rl_orch.core.queue.scheduler import Capacity, Claim
from rl_orch.core.runs.state import EXIT_CODES, advance
from rl_orch.core.runs.supervisor import Supervisor
from rl_orch.core.runs.tracking import Backlog, Pumps
from rl_orch.core.verbs import Verbs
from rl_orch.errors import BadInput, LeaseLost, RlctlError
from rl_orch.io.files import workspaces
from rl_orch.io.metrics import series
from rl_orch.io.processes import pids
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.heartbeat import last_beat
from rl_orch.io.trackers.pump import Sink
from rl_orch.records import Run, State
from rl_orch.records import Service as ServiceRecord
from rl_orch.records.queries import Query

LOG = logging.getLogger(__name__)
TICK_S = 0.4
BEAT_S = 3.0
LOOK_S = 3.0
SAVE_S = 3.0
INDEX_S = 30.0
INDEXED_BYTES = 4 << 20
"""How much of each event file is indexed at once, so that no tick takes long."""

LOOK_SHARE = 0.05
"""Looking through a long queue may take this share of the time, and no more."""

SWEEP_S = 60.0
FOREIGN_S = 30.0
"""How long a run process on another host must have been silent before its run is taken over."""

CAUGHT_UP = 200
"""Of how many runs that ended last trackers are brought up to date."""

CATCH_UP_S = 60.0
LONGEST_CATCH_UP_S = 1800.0

LEFT_BEHIND = (".new-*", ".removing-*")
STALE_S = 3600.0


@dataclass(slots=True)
class RunService:
    """Carries out the runs of a home, as many at once as its capacity allows.

    `also` makes a sink for each run that is told all that it tells; `chores` are whatever else
    has to be looked at whenever the queue is.
    """

    verbs: Verbs
    capacity: Capacity
    url: str
    also: Callable[[Run], Sink] | None = None
    chores: Callable[[], None] = lambda: None
    timer: Callable[[], float] = time.monotonic
    id: str = field(default_factory=pids.lease)
    ready: bool = False
    _held: dict[str, Supervisor] = field(default_factory=dict)
    _pumps: Pumps = field(init=False)
    _woken: threading.Event = field(default_factory=threading.Event)
    _joined: bool = False
    _look_at: float = 0.0
    _sweep_at: float = 0.0
    _index_at: float = 0.0
    _troubles: dict[str, str] = field(default_factory=dict)
    _foreign: dict[str, tuple[int | None, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._pumps = Pumps(self.also)

    def run(self, until: threading.Event) -> None:
        """Tick until told to end. The runs go on: whoever comes next takes them over."""
        _sweep_leftovers(self.verbs.home / "runs")
        beating = threading.Thread(target=self._keep_beating, args=(until,), name="beat")
        catching_up = threading.Thread(
            target=self._keep_catching_up, args=(until,), name="trackers"
        )
        beating.start()
        catching_up.start()
        try:
            while not until.is_set():
                self.tick()
                self._woken.wait(TICK_S)
        finally:
            until.set()
            beating.join()
            catching_up.join()
            self._pumps.close()
            self._leave()

    def wake(self) -> None:
        """Look at the queue now: something has changed."""
        self._look_at = 0.0
        self._woken.set()

    def tick(self) -> None:
        """Look at the queue if it is time, and tick every run that is ours.

        A database that does not answer is asked again at the next tick; runs go on meanwhile.
        """
        self._woken.clear()
        self._try("queue", self._look_if_due)
        for run_id, supervisor in list(self._held.items()):
            self._try(run_id, partial(self._tick_one, run_id, supervisor))
        if self.timer() >= self._index_at:
            self._index_at = self.timer() + INDEX_S
            for run_id, supervisor in list(self._held.items()):
                path = Path(supervisor.run.path)
                self._try(f"index of {run_id}", partial(series.catch_up, path, INDEXED_BYTES))

    @property
    def trouble(self) -> str | None:
        """Troubles that hinder the service at present, in a sentence."""
        return "; ".join(list(self._troubles.values())) or None

    def status(self) -> dict[str, Any]:
        """Usage of the machine, and the number of runs at work."""
        working = [s.run for s in list(self._held.values()) if s.run.state is not State.QUEUED]
        return {
            "ready": self.ready,
            "trouble": self.trouble,
            "runs": len(working),
            "cpus": {"used": sum(run.cpus for run in working), "of": self.capacity.cpus},
            "memory_mb": {
                "used": sum(run.memory_mb for run in working),
                "of": self.capacity.memory_mb,
            },
            "gpus": {"used": sum(run.gpus for run in working), "of": len(self.capacity.gpus)},
        }

    def beat(self) -> None:
        """Show that we live, and now and then forget dead services.

        Those that still hold something are not forgotten.
        """
        services = self.verbs.services
        if not self._joined:
            host, started_at = pids.host(), time.time()
            services.join(
                ServiceRecord(id=self.id, host=host, url=self.url, beat=0, started_at=started_at)
            )
            self._joined = True
        services.beat(self.id)
        if self.timer() >= self._sweep_at:
            services.sweep()
            self._sweep_at = self.timer() + SWEEP_S

    def _keep_beating(self, until: threading.Event) -> None:
        """Beat in a thread of its own: no run, however slow to tick, makes us look dead."""
        while not until.is_set():
            self._try("heartbeat", self.beat)
            until.wait(BEAT_S)

    def _keep_catching_up(self, until: threading.Event) -> None:
        """Deliver what trackers have not got of ended runs, at the start and ever less often."""
        backlog, pause_s = Backlog(until), CATCH_UP_S
        while not until.is_set():
            self._try("trackers", partial(self._catch_up, backlog))
            until.wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_CATCH_UP_S)

    def _catch_up(self, backlog: Backlog) -> None:
        query = Query(limit=CAUGHT_UP, states=tuple(EXIT_CODES), sort="-updated_at")
        runs = self.verbs.store.page(query).runs
        backlog.deliver(run for run in runs if not self._pumps.carries(run.id))

    def _leave(self) -> None:
        """Let go of what is held.

        So others need not wait to see that we are gone.
        """
        try:
            for supervisor in self._held.values():
                if supervisor.run.state is State.QUEUED:
                    self.verbs.store.release(supervisor.run.id, lease=self.id)
            # The row stays while runs are at work: it says that a service looks after them.
            if not any(s.run.active for s in self._held.values()):
                self.verbs.services.leave(self.id)
        except RlctlError as error:
            LOG.warning("not let go of everything: %s", error)

    def _look_if_due(self) -> None:
        if self.timer() < self._look_at:
            return
        began = self.timer()
        self._look_at = began + LOOK_S  # A wake-up from here on counts for the next look.
        self._look()
        self._try("jobs", self.chores)
        spent = self.timer() - began
        if spent > LOOK_S * LOOK_SHARE:
            self._look_at = max(self._look_at, self.timer() + spent / LOOK_SHARE)
        self.ready = True

    def _look(self) -> None:
        """Take over what nobody looks after, end what can never start, and place what waits."""
        queue: list[Run] = []
        claims = [
            Claim(s.run, s.gpus or ())
            for s in self._held.values()
            if s.run.state is not State.QUEUED or not s.waiting
        ]
        leases: dict[str, str | None] = {}
        for run, lease in self.verbs.store.active():
            if run.id in self._held:
                if self._held[run.id].waiting and self._held[run.id].rested:
                    queue.append(self._held[run.id].run)
                continue
            leases[run.id] = lease
            if not self._is_free(run, lease):
                claims += _elsewhere(run, str(lease))
            elif not Path(run.path).is_dir():
                continue  # It belongs to another machine, or its directory was moved.
            elif run.state is State.QUEUED:
                queue.append(run)
            else:
                claims += self._take_over(run, lease)
        for chosen in scheduler.choose(self._startable(queue, leases), claims, self.capacity):
            self._start(chosen, leases.get(chosen.run.id))

    def _is_free(self, run: Run, lease: str | None) -> bool:
        """Whether nobody who lives has the run.

        No run process of it may live where we cannot see it, either.
        """
        if lease is None or lease == self.id:
            return True
        if self.verbs.services.alive(lease, run):
            self._foreign.pop(run.id, None)
            return False
        host, _ = pids.holder_of(lease)
        if run.state is State.QUEUED or host == pids.host() or pids.rebooted(host):
            return True
        beat = last_beat(RunDir.of(run).heartbeat)
        seen, since = self._foreign.get(run.id, (-1, 0.0))
        if beat != seen:
            self._foreign[run.id] = (beat, self.timer())
            return False
        return self.timer() - since > FOREIGN_S

    def _take_over(self, run: Run, lease: str | None) -> list[Claim]:
        """Become the supervisor of a run at work, its run process alive or not."""
        if not self._hold(run, lease):
            return []
        LOG.info("run taken over: %s", run.id)
        self._held[run.id].gpus = RunDir.of(run).gpus() if self.capacity.gpus else None
        return [Claim(run, self._held[run.id].gpus or ())]

    def _startable(self, queue: Sequence[Run], leases: dict[str, str | None]) -> list[Run]:
        """The waiting runs that wait for nothing but room. One that can never start is ended."""
        startable = []
        for run in queue:
            hopeless = dependencies.obstacle(run, self._find) if run.after else None
            if hopeless is not None:
                if run.id in self._held or self._hold(run, leases.get(run.id)):
                    self._held[run.id].hold_back(hopeless)
            elif not run.after or dependencies.is_free(run, self._find):
                startable.append(run)
        return startable

    def _find(self, name: str) -> Sequence[Run]:
        store = self.verbs.store
        return [store.get(name)] if name in store else store.group_runs(name)

    def _start(self, chosen: Claim, lease: str | None) -> None:
        run = chosen.run
        if run.id not in self._held and not self._hold(run, lease):
            return
        supervisor = self._held[run.id]
        supervisor.gpus = chosen.gpus if self.capacity.gpus else None
        supervisor.waiting = False

    def _hold(self, run: Run, lease: str | None) -> bool:
        """Whether the run is ours now."""
        store = self.verbs.store
        if lease != self.id and not store.take_lease(run.id, held_by=lease, lease=self.id):
            return False
        run = store.get(run.id)
        if not run.active:
            store.release(run.id, lease=self.id)
            return False
        waits = run.state is State.QUEUED
        try:
            self._held[run.id] = self.verbs.supervisor(
                run,
                self.id,
                retries=True,
                waiting=waits,
                every_event=False,
                save_every_s=SAVE_S,
                timer=self.timer,
            )
        except BadInput as error:  # A runner that is not installed here, for one.
            store.save(advance(run, State.FAILED, error.message), lease=self.id)
            store.release(run.id, lease=self.id)
            return False
        return True

    def _tick_one(self, run_id: str, supervisor: Supervisor) -> None:
        try:
            events = supervisor.tick()
            try:
                self._pumps.follow(supervisor.run, events, supervisor.carried_spec)
            finally:
                if not supervisor.run.active:
                    supervisor.save()
                    self.verbs.store.release(run_id, lease=self.id)
                    del self._held[run_id]
                    self._look_at = 0.0
        except LeaseLost:
            LOG.warning("run has another supervisor now: %s", run_id)
            del self._held[run_id]
            self._pumps.drop(run_id)

    def _try(self, what: str, act: Callable[[], object]) -> None:
        """Act, and go on whatever comes of it: trouble with one thing must not stop the others.

        It is logged when it begins or changes, not at every tick that it lasts.
        """
        try:
            act()
            self._troubles.pop(what, None)
        except Exception as error:
            trouble = f"{what}: {error}"
            if self._troubles.get(what) != trouble:
                surprise = not isinstance(error, RlctlError | OSError)
                LOG.warning("trouble: %s", trouble, exc_info=surprise)
            self._troubles[what] = trouble


def _elsewhere(run: Run, lease: str) -> list[Claim]:
    """Claim on this machine of a run that somebody else carries out."""
    here = pids.holder_of(lease)[0] == pids.host()
    return [Claim(run, RunDir.of(run).gpus())] if here and run.state is not State.QUEUED else []


def _sweep_leftovers(folder: Path) -> None:
    """Remove what dead processes left half made, half deleted or half taken in.

    What was being made or deleted has to be old.
    """
    workspaces.sweep(folder)
    for pattern in LEFT_BEHIND:
        for path in folder.glob(pattern):
            try:
                if time.time() - path.stat().st_mtime > STALE_S:
                    shutil.rmtree(path, ignore_errors=True)
            except OSError:
                continue
