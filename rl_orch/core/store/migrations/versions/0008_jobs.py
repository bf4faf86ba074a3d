"""Jobs: requests that a service carries out, and what came of them."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("ended_at", sa.Float),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("key", sa.Text, unique=True),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("lease", sa.Text, nullable=False),
        sa.Column("home", sa.Text, nullable=False),
    )
    op.create_index("idx_jobs_state", "jobs", ["state", "created_at"])
    op.create_index("idx_jobs_created", "jobs", ["created_at"])
