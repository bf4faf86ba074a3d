"""Alembic's entry: runs the migrations on the connection that `schema_upgrade.py` hands over."""

from alembic import context

from rl_orch.core.store.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    transactional_ddl=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
