"""The services that share a database, and whether one that holds runs still lives.

No two clocks are compared: a service that lives counts up, and whoever looks measures with a timer
of its own for how long it has not.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sa

from rl_orch.core.store.runs import Store
from rl_orch.core.store.tables import ACTIVE, RUNS, SERVICES
from rl_orch.io.processes import pids
from rl_orch.records import Run, Service

LEASE_S = 10.0
"""A service that has not counted up for so long is dead."""

UNSEEN_S = 120.0
"""A foreground launch on another host that has written nothing for so long is dead."""

BLINK_S = LEASE_S / 2
"""What the time between two looks counts for at most. A database that was away for longer let
nobody count, so one look after it must not find everybody dead."""


@dataclass(slots=True)
class _Sight:
    """Sight of a service: its count, when that was, and for how long it stood still."""

    beat: int
    looked_at: float
    still_s: float = 0.0


class Services:
    """The services in a store's database, as one observer sees them."""

    def __init__(self, store: Store, timer: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._timer = timer
        self._joined: dict[str, Service] = {}
        self._seen: dict[str, _Sight] = {}

    def join(self, service: Service) -> None:
        """Record a service, and forget those that died on this machine."""
        self._joined[service.id] = service
        with self._store.writing() as connection:
            connection.execute(SERVICES.delete().where(SERVICES.c.id == service.id))
            connection.execute(SERVICES.insert().values(**service.model_dump()))
        self.sweep()

    def beat(self, service_id: str) -> None:
        """Count up. One that was forgotten while it was halted joins again."""
        count = sa.update(SERVICES).where(SERVICES.c.id == service_id)
        count = count.values(beat=SERVICES.c.beat + 1).returning(SERVICES.c.beat)
        with self._store.writing() as connection:
            beat = connection.execute(count).scalar_one_or_none()
        if (joined := self._joined.get(service_id)) is None:
            return
        if beat is None:
            self.join(joined.model_copy(update={"beat": joined.beat + 1}))
        else:
            self._joined[service_id] = joined.model_copy(update={"beat": beat})

    def leave(self, service_id: str) -> None:
        """Be known no more."""
        self._joined.pop(service_id, None)
        self._store.write(SERVICES.delete().where(SERVICES.c.id == service_id))

    def list(self) -> list[Service]:
        """The services that have joined and not left, the dead among them, oldest first."""
        query = sa.select(SERVICES).order_by(SERVICES.c.started_at, SERVICES.c.id)
        return [Service.model_validate(dict(row._mapping)) for row in self._store.read(query)]

    def knows(self, lease: str) -> bool:
        """Whether a service holds, or held, this lease: another one will take over what it had."""
        return bool(self._store.read(sa.select(SERVICES.c.id).where(SERVICES.c.id == lease)))

    def alive(self, lease: str, run: Run | None = None) -> bool:
        """Whether who holds a lease lives.

        Of a process on another host that is no service, only its run can tell: it lives while the
        run's row is written now and then. Without a run it counts as alive.
        """
        place, _ = pids.holder_of(lease)
        if place == pids.host() and not pids.holds(lease):
            return False
        if pids.rebooted(place):
            return False
        rows = self._store.read(sa.select(SERVICES.c.beat).where(SERVICES.c.id == lease))
        if not rows:
            self._seen.pop(lease, None)
            if place == pids.host() or run is None:
                return True
            return abs(time.time() - run.updated_at) < UNSEEN_S
        return self._still_s(lease, rows[0].beat) < LEASE_S

    def sweep(self) -> None:
        """Forget services that are dead and hold no run. Of one that does, the others must know.

        A run that had ended is no longer held: its service died before it could let go of it.
        """
        held = sa.select(RUNS.c.id).where(RUNS.c.lease == SERVICES.c.id).exists()
        for service in self.list():
            if service.id not in self._joined and not self.alive(service.id):
                ended = sa.update(RUNS).where(RUNS.c.lease == service.id, sa.text(f"NOT {ACTIVE}"))
                gone = SERVICES.delete().where(SERVICES.c.id == service.id, ~held)
                with self._store.writing() as connection:
                    connection.execute(ended.values(lease=None))
                    connection.execute(gone)

    def _still_s(self, lease: str, beat: int) -> float:
        """Seconds that a count has stood still, as far as this observer could see."""
        now, sight = self._timer(), self._seen.get(lease)
        if sight is None or sight.beat != beat:
            sight = self._seen[lease] = _Sight(beat, now)
        sight.still_s += min(now - sight.looked_at, BLINK_S)
        sight.looked_at = now
        return sight.still_s
