"""What is said where a home has run directories that its database does not know."""

from rl_orch.cli.connection import Connected, ConnectionOptions
from rl_orch.cli.output import note, warn
from rl_orch.core.runs import unlisted
from rl_orch.records.queries import Query


def warn_of_unlisted(connected: Connected, target: ConnectionOptions) -> bool:
    """Whether there are such directories beside a database without runs; if so, it was said."""
    if target.server is not None or connected.ls(Query(limit=1)).runs:
        return False
    paths = unlisted.directories(target.folder)
    if paths:
        warn(unlisted.sentence(target.folder, paths))
        note(unlisted.remedy(target.folder, paths, flags=target.flags))
    return bool(paths)
