"""Answers of jobs in a column of their own, so that a listing of jobs loads none."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

JOBS = sa.table("jobs", sa.column("id"), sa.column("document"), sa.column("answer"))


def upgrade() -> None:
    """Add the column, and move what was answered there, one job after another."""
    op.add_column("jobs", sa.Column("answer", sa.Text))
    connection = op.get_bind()
    for job_id in connection.execute(sa.select(JOBS.c.id)).scalars().all():
        job = JOBS.c.id == job_id
        text = connection.execute(sa.select(JOBS.c.document).where(job)).scalar_one()
        document = json.loads(text)
        answer = document.pop("answer", None)
        if answer is not None:
            parts = {"document": json.dumps(document), "answer": json.dumps(answer)}
            connection.execute(sa.update(JOBS).where(job).values(**parts))
