"""Brings a database to the schema that this release knows, whatever it was at before."""

import logging

import sqlalchemy as sa

from rl_orch.core.store import migrations
from rl_orch.core.store.database import Database, Lock
from rl_orch.core.store.tables import HEAD
from rl_orch.errors import BadInput, RlctlError


def migrate(database: Database) -> None:
    """Make the tables, or bring them up to date. Of several that want to, one does it."""
    version = schema_version(database)
    if version == HEAD:
        return
    if version is not None and version > HEAD:
        raise BadInput(
            f"database {database.location!r} is at schema {version}, this rlctl knows {HEAD}",
            hint="Use the newer rlctl that wrote it.",
        )
    log = logging.getLogger("alembic")
    if log.level == logging.NOTSET:
        log.setLevel(logging.WARNING)  # A line for each step is no news to our callers.
    # Alembic takes half a second to load and is needed once per database.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", migrations.__path__[0])
    with database.adapting() as connection:
        database.lock(connection, Lock.MIGRATE)
        config.attributes["connection"] = connection
        command.upgrade(config, HEAD)


def schema_version(database: Database) -> str | None:
    """The migration that a database is at; None before the first."""
    with database.reading() as connection:
        if not sa.inspect(connection).has_table("alembic_version"):
            return None
        query = sa.text("SELECT version_num FROM alembic_version")
        versions = connection.execute(query).scalars().all()
    if len(versions) > 1:
        raise RlctlError(
            f"the database is at several schemas at once: {', '.join(versions)}",
            hint="Restore it from a copy; run directories are whole.",
        )
    return versions[0] if versions else None
