"""Notes that people make on runs."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the column; runs that were made before have none."""
    op.add_column("runs", sa.Column("note", sa.Text, nullable=False, server_default=""))
