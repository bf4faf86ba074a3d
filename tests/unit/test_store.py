"""The store: durable rows, guarded writes, pages and references. Real SQLite throughout."""

import sqlite3
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from rl_orch.core.store import SAFE_WAL, Store
from rl_orch.core.tables import METADATA
from rl_orch.errors import BadInput, LeaseLost, NotFound, RlctlError
from rl_orch.records import Attempt, Evaluation, Run, State


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "söme földer ✓" / "rlctl.db")


def a_run(run_id: str, *, created_at: float = 0.0, **changes: object) -> Run:
    """A run to put in."""
    run = Run(
        id=run_id, name="cartpole", env="CartPole-v1", algo="ppo", config_hash="h", path="/p",
        seed=1, total_timesteps=10, created_at=created_at, updated_at=created_at,
    )  # fmt: skip
    return run.model_copy(update=changes)


def test_a_run_comes_back_as_it_was_put_in(store: Store) -> None:
    evaluation = Evaluation(mean=1.5, std=0.5, iqm=1.5, ci95=(1.0, 2.0), n=4)
    run = a_run("r-1", eval=evaluation, verdict="passed", sps=12.5, group="g", model_id=3)
    store.add(run)
    assert store.get("r-1") == run


def test_the_tables_are_what_the_migrations_make(store: Store) -> None:
    with store.reading() as connection:
        found = compare_metadata(MigrationContext.configure(connection), METADATA)
    assert found == []


def test_the_models_table_has_the_promised_columns_and_indexes(store: Store) -> None:
    with sqlite3.connect(store.path) as connection:
        columns = [row[1:4] for row in connection.execute("PRAGMA table_info(models)")]
        indexes = {row[1] for row in connection.execute("PRAGMA index_list(models)")}
        ddl = connection.execute("SELECT sql FROM sqlite_master WHERE name='models'").fetchone()[0]
    assert columns[:12] == [
        ("id", "INTEGER", 1),
        ("model_path", "TEXT", 1),
        ("algorithm", "TEXT", 1),
        ("env_id", "TEXT", 1),
        ("timestamp", "INTEGER", 1),
        ("total_timesteps", "INTEGER", 0),
        ("mean_reward", "REAL", 0),
        ("std_reward", "REAL", 0),
        ("mean_episode_length", "REAL", 0),
        ("hyperparams", "TEXT", 0),
        ("git_commit", "TEXT", 0),
        ("validated", "BOOLEAN", 0),
    ]
    assert {"idx_timestamp", "idx_mean_reward", "idx_validated"} <= indexes
    assert "AUTOINCREMENT" in ddl


def test_a_write_needs_the_lease(store: Store) -> None:
    store.add(a_run("r-1"))
    assert store.take_lease("r-1", held_by=None, lease="mine")
    store.save(a_run("r-1", state=State.STARTING), lease="mine")
    with pytest.raises(LeaseLost):
        store.save(a_run("r-1", state=State.FAILED), lease="theirs")
    assert store.get("r-1").state is State.STARTING


def test_of_many_that_want_the_lease_one_gets_it(store: Store) -> None:
    store.add(a_run("r-1"))
    won: list[str] = []

    def want(name: str) -> None:
        if store.take_lease("r-1", held_by=None, lease=name):
            won.append(name)

    threads = [threading.Thread(target=want, args=(str(i),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [store.lease_of("r-1")]


def test_a_lease_is_released_only_by_its_holder(store: Store) -> None:
    store.add(a_run("r-1"))
    store.take_lease("r-1", held_by=None, lease="mine")
    store.release("r-1", lease="theirs")
    assert store.lease_of("r-1") == "mine"
    store.release("r-1", lease="mine")
    assert store.lease_of("r-1") is None


def test_pages_go_through_all_runs_newest_first_without_a_gap(store: Store) -> None:
    for number in range(25):
        store.add(a_run(f"r-{number:02}", created_at=float(number // 3)))
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = store.page(limit=7, after=cursor)
        seen += [run.id for run in page.runs]
        cursor = page.next
        if cursor is None:
            break
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == len(set(seen)) == 25


def test_a_page_can_be_of_some_states_only(store: Store) -> None:
    store.add(a_run("r-1", state=State.FAILED))
    store.add(a_run("r-2", state=State.SUCCEEDED))
    assert [run.id for run in store.page(states=[State.FAILED]).runs] == ["r-1"]


def test_a_cursor_of_somebody_else_is_refused(store: Store) -> None:
    with pytest.raises(BadInput, match="cursor"):
        store.page(after="nonsense")


def test_a_run_is_found_by_id_beginning_name_or_last(store: Store) -> None:
    store.add(a_run("alpha-1", created_at=1.0, name="walker"))
    store.add(a_run("alpha-2", created_at=2.0, name="walker"))
    store.add(a_run("beta-1", created_at=0.0))
    assert store.find("alpha-1").id == "alpha-1"
    assert store.find("be").id == "beta-1"
    assert store.find("walker").id == "alpha-2"
    assert store.find("last").id == "alpha-2"
    with pytest.raises(BadInput, match="could be any of: alpha-2, alpha-1"):
        store.find("alpha")
    with pytest.raises(NotFound) as caught:
        store.find("alpha-11")
    assert caught.value.hint == "Did you mean 'alpha-1'?"


def test_a_reference_with_wildcards_is_taken_literally(store: Store) -> None:
    store.add(a_run("alpha-1"))
    for reference in ("%", "_lpha", "alph%"):
        with pytest.raises(NotFound):
            store.find(reference)


def test_attempts_are_kept_in_order_and_updated_in_place(store: Store) -> None:
    store.add(a_run("r-1"), lease="mine")
    first = Attempt(run_id="r-1", number=1, started_at=1.0)
    store.put_attempt(Attempt(run_id="r-1", number=2, started_at=2.0), lease="mine")
    store.put_attempt(first, lease="mine")
    store.put_attempt(first.model_copy(update={"exit_code": -9}), lease="mine")
    assert [(a.number, a.exit_code) for a in store.attempts("r-1")] == [(1, -9), (2, None)]


def test_removing_a_run_removes_its_attempts(store: Store) -> None:
    store.add(a_run("r-1"), lease="mine")
    store.put_attempt(Attempt(run_id="r-1", number=1, started_at=1.0), lease="mine")
    store.remove("r-1")
    assert store.attempts("r-1") == []


def test_a_database_of_a_newer_release_is_refused(store: Store) -> None:
    with store.writing() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(BadInput, match="schema 9999"):
        Store(store.path)


def test_a_file_that_is_no_database_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "rlctl.db"
    path.write_text("these are not the bytes you are looking for" * 100)
    with pytest.raises(RlctlError, match="not a database"):
        Store(path)


def test_a_reader_that_is_done_blocks_no_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl_orch.core.store.BUSY_TIMEOUT_S", 0.2)
    store = Store(tmp_path / "rlctl.db")
    store.add(a_run("r-1"))
    with store.reading() as reader:
        assert reader.execute(sa.text("SELECT id FROM runs")).scalars().all() == ["r-1"]
    # Still referred to, so that only the end of `reading` can have let go of the lock.
    store.add(a_run("r-2"))
    assert reader.closed
    assert {run.id for run in store.page().runs} == {"r-1", "r-2"}


def test_what_is_written_is_durable_and_the_file_is_sound(store: Store) -> None:
    store.add(a_run("r-1"))
    with store.reading() as connection:
        told = {
            name: connection.execute(sa.text(f"PRAGMA {name}")).scalar_one()
            for name in ("synchronous", "journal_mode", "foreign_keys", "integrity_check")
        }
    journal = "wal" if sqlite3.sqlite_version_info >= SAFE_WAL else "delete"
    full = 2
    assert told == {
        "synchronous": full,
        "journal_mode": journal,
        "foreign_keys": 1,
        "integrity_check": "ok",
    }
