"""The tables, as the newest migration leaves them; a test holds the two together."""

import sqlalchemy as sa

HEAD = "0011"
"""The migration that these tables are at."""

METADATA = sa.MetaData()

ACTIVE = sa.text("state IN ('queued', 'starting', 'running', 'evaluating')")
"""The runs that have yet to end. SQLite uses their index for these very words alone."""

COUNT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""SQLite's INTEGER has 64 bits, PostgreSQL's has 32."""

NUMBER: sa.types.TypeEngine[float] = sa.REAL().with_variant(sa.Double(), "postgresql")
"""SQLite's REAL has 64 bits, PostgreSQL's has 32."""

RUNS = sa.Table(
    "runs",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("group_name", sa.Text, key="group"),
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
    sa.Column("group_size", sa.Integer),
    sa.Column("parent", sa.Text),
    sa.Column("role", sa.Text),
    sa.Column("tags", sa.Text, nullable=False, server_default="{}"),
    sa.Column("clock", sa.Text, nullable=False, server_default="env_steps"),
    sa.Column("note", sa.Text, nullable=False, server_default=""),
    sa.Index("idx_runs_created", "created_at", "id"),
    sa.Index("idx_runs_updated", "updated_at", "id"),
    sa.Index("idx_runs_name", "name", "id"),
    sa.Index("idx_runs_env_steps", "env_steps", "id"),
    sa.Index("idx_runs_state", "state", "id"),
    sa.Index("idx_runs_arrival", "arrival"),
    sa.Index("idx_runs_active", "state", "arrival", "id", sqlite_where=ACTIVE),
    sa.Index("idx_runs_group", "group"),
    sa.Index("idx_runs_parent", "parent"),
)

ATTEMPTS = sa.Table(
    "attempts",
    METADATA,
    sa.Column("run_id", sa.Text, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("handle", sa.Text),
    sa.Column("started_at", sa.Float, nullable=False),
    sa.Column("ended_at", sa.Float),
    sa.Column("exit_code", sa.Integer),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
)

MODELS = sa.Table(
    "models",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("model_path", sa.Text, nullable=False, unique=True),
    sa.Column("algorithm", sa.Text, nullable=False),
    sa.Column("env_id", sa.Text, nullable=False),
    sa.Column("timestamp", COUNT, nullable=False),
    sa.Column("total_timesteps", COUNT),
    sa.Column("mean_reward", NUMBER),
    sa.Column("std_reward", NUMBER),
    sa.Column("mean_episode_length", NUMBER),
    sa.Column("hyperparams", sa.Text),
    sa.Column("git_commit", sa.Text),
    sa.Column("validated", sa.Boolean, server_default="0"),
    sa.Column("run_id", sa.Text),
    sa.Column("policy", sa.Text, nullable=False, server_default="default"),
    sa.Column("verdict", sa.Text),
    sa.Column("config_hash", sa.Text),
    sa.Column("group_name", sa.Text, key="group"),
    sa.Column("lineage", sa.Text, nullable=False, server_default="{}"),
    sa.Column("digest", sa.Text),
    sa.Column("source", sa.Text, nullable=False, server_default="run"),
    sa.Column("retiring", sa.Boolean, nullable=False, server_default="0"),
    sa.Column("episodes", sa.Integer),
    sa.Column("checkpoint_digest", sa.Text),
    sa.Index("idx_timestamp", "timestamp"),
    sa.Index("idx_mean_reward", "mean_reward"),
    sa.Index("idx_validated", "validated"),
    sa.Index("idx_models_run", "run_id"),
    sa.Index("idx_models_env", "env_id"),
    sqlite_autoincrement=True,
)

ALIASES = sa.Table(
    "aliases",
    METADATA,
    sa.Column("env_id", sa.Text, primary_key=True),
    sa.Column("alias", sa.Text, primary_key=True),
    sa.Column("model_id", sa.Integer, sa.ForeignKey("models.id"), nullable=False),
    sa.Column("since", sa.Float, nullable=False),
    sa.Column("verdict_id", sa.Integer),
    sa.Index("idx_aliases_model", "model_id"),
)
"""Which model has a name in an environment. The database itself keeps a model that has one."""

ALIAS_HISTORY = sa.Table(
    "alias_history",
    METADATA,
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
    sa.Index("idx_alias_history", "env_id", "alias", "id"),
    sqlite_autoincrement=True,
)
"""Every change of an alias, for good: models that are gone are still named here."""

VERDICTS = sa.Table(
    "verdicts",
    METADATA,
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
    sa.Index("idx_verdicts_model", "model_id", "id"),
    sqlite_autoincrement=True,
)
"""What gates have said, with what they read: the report over so many episodes, and the files that
were played, by their digests; `baseline_id` is the model that they were compared with."""

META = sa.Table(
    "meta",
    METADATA,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)
"""Facts about the database itself: `home` is where its runs were when it was last opened."""

TOKENS = sa.Table(
    "tokens",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("scope", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("expires_at", sa.Float),
    sa.Column("revoked_at", sa.Float),
)

SUBMISSIONS = sa.Table(
    "submissions",
    METADATA,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("runs", sa.Text, nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
)
"""Idempotency keys: what was asked for with each, as a digest, and the runs that it made."""

SERVICES = sa.Table(
    "services",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("url", sa.Text, nullable=False),
    sa.Column("beat", sa.BigInteger, nullable=False),
    sa.Column("started_at", sa.Float, nullable=False),
)

JOBS = sa.Table(
    "jobs",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("ended_at", sa.Float),
    sa.Column("document", sa.Text, nullable=False),
    sa.Column("key", sa.Text, unique=True),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("lease", sa.Text, nullable=False),
    sa.Column("home", sa.Text, nullable=False),
    sa.Column("answer", sa.Text),
    sa.Index("idx_jobs_state", "state", "created_at"),
    sa.Index("idx_jobs_created", "created_at"),
)
"""Jobs: each as a whole in `document`, but for its `answer`, which may be large; `lease` is the
service that has it, and `home` where the files are that it may use."""
