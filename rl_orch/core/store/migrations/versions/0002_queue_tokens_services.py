"""Columns that the scheduler goes by, tokens, idempotency keys and services; an index for every
order.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

SORTED = {
    "idx_runs_updated": ["updated_at", "id"],
    "idx_runs_name": ["name", "id"],
    "idx_runs_env_steps": ["env_steps", "id"],
    "idx_runs_state": ["state", "id"],
    "idx_runs_arrival": ["arrival"],
    "idx_runs_group": ["group_name"],
}
ACTIVE = sa.text("state IN ('queued', 'starting', 'running', 'evaluating')")
WIDE: dict[str, tuple[sa.types.TypeEngine[Any], sa.types.TypeEngine[Any]]] = {
    "timestamp": (sa.Integer(), sa.BigInteger()),
    "total_timesteps": (sa.Integer(), sa.BigInteger()),
    "mean_reward": (sa.REAL(), sa.Double()),
    "std_reward": (sa.REAL(), sa.Double()),
    "mean_episode_length": (sa.REAL(), sa.Double()),
}
"""Columns of `models` that have 64 bits in SQLite under the old type, and half in PostgreSQL."""


def upgrade() -> None:
    """Add columns, tables and indexes; runs that are there arrived in the order they were made."""
    columns: tuple[sa.Column[object], ...] = (
        sa.Column("runner", sa.Text, nullable=False, server_default="local"),
        sa.Column("queue", sa.Text, nullable=False, server_default="default"),
        sa.Column("priority", sa.Integer, nullable=False, server_default="0"),
        sa.Column("arrival", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("max_running", sa.Integer),
        sa.Column("after", sa.Text, nullable=False, server_default="[]"),
        sa.Column("cpus", sa.Integer, nullable=False, server_default="1"),
        sa.Column("gpus", sa.Integer, nullable=False, server_default="0"),
        sa.Column("memory_mb", sa.BigInteger, nullable=False, server_default="512"),
        sa.Column("retries", sa.Integer, nullable=False, server_default="0"),
    )
    for column in columns:
        op.add_column("runs", column)
    _number_arrivals()
    op.drop_index("idx_runs_state", "runs")
    for index, keys in SORTED.items():
        op.create_index(index, "runs", keys)
    op.create_index("idx_runs_active", "runs", ["state", "arrival", "id"], sqlite_where=ACTIVE)
    if op.get_bind().dialect.name == "postgresql":
        for name, (narrow, wide) in WIDE.items():
            op.alter_column("models", name, existing_type=narrow, type_=wide)
    op.create_table(
        "tokens",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("expires_at", sa.Float),
        sa.Column("revoked_at", sa.Float),
    )
    op.create_table(
        "submissions",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("runs", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
    )
    op.create_table(
        "services",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("beat", sa.BigInteger, nullable=False),
        sa.Column("started_at", sa.Float, nullable=False),
    )


def _number_arrivals() -> None:
    """One by one: older SQLite has no UPDATE … FROM."""
    runs = sa.table("runs", *map(sa.column, ("id", "created_at", "arrival")))
    connection = op.get_bind()
    ids = connection.execute(sa.select(runs.c.id).order_by(runs.c.created_at, runs.c.id)).scalars()
    places = [{"run": run, "place": place} for place, run in enumerate(ids, start=1)]
    if places:
        statement = sa.update(runs).where(runs.c.id == sa.bindparam("run"))
        connection.execute(statement.values(arrival=sa.bindparam("place")), places)
