"""What is said where a home has run directories that its database does not know."""

from pathlib import Path

from rl_orch.cli.connection import Connected, home_folder, place_flags
from rl_orch.cli.output import note, warn
from rl_orch.core.runs import unlisted
from rl_orch.records.queries import Query


def warn_of_unlisted(
    connected: Connected, home: Path | None, database: str | None, server: str | None
) -> bool:
    """Whether there are such directories beside a database without runs; if so, it was said."""
    if server is not None or connected.ls(Query(limit=1)).runs:
        return False
    folder = home_folder(home)
    paths = unlisted.directories(folder)
    if paths:
        warn(unlisted.sentence(folder, paths))
        note(unlisted.remedy(folder, paths, flags=place_flags(home, database)))
    return bool(paths)
