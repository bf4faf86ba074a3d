"""The schema in SQLite and in PostgreSQL: made when opened, brought up to date with its rows."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext

from rl_orch.core.registry.models import Registry
from rl_orch.core.store import migrations
from rl_orch.core.store.database import Database
from rl_orch.core.store.jobs import Jobs
from rl_orch.core.store.runs import Store
from rl_orch.core.store.schema_upgrade import migrate
from rl_orch.core.store.tables import HEAD, METADATA
from rl_orch.errors import BadInput
from rl_orch.records import Attempt, State, Verdict
from rl_orch.records.jobs import Job

OLD_RUN = {
    "name": "walker", "group_name": None, "state": "failed", "reason": "why", "attempt": 1,
    "env": "CartPole-v1", "algo": "ppo", "env_steps": 5, "config_hash": "h", "path": "/p",
    "resume": "none", "seed": 1, "total_timesteps": 10, "updated_at": 9.0, "lease": "12:34/x",
}  # fmt: skip


def go_to(location: Path | str, version: str) -> None:
    """Bring an empty database to a version."""
    database = Database(location)
    config = Config()
    config.set_main_option("script_location", migrations.__path__[0])
    with database.writing() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, version)
    database.close()


def fill_old(location: Path | str) -> None:
    """Rows as the first release wrote them: three runs, an attempt, a model."""
    database = Database(location)
    with database.writing() as connection:
        runs = sa.Table("runs", sa.MetaData(), autoload_with=connection)
        for run_id, created_at in (("c", 2.0), ("a", 3.0), ("b", 1.0)):
            connection.execute(runs.insert().values(id=run_id, created_at=created_at, **OLD_RUN))
        connection.execute(
            sa.text("INSERT INTO attempts (run_id, number, started_at) VALUES ('a', 1, 5.5)")
        )
        connection.execute(
            sa.text(
                "INSERT INTO models (model_path, algorithm, env_id, timestamp, mean_reward, run_id)"
                " VALUES ('/p/m', 'ppo', 'CartPole-v1', 7, 1.5, 'a')"
            )
        )
    database.close()


def test_the_tables_are_what_the_migrations_make(store: Store) -> None:
    with store.reading() as connection:
        found = compare_metadata(MigrationContext.configure(connection), METADATA)
    assert found == []


def test_a_database_of_the_first_release_is_upgraded_with_its_rows(location: Path | str) -> None:
    go_to(location, "0001")
    fill_old(location)
    store = Store(location)
    run = store.get("a")
    assert (run.name, run.state, run.env_steps) == ("walker", State.FAILED, 5)
    assert (run.runner, run.queue, run.priority, run.max_running) == ("local", "default", 0, None)
    assert (run.after, run.cpus, run.gpus, run.memory_mb, run.retries) == ((), 1, 0, 512, 0)
    assert [store.get(run_id).arrival for run_id in ("b", "c", "a")] == [1, 2, 3]
    assert store.lease_of("a") == "12:34/x"
    assert store.attempts("a") == [Attempt(run_id="a", number=1, started_at=5.5)]
    assert [model.mean_reward for model in Registry(store).of_run("a")] == [1.5]
    new = run.model_copy(update={"id": "d"})
    assert store.submit([new], key=None, digest="") == ["d"]
    assert store.get("d").arrival == 4
    store.close()


def test_the_runs_of_a_group_become_its_seeds(location: Path | str) -> None:
    go_to(location, "0005")
    database = Database(location)
    with database.writing() as connection:
        runs = sa.Table("runs", sa.MetaData(), autoload_with=connection)
        for run_id, group in (("a", None), ("b", "g")):
            row = OLD_RUN | {"id": run_id, "group_name": group, "created_at": 1.0}
            connection.execute(runs.insert().values(**row))
    database.close()
    store = Store(location)
    relations = [(run.parent, run.role, run.tags) for run in map(store.get, ("a", "b"))]
    assert relations == [(None, None, {}), ("g", "seed", {})]
    store.close()


def test_verdicts_that_models_carried_become_rows(location: Path | str) -> None:
    go_to(location, "0002")
    database = Database(location)
    passed = Verdict(passed=True, checks=()).model_dump_json()
    with database.writing() as connection:
        for path, verdict in (("/p/judged", passed), ("/p/unjudged", None)):
            connection.execute(
                sa.text(
                    "INSERT INTO models (model_path, algorithm, env_id, timestamp, validated, "
                    "verdict) VALUES (:path, 'ppo', 'CartPole-v1', 7, :validated, :verdict)"
                ),
                {"path": path, "verdict": verdict, "validated": verdict is not None},
            )
    database.close()
    store = Store(location)
    registry = Registry(store)
    judged, unjudged = (registry.at(Path(path)) for path in ("/p/judged", "/p/unjudged"))
    assert judged is not None
    assert unjudged is not None
    assert (judged.validated, judged.retiring, judged.source, judged.lineage) == (
        True, False, "run", {},
    )  # fmt: skip
    (stored,) = registry.verdicts_on(judged.id)
    assert (stored.passed, stored.at, stored.verdict) == (True, 7.0, judged.verdict)
    assert registry.verdicts_on(unjudged.id) == []
    store.close()


def test_answers_of_jobs_get_a_column_of_their_own(location: Path | str) -> None:
    go_to(location, "0010")
    database = Database(location)
    done = Job(id="a", kind="doctor", arguments={}, created_at=1.0, answer={"findings": ["x"]})
    known = [done, Job(id="b", kind="doctor", arguments={}, created_at=2.0)]
    with database.writing() as connection:
        rows = sa.Table("jobs", sa.MetaData(), autoload_with=connection)
        for job in known:
            row = {"id": job.id, "state": "succeeded", "created_at": job.created_at}
            row |= {"document": job.model_dump_json(), "digest": "", "lease": "", "home": "/"}
            connection.execute(rows.insert().values(**row))
    database.close()
    store = Store(location)
    jobs = Jobs(store)
    assert [jobs.get(job.id).job for job in known] == known
    assert [job.answer for job in jobs.newest(2)] == [None, None]
    store.close()


def test_several_that_open_a_database_at_once_make_it_once(location: Path | str) -> None:
    go_to(location, "0001")
    fill_old(location)
    databases = [Database(location) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(migrate, databases))
    with databases[0].reading() as connection:
        query = sa.text("SELECT version_num FROM alembic_version")
        assert connection.execute(query).scalars().all() == [HEAD]
    for database in databases:
        database.close()


def test_a_database_of_a_newer_release_is_refused(location: Path | str) -> None:
    store = Store(location)
    with store.writing() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(BadInput, match="schema 9999"):
        Store(location)
    store.close()


def test_the_numbers_of_a_model_that_was_judged_are_of_its_largest_sample(
    location: Path | str,
) -> None:
    go_to(location, "0003")
    database = Database(location)
    with database.writing() as connection:
        connection.execute(
            sa.text(
                "INSERT INTO models (model_path, algorithm, env_id, timestamp, digest) "
                "VALUES ('/p/m', 'ppo', 'CartPole-v1', 7, 'd')"
            )
        )
        known = ((None, "d", 20), (None, "d", 10), (None, "old", 90), (5, "d", 50))
        for baseline, digest, episodes in known:
            connection.execute(
                sa.text(
                    "INSERT INTO verdicts (model_id, baseline_id, at, passed, verdict, digest, "
                    "episodes) VALUES (1, :baseline, 1, :passed, :verdict, :digest, :episodes)"
                ),
                {
                    "baseline": baseline,
                    "digest": digest,
                    "episodes": episodes,
                    "passed": True,
                    "verdict": Verdict(passed=True, checks=()).model_dump_json(),
                },
            )
    database.close()
    store = Store(location)
    assert Registry(store).get(1).episodes == 20
    store.close()
