"""Services: who lives is told by counting, never by comparing clocks."""

import subprocess
import sys
from pathlib import Path

import pytest

from rl_orch.core.store.runs import Store
from rl_orch.core.store.services import LEASE_S, Services
from rl_orch.io.processes import pids
from rl_orch.records import Service
from rl_orch.testing import FakeClock
from tests.stores import a_run

ELSEWHERE = "another-host/12:34/feed"


@pytest.fixture
def timer() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "rlctl.db")


@pytest.fixture
def services(store: Store, timer: FakeClock) -> Services:
    return Services(store, timer)


def a_service(lease: str, *, started_at: float = 1.0) -> Service:
    """A service to join."""
    host, _ = pids.holder_of(lease)
    return Service(id=lease, host=host, url="http://127.0.0.1:1", beat=0, started_at=started_at)


def a_dead_lease() -> str:
    """The lease of a process of this machine that has ended."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    )
    known = pids.identity(child.pid)
    child.communicate()
    return f"{pids.host()}/{known}/feed"


def test_services_join_count_and_leave(services: Services) -> None:
    mine, theirs = a_service(pids.lease(), started_at=2.0), a_service(ELSEWHERE)
    services.join(mine)
    services.join(theirs)
    services.beat(mine.id)
    services.beat(mine.id)
    assert services.list() == [theirs, mine.model_copy(update={"beat": 2})]
    services.leave(theirs.id)
    assert [service.id for service in services.list()] == [mine.id]


def test_to_join_twice_is_to_join_once(services: Services) -> None:
    services.join(a_service(ELSEWHERE))
    services.join(a_service(ELSEWHERE, started_at=5.0))
    assert [service.started_at for service in services.list()] == [5.0]


def test_a_service_elsewhere_lives_while_it_counts(
    services: Services, store: Store, timer: FakeClock
) -> None:
    there = Services(store)
    there.join(a_service(ELSEWHERE))
    for _ in range(20):
        assert services.alive(ELSEWHERE)
        there.beat(ELSEWHERE)
        timer.advance(LEASE_S - 1)


def test_a_service_that_stands_still_is_dead_after_its_lease_and_alive_once_it_counts(
    services: Services, store: Store, timer: FakeClock
) -> None:
    there = Services(store)
    there.join(a_service(ELSEWHERE))
    for _ in range(10):
        assert services.alive(ELSEWHERE)
        timer.advance(LEASE_S / 10)
    assert not services.alive(ELSEWHERE)
    there.beat(ELSEWHERE)
    assert services.alive(ELSEWHERE)


def test_first_sight_counts_as_alive_however_old_the_row_is(store: Store, timer: FakeClock) -> None:
    Services(store).join(a_service(ELSEWHERE))
    timer.advance(1e9)
    assert Services(store, timer).alive(ELSEWHERE)


def test_after_a_time_without_a_look_one_look_finds_nobody_dead(
    services: Services, store: Store, timer: FakeClock
) -> None:
    there = Services(store)
    there.join(a_service(ELSEWHERE))
    assert services.alive(ELSEWHERE)
    timer.advance(86_400.0)
    assert services.alive(ELSEWHERE)
    there.beat(ELSEWHERE)
    timer.advance(1.0)
    assert services.alive(ELSEWHERE)


def test_a_process_of_this_machine_that_has_ended_is_dead_at_once(services: Services) -> None:
    dead = a_dead_lease()
    assert not services.alive(dead)
    services.join(a_service(dead))
    assert not services.alive(dead)


def test_a_process_of_this_machine_without_a_row_lives_as_long_as_it_runs(
    services: Services, timer: FakeClock
) -> None:
    lease = pids.lease()
    for _ in range(5):
        assert services.alive(lease)
        timer.advance(100.0)


def test_a_service_of_this_machine_that_hangs_is_dead_after_its_lease(
    services: Services, timer: FakeClock
) -> None:
    lease = pids.lease()
    services.join(a_service(lease))
    seen = []
    for _ in range(3):
        seen.append(services.alive(lease))
        timer.advance(LEASE_S / 2)
    assert seen == [True, True, False]


def test_of_what_cannot_be_known_nothing_is_said_to_be_dead(
    services: Services, timer: FakeClock
) -> None:
    for lease in (ELSEWHERE, "mine", "", "a/b", "///"):
        assert services.alive(lease)
        timer.advance(1e6)
        assert services.alive(lease)


def test_a_lease_of_an_older_release_is_read_as_of_this_machine(services: Services) -> None:
    assert not services.alive("999999999:1/feed")
    _, identity = pids.holder_of(pids.lease())
    assert services.alive(f"{identity}/feed")


def test_who_dies_and_holds_no_run_is_forgotten_when_the_next_one_joins(
    services: Services, store: Store
) -> None:
    idle, busy, mine = a_dead_lease(), a_dead_lease(), pids.lease()
    store.add(a_run("r-1"), lease=busy)
    for lease in (idle, busy, ELSEWHERE):
        Services(store).join(a_service(lease))
    services.join(a_service(mine))
    assert {service.id for service in services.list()} == {busy, ELSEWHERE, mine}
    store.take_lease("r-1", held_by=busy, lease=mine)
    services.sweep()
    assert {service.id for service in services.list()} == {ELSEWHERE, mine}


def test_a_service_that_was_forgotten_while_it_was_halted_joins_again(
    services: Services, store: Store, timer: FakeClock
) -> None:
    there = Services(store)
    there.join(a_service(ELSEWHERE))
    there.beat(ELSEWHERE)
    for _ in range(3):
        services.sweep()
        timer.advance(LEASE_S / 2)
    assert services.list() == []
    there.beat(ELSEWHERE)
    assert [service.beat for service in services.list()] == [2]
    assert services.alive(ELSEWHERE)


def test_a_beat_of_nobody_is_no_service(services: Services) -> None:
    services.beat("nobody")
    assert services.list() == []
