"""Unit in which a run counts how far it is."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the column; runs that were made before count environment steps."""
    column = sa.Column("clock", sa.Text, nullable=False, server_default="env_steps")
    op.add_column("runs", column)
