"""Why queued runs wait: for other runs, a service, their turn, or cores, memory and GPUs; and
whether runs at work have a supervisor.

One look at the queue explains all runs of an answer. What is decided there is in `scheduler.py`.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from rl_orch.core.queue import dependencies, scheduler
from rl_orch.core.queue.forecast import Forecast, forecast
from rl_orch.core.queue.scheduler import Capacity, Claim
from rl_orch.core.store.runs import Store
from rl_orch.core.store.services import Services
from rl_orch.io.processes import pids
from rl_orch.io.run.directory import RunDir
from rl_orch.records import Run, State

NO_SERVICE = "no service is up: `rlctl up` starts one"


class QueueSnapshot:
    """The queue of a home at one moment.

    `room` is the capacity of this machine; `is_shared_out` says that it is what a service in this
    process shares out, so that what lacks of it can be told.
    """

    def __init__(
        self,
        store: Store,
        services: Services,
        room: Callable[[], Capacity],
        *,
        is_shared_out: bool,
    ) -> None:
        self._store = store
        self._services = services
        self._room = room
        self._is_shared_out = is_shared_out

    def explained(self, run: Run) -> Run:
        """The run, with all that it waits for as its reason; one at work that has no supervisor,
        with that."""
        if run.state is not State.QUEUED:
            return self._looked_after(run) if run.active else run
        return run.model_copy(update={"reason": "; ".join(self._reasons(run))})

    def _looked_after(self, run: Run) -> Run:
        lease = self._leases.get(run.id)
        if run.id not in self._leases or (lease and self._services.alive(lease, run)):
            return run
        alone = f"nobody watches over it: `rlctl up` does, or `rlctl resume {run.id}`"
        return run.model_copy(update={"reason": f"{run.reason}; {alone}"})

    def place(self, run: Run) -> Forecast | None:
        """Position of a run in the queue; None if it is not there, or waits for more than room."""
        return self._forecasts.get(run.id) if run.state is State.QUEUED else None

    def _reasons(self, run: Run) -> Iterator[str]:
        if RunDir.of(run).stop_requested:
            yield "it was asked to stop before it starts"
            return
        if run.reason:
            yield run.reason
        if (launcher := self._launcher(run)) is not None:
            yield f"process {launcher} carries it out, with as many others as the cores allow"
            return
        unmet = list(dependencies.unmet(run, self.runs_of))
        yield from unmet
        if not self._is_served:
            yield NO_SERVICE
        elif not Path(run.path).is_dir():
            yield f"its directory is not on this machine: {run.path}"
            return
        place = None if unmet else self.place(run)
        if place is not None:
            yield place.position_text
            if self._is_served and self._is_shared_out:
                yield from self._for_room(run, place)

    def _for_room(self, run: Run, place: Forecast) -> Iterator[str]:
        if run.id in self._shortages:
            yield self._shortages[run.id]
        yield place.wait_text

    def runs_of(self, name: str) -> Sequence[Run]:
        """The run of an id, or those of a group."""
        return [self._store.get(name)] if name in self._store else self._store.group_runs(name)

    def _launcher(self, run: Run) -> str | None:
        """The process that launched the run and carries it out, where no service does."""
        lease = self._leases.get(run.id)
        if lease is None or self._services.knows(lease) or not self._services.alive(lease, run):
            return None
        return pids.holder_of(lease)[1].partition(":")[0]

    @cached_property
    def _is_served(self) -> bool:
        return any(self._services.alive(service.id) for service in self._services.list())

    @cached_property
    def _active(self) -> list[tuple[Run, str | None]]:
        return self._store.active()

    @cached_property
    def _leases(self) -> dict[str, str | None]:
        return {run.id: lease for run, lease in self._active}

    @cached_property
    def _waiting(self) -> list[Run]:
        """The runs that wait for nothing but room."""
        awaited = {name for run, _ in self._active for name in (run.id, run.group)}
        queued = [run for run, _ in self._active if run.state is State.QUEUED]
        return [run for run in queued if awaited.isdisjoint(run.after)]

    @cached_property
    def _capacity(self) -> Capacity:
        return self._room()

    @cached_property
    def _working(self) -> list[Claim]:
        return [
            Claim(run, RunDir.of(run).gpus())
            for run, lease in self._active
            if run.state is not State.QUEUED
            and (lease is None or pids.holder_of(lease)[0] == pids.host())
        ]

    @cached_property
    def _shortages(self) -> dict[str, str]:
        return scheduler.shortages(self._waiting, self._working, self._capacity)

    @cached_property
    def _forecasts(self) -> dict[str, Forecast]:
        return forecast(self._waiting, self._working, self._capacity)
