"""What the store does in SQLite alone: files, journals, locks. `tests/contract` has the rest."""

import logging
import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa

from rl_orch.addresses import is_url
from rl_orch.core.store.database import SAFE_WAL, hide_password
from rl_orch.core.store.runs import Store
from rl_orch.core.store.tables import META
from rl_orch.errors import RlctlError, Unavailable
from tests.stores import a_run


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "söme földer ✓" / "rlctl.db")


def test_a_path_may_be_a_string(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "rlctl.db"))
    assert store.location == str(tmp_path / "rlctl.db")
    assert (tmp_path / "rlctl.db").is_file()


def test_a_location_is_shown_without_its_password(tmp_path: Path) -> None:
    assert hide_password(tmp_path) == hide_password(str(tmp_path)) == str(tmp_path)
    url = "postgres://me:hidden@host:5432/name?sslmode=require&sslpassword=hidden"
    shown = "postgresql://me:***@host:5432/name?sslmode=require&sslpassword=***"
    assert hide_password(url) == shown
    assert is_url(url)
    assert not is_url(str(tmp_path))


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RlctlError, match="cannot be made: Not a directory"):
        Store(tmp_path / "file" / "home" / "rlctl.db")


def test_the_models_table_has_the_promised_columns_and_indexes(store: Store) -> None:
    with sqlite3.connect(store.location) as connection:
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


def test_a_file_that_is_no_database_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "rlctl.db"
    path.write_text("these are not the bytes you are looking for" * 100)
    with pytest.raises(RlctlError, match="not a database"):
        Store(path)


def test_a_new_home_logs_no_line_for_each_step_of_its_schema(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert list(Store(tmp_path / "rlctl.db").page().runs) == []
    assert [record.name for record in caplog.records if "alembic" in record.name] == []


def test_a_reader_that_is_done_blocks_no_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl_orch.core.store.database.BUSY_TIMEOUT_S", 0.2)
    store = Store(tmp_path / "rlctl.db")
    store.add(a_run("r-1"))
    with store.reading() as reader:
        assert reader.execute(sa.text("SELECT id FROM runs")).scalars().all() == ["r-1"]
    # Still referred to, so that only the end of `reading` can have let go of the lock.
    store.add(a_run("r-2"))
    assert reader.closed
    assert {run.id for run in store.page().runs} == {"r-1", "r-2"}


def test_a_writer_that_never_ends_is_waited_for_only_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl_orch.core.store.database.BUSY_TIMEOUT_S", 0.1)
    store = Store(tmp_path / "rlctl.db")
    with store.writing(), pytest.raises(Unavailable, match="database is locked"):
        store.add(a_run("r-1"))
    store.add(a_run("r-1"))


def test_a_full_disk_may_have_room_later(store: Store) -> None:
    def write_too_much() -> None:
        with store.writing() as connection:
            pages = connection.execute(sa.text("PRAGMA page_count")).scalar_one()
            connection.execute(sa.text(f"PRAGMA max_page_count = {pages}"))
            connection.execute(META.insert().values(key="k", value="x" * 1_000_000))

    with pytest.raises(Unavailable, match="full"):
        write_too_much()
    assert store.page().runs == ()
    store.add(a_run("r-1"))


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
