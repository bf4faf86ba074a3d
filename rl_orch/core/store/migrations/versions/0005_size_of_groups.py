"""Number of runs that the group of a run was to have."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the column; of groups that were made before, nobody noted it."""
    op.add_column("runs", sa.Column("group_size", sa.Integer))
