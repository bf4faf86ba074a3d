"""Parent, role and tags of a run."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the columns; the runs of a group are its seeds."""
    op.add_column("runs", sa.Column("parent", sa.Text))
    op.add_column("runs", sa.Column("role", sa.Text))
    op.add_column("runs", sa.Column("tags", sa.Text, nullable=False, server_default="{}"))
    op.execute("UPDATE runs SET parent = group_name, role = 'seed' WHERE group_name IS NOT NULL")
    op.create_index("idx_runs_parent", "runs", ["parent"])
