"""What PostgreSQL can do to a store: restart, refuse, time out, be missing. A real server."""

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import pytest
import sqlalchemy as sa

from rl_orch.core.store import database
from rl_orch.core.store.runs import Store
from rl_orch.core.store.services import Services
from rl_orch.core.store.tokens import Tokens
from rl_orch.errors import BadInput, MissingExtra, RlctlError, Unavailable
from rl_orch.io.processes import pids
from rl_orch.records import Service
from rl_orch.testing import FakeClock
from tests.postgres import PASSWORD, Postgres
from tests.stores import a_run

T = TypeVar("T")


@pytest.fixture
def store(postgres_url: str) -> Iterator[Store]:
    """A store in PostgreSQL."""
    made = Store(postgres_url)
    yield made
    made.close()


def patiently(do: Callable[[], T]) -> T:
    """What something says as soon as the database answers."""
    pause = threading.Event()
    while True:
        try:
            return do()
        except Unavailable:
            pause.wait(0.02)


def test_a_store_goes_on_after_a_restart(store: Store, postgres: Postgres) -> None:
    store.submit([a_run("r-1")], key="k", digest="d")
    for immediate in (False, True):
        postgres.restart(immediate=immediate)
        assert store.get("r-1").id == "r-1"
        assert store.submit([a_run("r-2")], key="k", digest="d") == ["r-1"]


def test_a_write_that_a_restart_cuts_in_two_leaves_nothing(
    store: Store, postgres: Postgres
) -> None:
    with pytest.raises(Unavailable):
        store.submit(
            [a_run("r-1")], key="k", digest="d", ready=lambda: postgres.restart(immediate=True)
        )
    assert "r-1" not in store
    assert store.submit([a_run("r-1")], key="k", digest="d") == ["r-1"]


def test_while_the_server_is_away_every_call_says_so(store: Store, postgres: Postgres) -> None:
    store.add(a_run("r-1"), lease="mine")
    postgres.stop()
    try:
        for call in (
            store.page,
            store.active,
            lambda: store.save(a_run("r-1"), lease="mine"),
            lambda: Tokens(store).any(),
            lambda: Services(store).beat("mine"),
        ):
            with pytest.raises(Unavailable) as caught:
                call()
            assert store.location in caught.value.message
            assert PASSWORD not in caught.value.message
    finally:
        postgres.start()
    store.save(a_run("r-1"), lease="mine")


def test_claims_are_not_doubled_when_the_server_crashes(store: Store, postgres: Postgres) -> None:
    ids = [f"r-{number:03}" for number in range(100)]
    store.submit([a_run(run_id) for run_id in ids], key=None, digest="")
    begun = threading.Event()

    def claim(lease: str) -> set[str]:
        claimed = set()
        for run_id in ids:
            if patiently(partial(store.take_lease, run_id, held_by=None, lease=lease)):
                claimed.add(run_id)
                begun.set()
        return claimed

    with ThreadPoolExecutor(2) as threads:
        claims = {lease: threads.submit(claim, lease) for lease in ("mine", "theirs")}
        begun.wait()
        postgres.restart(immediate=True)
    held = {run.id: held_by for run, held_by in store.active()}
    known = {run_id: lease for lease, done in claims.items() for run_id in done.result()}
    assert sum(len(done.result()) for done in claims.values()) == len(known)
    assert known.items() <= held.items()
    assert None not in held.values()
    # A commit whose answer was lost holds, though who asked for it does not know.
    assert len(known) >= 98


def test_what_was_acknowledged_before_a_crash_is_there_once(
    store: Store, postgres: Postgres
) -> None:
    done = threading.Event()

    def submit() -> int:
        count = 0
        while not done.is_set():
            name = f"r-{count:04}"
            assert patiently(partial(store.submit, [a_run(name)], key=name, digest="d")) == [name]
            count += 1
        return count

    with ThreadPoolExecutor(1) as thread:
        counting = thread.submit(submit)
        for _ in range(3):
            postgres.restart(immediate=True)
        done.set()
    arrivals = [run.arrival for run, _ in store.active()]
    assert arrivals == list(range(1, counting.result() + 1))


def test_a_lock_that_is_never_let_go_of_is_waited_for_only_so_long(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "LIMITS", "SET lock_timeout = '100ms'")
    store = Store(postgres_url)
    store.add(a_run("r-1"), lease="mine")
    with store.holding("r-1", "mine"), pytest.raises(Unavailable, match="lock timeout"):
        store.take_lease("r-1", held_by="mine", lease="theirs")
    with (
        store.writing(database.Lock.ARRIVE),
        pytest.raises(Unavailable, match="lock timeout"),
    ):
        store.submit([a_run("r-2")], key=None, digest="")
    assert store.submit([a_run("r-2")], key=None, digest="") == ["r-2"]
    store.close()


def test_readers_see_one_moment_and_cannot_write(store: Store) -> None:
    count = sa.text("SELECT count(*) FROM runs")
    with store.reading() as connection:
        assert connection.execute(count).scalar_one() == 0
        store.add(a_run("r-1"))
        assert connection.execute(count).scalar_one() == 0
    with pytest.raises(RlctlError, match="read-only"), store.reading() as connection:
        connection.execute(sa.text("DELETE FROM runs"))
    assert "r-1" in store


def test_more_threads_than_connections_take_turns(store: Store) -> None:
    store.add(a_run("r-1"))
    with ThreadPoolExecutor(40) as threads:
        found = list(threads.map(lambda _: store.get("r-1").id, range(400)))
    assert found == ["r-1"] * 400


def test_when_every_connection_is_taken_the_next_one_is_told(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "POOL", {"pool_size": 1, "max_overflow": 0, "pool_timeout": 0.1})
    store = Store(postgres_url)
    with store.reading(), pytest.raises(Unavailable, match="every connection to it is in use"):
        store.page()
    assert store.page().runs == ()
    store.close()


def test_a_location_may_be_written_either_way_and_hides_the_password(postgres_url: str) -> None:
    for scheme in ("postgres", "postgresql", "postgresql+psycopg"):
        store = Store(postgres_url.replace("postgresql", scheme, 1))
        assert store.location.startswith("postgresql://rlctl:***@/db_")
        store.close()
    _, _, rest = postgres_url.partition("@")
    apart = Store(f"postgresql://rlctl@{rest}&password=s3cret%2Fwith%40signs")
    assert "password=***" in apart.location
    assert "s3cret" not in apart.location
    apart.close()


def test_a_wrong_password_or_name_is_a_mistake_and_is_not_repeated(postgres: Postgres) -> None:
    url = postgres.url("nowhere")
    with pytest.raises(BadInput, match='database "nowhere" does not exist') as caught:
        Store(url)
    assert caught.value.hint == "Check the user, the password and the name in the URL."
    with pytest.raises(BadInput, match="password authentication failed") as caught:
        Store(url.replace("s3cret", "gue55ed"))
    assert "gue55ed" not in caught.value.message
    assert ":***@" in caught.value.message


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1") as caught:
        Store("postgresql://me:hidden@127.0.0.1:1/name")
    assert "hidden" not in caught.value.message
    assert "PostgreSQL" in str(caught.value.hint)


@pytest.mark.parametrize(
    "url",
    ["postgresql://me:hidden/x@host:port/name", "postgresql://me:hidden@host:54x2/name"],
)
def test_a_url_that_cannot_be_read_is_not_repeated(url: str) -> None:
    with pytest.raises(BadInput, match="postgresql://user:password@host:5432/name") as caught:
        Store(url)
    assert "hidden" not in caught.value.message


def test_another_kind_of_database_is_refused() -> None:
    with pytest.raises(BadInput, match="is a mysql:// URL; must be a path, or postgresql://"):
        Store("mysql://me:hidden@host/name")


def test_without_its_driver_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"postgresql://me:\*\*\*@host/name") as caught:
        Store("postgresql://me:hidden@host/name")
    assert caught.value.hint == "Install it with `pip install 'rl-orch[postgres]'`."


def test_tokens_and_services_are_shared_by_all_who_share_the_database(
    store: Store, postgres_url: str
) -> None:
    other, timer = Store(postgres_url), FakeClock()
    token, text = Tokens(store).create("ci", "operate")
    assert Tokens(other).check(text, now=token.created_at) == token
    lease = f"elsewhere/1:2/{'0' * 16}"
    here, there = Services(store, timer), Services(other)
    there.join(Service(id=lease, host="elsewhere", url="http://x", beat=0, started_at=1.0))
    for _ in range(3):
        timer.advance(5.0)
        assert here.alive(lease)
        there.beat(lease)
    assert [service.beat for service in here.list()] == [3]
    assert here.alive(lease)
    for alive in (True, False):
        timer.advance(5.0)
        assert here.alive(lease) is alive
    assert here.alive(pids.lease())
    other.close()
