"""Runs, attempts, models, and facts about the database itself."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the first tables."""
    op.create_table(
        "meta",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("group_name", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("env", sa.Text, nullable=False),
        sa.Column("algo", sa.Text, nullable=False),
        sa.Column("env_steps", sa.BigInteger, nullable=False),
        sa.Column("sps", sa.Float),
        sa.Column("config_hash", sa.Text, nullable=False),
        sa.Column("eval", sa.Text),
        sa.Column("verdict", sa.Text),
        sa.Column("model_id", sa.Integer),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("resume", sa.Text, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("total_timesteps", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("updated_at", sa.Float, nullable=False),
        sa.Column("lease", sa.Text),
    )
    op.create_index("idx_runs_created", "runs", ["created_at", "id"])
    op.create_index("idx_runs_state", "runs", ["state"])
    op.create_table(
        "attempts",
        sa.Column("run_id", sa.Text, sa.ForeignKey("runs.id", ondelete="CASCADE")),
        sa.Column("number", sa.Integer),
        sa.Column("handle", sa.Text),
        sa.Column("started_at", sa.Float, nullable=False),
        sa.Column("ended_at", sa.Float),
        sa.Column("exit_code", sa.Integer),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("run_id", "number"),
    )
    op.create_table(
        "models",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("model_path", sa.Text, nullable=False, unique=True),
        sa.Column("algorithm", sa.Text, nullable=False),
        sa.Column("env_id", sa.Text, nullable=False),
        sa.Column("timestamp", sa.Integer, nullable=False),
        sa.Column("total_timesteps", sa.Integer),
        sa.Column("mean_reward", sa.REAL),
        sa.Column("std_reward", sa.REAL),
        sa.Column("mean_episode_length", sa.REAL),
        sa.Column("hyperparams", sa.Text),
        sa.Column("git_commit", sa.Text),
        sa.Column("validated", sa.Boolean, server_default="0"),
        sa.Column("run_id", sa.Text),
        sa.Column("policy", sa.Text, nullable=False, server_default="default"),
        sa.Column("verdict", sa.Text),
        sqlite_autoincrement=True,
    )
    op.create_index("idx_timestamp", "models", ["timestamp"])
    op.create_index("idx_mean_reward", "models", ["mean_reward"])
    op.create_index("idx_validated", "models", ["validated"])
    op.create_index("idx_models_run", "models", ["run_id"])
