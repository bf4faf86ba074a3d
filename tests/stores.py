"""Stores for tests that both databases must pass, and runs to put into them.

Fixtures: `location` is a new and empty database of each kind, `store` a store that is open there.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_orch.core.store.runs import Store
from rl_orch.records import Run
from tests.postgres import Postgres

KINDS = ("sqlite", "postgresql")


def a_run(run_id: str, *, created_at: float = 0.0, **changes: object) -> Run:
    """A run to put in."""
    run = Run(
        id=run_id, name="cartpole", env="CartPole-v1", algo="ppo", config_hash="h", path="/p",
        seed=1, total_timesteps=10, created_at=created_at, updated_at=created_at,
    )  # fmt: skip
    return run.model_copy(update=changes)


@pytest.fixture(scope="session")
def migrated(postgres: Postgres) -> str:
    """The name of a PostgreSQL database that has every table and no row."""
    name = postgres.create()
    Store(postgres.url(name)).close()
    return name


@pytest.fixture(params=KINDS)
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """Where there is no database yet, or an empty one."""
    if request.param == "sqlite":
        return tmp_path / "söme földer ✓" / "rlctl.db"
    postgres: Postgres = request.getfixturevalue("postgres")
    return postgres.database()


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store without a run."""
    if request.param == "sqlite":
        made = Store(tmp_path / "söme földer ✓" / "rlctl.db")
    else:
        postgres: Postgres = request.getfixturevalue("postgres")
        made = Store(postgres.database(like=request.getfixturevalue("migrated")))
    yield made
    made.close()
