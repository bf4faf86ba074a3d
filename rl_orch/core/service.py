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
from functools import cache
from pathlib import Path
from typing import Any

from rl_orch.core import dependencies, scheduler
from rl_orch.core.foreground import Pumps
from rl_orch.core.loop import Supervisor
from rl_orch.core.scheduler import Capacity, Claim, Placement
from rl_orch.core.verbs import Verbs
from rl_orch.errors import LeaseLost, RlctlError
from rl_orch.io import processes, series
from rl_orch.io.rundir import RunDir
from rl_orch.io.telemetry import Sink
from rl_orch.records import Run, State
from rl_orch.records import Service as ServiceRecord

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
LEFT_BEHIND = (".new-*", ".removing-*", ".importing-*")
STALE_S = 3600.0


@dataclass(slots=True)
class Service:
    """Carries out the runs of a home, as many at once as its capacity allows.

    `also` makes a sink for each run that is told all that it tells.
    """

    verbs: Verbs
    capacity: Capacity
    url: str
    also: Callable[[Run], Sink] | None = None
    timer: Callable[[], float] = time.monotonic
    id: str = field(default_factory=processes.lease)
    ready: bool = False
    _held: dict[str, Supervisor] = field(default_factory=dict)
    _pumps: Pumps = field(init=False)
    _woken: threading.Event = field(default_factory=threading.Event)
    _beat_at: float = 0.0
    _look_at: float = 0.0
    _sweep_at: float = 0.0
    _index_at: float = 0.0
    _trouble: str = ""

    def __post_init__(self) -> None:
        self._pumps = Pumps(self.also)

    def run(self, until: threading.Event) -> None:
        """Tick until told to end. The runs go on: whoever comes next takes them over."""
        _sweep_leftovers(self.verbs.home / "runs")
        try:
            while not until.is_set():
                self.tick()
                self._woken.wait(TICK_S)
        finally:
            self._pumps.close()
            self._leave()

    def wake(self) -> None:
        """Look at the queue now: something has changed."""
        self._look_at = 0.0
        self._woken.set()

    def tick(self) -> None:
        """Show that we live, look at the queue if it is time, and tick every run that is ours.

        A database that does not answer is asked again at the next tick; runs go on meanwhile.
        """
        self._woken.clear()
        try:
            self._beat()
            if self.timer() >= self._look_at:
                self._look()
                self.ready = True
            self._trouble = ""
        except (RlctlError, OSError) as error:
            self._complain(str(error))
        for run_id, supervisor in list(self._held.items()):
            self._tick_one(run_id, supervisor)
        if self.timer() >= self._index_at:
            self._index_at = self.timer() + INDEX_S
            for supervisor in self._held.values():
                series.catch_up(Path(supervisor.run.path), INDEXED_BYTES)

    @property
    def trouble(self) -> str | None:
        """What hinders the service at present."""
        return self._trouble or None

    def status(self) -> dict[str, Any]:
        """How much of the machine is in use, and by how many runs."""
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

    def _beat(self) -> None:
        """Show that we live, and now and then forget those who do not and hold nothing."""
        now, services = self.timer(), self.verbs.services
        if now < self._beat_at:
            return
        if self._beat_at == 0.0:
            host, started_at = processes.host(), time.time()
            services.join(
                ServiceRecord(id=self.id, host=host, url=self.url, beat=0, started_at=started_at)
            )
        else:
            services.beat(self.id)
        if now >= self._sweep_at:
            services.sweep()
            self._sweep_at = now + SWEEP_S
        self._beat_at = now + BEAT_S

    def _leave(self) -> None:
        """Let go of what is held, so that others need not wait to see that we are gone."""
        try:
            for supervisor in self._held.values():
                if supervisor.run.state is State.QUEUED:
                    self.verbs.store.release(supervisor.run.id, lease=self.id)
            # The row stays while runs are at work: it says that a service looks after them.
            if not any(s.run.active for s in self._held.values()):
                self.verbs.services.leave(self.id)
        except RlctlError as error:
            self._complain(str(error))

    def _look(self) -> None:
        """Take over what nobody looks after, end what can never start, and place what waits."""
        began = self.timer()
        queue: list[Run] = []
        claims = [
            Claim(s.run, s.gpus or ())
            for s in self._held.values()
            if s.run.state is not State.QUEUED or not s.waiting
        ]
        leases: dict[str, str | None] = {}
        alive = cache(self.verbs.services.alive)
        for run, lease in self.verbs.store.active():
            if run.id in self._held:
                if self._held[run.id].waiting and self._held[run.id].rested:
                    queue.append(self._held[run.id].run)
                continue
            leases[run.id] = lease
            free = lease is None or lease == self.id or not alive(lease)
            if not free:
                claims += _elsewhere(run, str(lease))
            elif not Path(run.path).is_dir():
                continue  # It belongs to another machine, or its directory was moved.
            elif run.state is State.QUEUED:
                queue.append(run)
            else:
                claims += self._take_over(run, lease)
        for chosen in scheduler.choose(self._startable(queue, leases), claims, self.capacity):
            self._start(chosen, leases.get(chosen.run.id))
        spent = self.timer() - began
        self._look_at = self.timer() + max(LOOK_S, spent / LOOK_SHARE)

    def _take_over(self, run: Run, lease: str | None) -> list[Claim]:
        """Become the supervisor of a run at work, its root alive or not."""
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

    def _start(self, chosen: Placement, lease: str | None) -> None:
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
        self._held[run.id] = self.verbs.supervisor(
            run,
            self.id,
            retries=True,
            waiting=waits,
            every_event=False,
            save_every_s=SAVE_S,
            timer=self.timer,
        )
        return True

    def _tick_one(self, run_id: str, supervisor: Supervisor) -> None:
        try:
            events = supervisor.tick()
            self._pumps.follow(supervisor.run, events)
            if not supervisor.run.active:
                supervisor.save()
                self.verbs.store.release(run_id, lease=self.id)
                del self._held[run_id]
                self._look_at = 0.0
        except LeaseLost:
            LOG.warning("run has another supervisor now: %s", run_id)
            del self._held[run_id]
        except (RlctlError, OSError) as error:
            self._complain(f"{run_id}: {error}")
        except Exception:
            LOG.exception("tick failed: %s", run_id)

    def _complain(self, trouble: str) -> None:
        """Log trouble when it begins, not at every tick that it lasts."""
        if trouble != self._trouble:
            LOG.warning("trouble: %s", trouble)
        self._trouble = trouble


def _elsewhere(run: Run, lease: str) -> list[Claim]:
    """What a run that somebody else carries out takes of this machine."""
    here = processes.holder_of(lease)[0] == processes.host()
    return [Claim(run, RunDir.of(run).gpus())] if here and run.state is not State.QUEUED else []


def _sweep_leftovers(folder: Path) -> None:
    """Remove what was being made, moved or deleted when a process died, long ago."""
    for pattern in LEFT_BEHIND:
        for path in folder.glob(pattern):
            try:
                if time.time() - path.stat().st_mtime > STALE_S:
                    shutil.rmtree(path, ignore_errors=True)
            except OSError:
                continue
