"""Aliases with their history, verdicts with what they read, and models that can retire."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add columns and tables; the verdicts that models carry become rows of their own."""
    columns: tuple[sa.Column[object], ...] = (
        sa.Column("config_hash", sa.Text),
        sa.Column("group_name", sa.Text),
        sa.Column("lineage", sa.Text, nullable=False, server_default="{}"),
        sa.Column("digest", sa.Text),
        sa.Column("source", sa.Text, nullable=False, server_default="run"),
        sa.Column("retiring", sa.Boolean, nullable=False, server_default="0"),
    )
    for column in columns:
        op.add_column("models", column)
    op.create_index("idx_models_env", "models", ["env_id"])
    _create_aliases()
    op.create_table(
        "verdicts",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("model_id", sa.Integer, nullable=False),
        sa.Column("baseline_id", sa.Integer),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("passed", sa.Boolean, nullable=False),
        sa.Column("verdict", sa.Text, nullable=False),
        sa.Column("rules", sa.Text, nullable=False, server_default="[]"),
        sa.Column("report_path", sa.Text),
        sa.Column("report_sha256", sa.Text),
        sa.Column("digest", sa.Text),
        sa.Column("baseline_digest", sa.Text),
        sa.Column("episodes", sa.Integer),
        sqlite_autoincrement=True,
    )
    op.create_index("idx_verdicts_model", "verdicts", ["model_id", "id"])
    op.execute(
        "INSERT INTO verdicts (model_id, at, passed, verdict) "
        "SELECT id, timestamp, validated, verdict FROM models "
        "WHERE verdict IS NOT NULL AND validated IS NOT NULL ORDER BY id"
    )


def _create_aliases() -> None:
    op.create_table(
        "aliases",
        sa.Column("env_id", sa.Text, primary_key=True),
        sa.Column("alias", sa.Text, primary_key=True),
        sa.Column("model_id", sa.Integer, sa.ForeignKey("models.id"), nullable=False),
        sa.Column("since", sa.Float, nullable=False),
        sa.Column("verdict_id", sa.Integer),
    )
    op.create_index("idx_aliases_model", "aliases", ["model_id"])
    op.create_table(
        "alias_history",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("env_id", sa.Text, nullable=False),
        sa.Column("alias", sa.Text, nullable=False),
        sa.Column("model_id", sa.Integer),
        sa.Column("previous_id", sa.Integer),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("forced", sa.Boolean, nullable=False, server_default="0"),
        sa.Column("verdict_id", sa.Integer),
        sqlite_autoincrement=True,
    )
    op.create_index("idx_alias_history", "alias_history", ["env_id", "alias", "id"])
