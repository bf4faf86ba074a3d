"""Over how many episodes the numbers of a model are."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the column; of models that were judged, the largest sample is what their numbers are."""
    op.add_column("models", sa.Column("episodes", sa.Integer))
    op.execute(
        "UPDATE models SET episodes = (SELECT MAX(verdicts.episodes) FROM verdicts "
        "WHERE verdicts.model_id = models.id AND verdicts.baseline_id IS NULL "
        "AND verdicts.digest = models.digest)"
    )
