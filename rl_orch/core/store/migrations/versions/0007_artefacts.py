"""Models that are artefacts: the digest of the checkpoint that each was sealed from."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the column; models of before are sealed as they are used, and have none until then."""
    op.add_column("models", sa.Column("checkpoint_digest", sa.Text))
