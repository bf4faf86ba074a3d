"""Carrying runs out in the foreground: as many at once as there is room for, to their end."""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from rl_orch.core.runs.supervisor import Supervisor
from rl_orch.errors import LeaseLost, RlctlError
from rl_orch.io.machine import hardware
from rl_orch.records import Event, Run, State

TICK_S = 0.1
LOG = logging.getLogger(__name__)

RunObserver = Callable[[Run, Sequence[Event]], None]
"""Called after each tick with the run as it is and the events that are new."""

StopRequests = Callable[[], int]
"""How often the user has asked to stop: once ends runs after a last checkpoint, twice at once."""


def no_observer(_run: Run, _events: Sequence[Event]) -> None:
    """Watches nothing."""


def never() -> int:
    """Zero requests to stop: nobody asks."""
    return 0


def carry_out(
    supervisors: Sequence[Supervisor],
    *,
    slots: int,
    watch: RunObserver = no_observer,
    stop_requests: StopRequests = never,
) -> None:
    """See every run to its end, `slots` of them at once. If this is interrupted, so are they."""
    for supervisor in supervisors:
        supervisor.waiting = True
    try:
        _tick_all(supervisors, slots, watch, stop_requests)
    except LeaseLost:
        raise
    except BaseException:
        _wind_down(supervisors)
        raise


def room(threads: int) -> int:
    """Number of runs of so many threads that this process's cores have room for."""
    return max(1, hardware.cores() // threads)


def _tick_all(
    supervisors: Sequence[Supervisor], slots: int, watch: RunObserver, stop_requests: StopRequests
) -> None:
    heeded, rest = 0, list(supervisors)
    while rest := [supervisor for supervisor in rest if supervisor.run.active]:
        asked = stop_requests() > heeded
        heeded += asked
        _give_room(rest, slots)
        for supervisor in list(rest):
            try:
                if asked:
                    supervisor.ask_to_stop()
                events = supervisor.tick() if supervisor.run.active else []
                watch(supervisor.run, events)
            except (RlctlError, OSError) as error:
                if len(supervisors) == 1:
                    raise
                LOG.warning("no longer watched: %s: %s", supervisor.run.id, error)
                rest.remove(supervisor)
                if not isinstance(error, LeaseLost):
                    _let_go(supervisor)
        if any(supervisor.run.active for supervisor in rest):
            time.sleep(TICK_S)


def _let_go(supervisor: Supervisor) -> None:
    """End a run that nobody will watch over, as far as that can be done."""
    with suppress(RlctlError, OSError):
        supervisor.ask_to_stop()


def _give_room(supervisors: Sequence[Supervisor], slots: int) -> None:
    """Let the first queued runs start, as far as the room goes."""
    begun = [s for s in supervisors if s.run.active and s.run.state is not State.QUEUED]
    queued = [s for s in supervisors if s.run.state is State.QUEUED]
    for supervisor in queued[: max(0, slots - len(begun))]:
        supervisor.waiting = False


def _wind_down(supervisors: Sequence[Supervisor]) -> None:
    """End runs whose supervision is interrupted, so that nothing trains on unwatched.

    An interrupt in the meantime ends them at once.
    """
    try:
        _end(supervisors)
    except KeyboardInterrupt:
        _end(supervisors)
    except RlctlError as error:
        LOG.warning("not every run was ended: %s", error)


def _end(supervisors: Sequence[Supervisor]) -> None:
    for supervisor in supervisors:
        _let_go(supervisor)
    _tick_all(supervisors, len(supervisors), no_observer, never)
