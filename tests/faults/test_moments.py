"""A service that dies or is halted at every single moment of a run's life, one after the other."""

import itertools
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.service import RunService
from rl_orch.core.store.database import DATABASE
from rl_orch.core.store.runs import Store
from rl_orch.errors import Conflict
from rl_orch.records import State
from tests.faults.moments import Fate, Halted, Killed, Runner, World

ONCE = [(1, "train"), (1, "evaluate")]
AFTER_A_CRASH = [(1, "train"), (2, "train"), (2, "evaluate")]


def seen(world: World) -> str:
    """What became of the run, for messages."""
    store = Store(world.home / DATABASE)
    run = store.find("last")
    return f"{run.state} ({run.reason}), retries {run.retries}, {store.lease_of(run.id)}"


def ended_well(world: World, *, retries: int) -> bool:
    """Whether the run succeeded, cost no more retries than it should, and is let go of."""
    store = Store(world.home / DATABASE)
    run = store.find("last")
    released = store.lease_of(run.id) is None
    return run.state is State.SUCCEEDED and run.retries == retries and released


def dies_at_every_moment(homes: Iterator[Path], patch: pytest.MonkeyPatch, crashes: int) -> int:
    """The number of moments in the life of a run whose root crashes so often; each was tried."""

    def die() -> None:
        raise Killed

    for at in itertools.count(1):
        world = World(next(homes), Runner(crashes=crashes))
        first, fate = world.service(doomed=True), Fate(at, die)
        try:
            with fate.rules(patch):
                world.live(first)
        except Killed:
            assert world.live(world.service()), f"killed at moment {at}: {seen(world)}"
        assert ended_well(world, retries=crashes), f"killed at moment {at}: {seen(world)}"
        assert world.tasks == (AFTER_A_CRASH if crashes else ONCE), f"killed at moment {at}"
        if not fate.struck:
            return at
    raise AssertionError


def halted_at_every_moment(homes: Iterator[Path], patch: pytest.MonkeyPatch, ticks: int) -> int:
    """The number of moments; another service has that many ticks before the first goes on."""

    def take_over(other: RunService, world: World) -> None:
        """Roots that are started in the last tick are still at work when the first goes on."""
        world.live(other, ticks=ticks)
        world.clock.advance(1.0)
        other.tick()

    for at in itertools.count(1):
        world = World(next(homes), Runner())
        other = world.service()
        struck = Halted(world, at).run(patch, partial(take_over, other, world))
        assert world.live(other), f"halted at moment {at}: {seen(world)}"
        assert ended_well(world, retries=0), f"halted at moment {at}: {seen(world)}"
        if not struck:
            return at
    raise AssertionError


def stopped_at_every_moment(homes: Iterator[Path], patch: pytest.MonkeyPatch, force: bool) -> int:
    """The number of moments; at each, somebody else asks the run to stop."""

    def stop(world: World) -> None:
        verbs = Orchestrator(world.home, world.runner)
        with suppress(Conflict):  # It has ended by then.
            verbs.ask_to_stop("last", force=force)

    for at in itertools.count(1):
        world = World(next(homes), Runner())
        fate = Fate(at, partial(stop, world))
        with fate.rules(patch):
            assert world.live(world.service()), f"stopped at moment {at}: {seen(world)}"
        run = Store(world.home / DATABASE).find("last")
        ended = {State.STOPPED, State.SUCCEEDED}
        assert run.state in ended, f"stopped at moment {at}: {seen(world)}"
        assert run.retries == 0, f"stopped at moment {at}: {seen(world)}"
        assert world.runner.adopt(Path(run.path)) is None, f"stopped at moment {at}: {seen(world)}"
        if not fate.struck:
            assert run.state is State.SUCCEEDED
            return at
    raise AssertionError


def test_a_service_that_dies_at_any_moment_leaves_a_run_that_is_carried_out_once(
    homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dies_at_every_moment(homes, monkeypatch, crashes=1) > 20


def test_a_service_that_was_halted_at_any_moment_and_goes_on_disturbs_no_other(
    homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert halted_at_every_moment(homes, monkeypatch, ticks=1) > 20


def test_a_run_that_is_asked_to_stop_at_any_moment_ends_and_leaves_no_root(
    homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stopped_at_every_moment(homes, monkeypatch, force=False) > 20
