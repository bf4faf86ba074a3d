"""Arguments that several commands take, spelled once."""

from pathlib import Path
from typing import Annotated

import typer

from rl_orch.errors import BadInput


def _refuse_elsewhere(context: typer.Context, server: str | None) -> None:
    if server is not None:
        raise BadInput(
            f"`{context.command_path}` cannot be done through --server or RLCTL_SERVER",
            hint="Run it where the service is, in its home, without them.",
        )


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Show no progress.")]
Home = Annotated[
    Path | None,
    typer.Option("--home", help="Folder of the runs; RLCTL_HOME, or ./rlruns.", show_default=False),
]
Database = Annotated[
    str | None,
    typer.Option(
        "--registry-db",
        metavar="URL|PATH",
        envvar=["RL_REGISTRY_DB", "RL_REGISTRY_DB_PATH"],
        help="The database: a path, or postgresql://…",
        show_default=False,
    ),
]
ServiceDatabase = Annotated[
    str | None,
    typer.Option(
        "--database",
        "--registry-db",
        metavar="URL|PATH",
        envvar=["RL_REGISTRY_DB", "RL_REGISTRY_DB_PATH"],
        help="The database: a path, or postgresql://… to share it with other services.",
        show_default=False,
    ),
]
Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        envvar="RLCTL_SERVER",
        help="Ask this service, with the token in RLCTL_TOKEN, and not that of the home.",
        show_default=False,
    ),
]
Elsewhere = Annotated[
    str | None,
    typer.Option("--server", envvar="RLCTL_SERVER", hidden=True, callback=_refuse_elsewhere),
]
"""The same, where a command cannot be carried out but where the service is."""

Detach = Annotated[
    bool, typer.Option("-d", "--detach", help="Queue it and return; a service carries it out.")
]
ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="Id, alias, alias@ENV, best@ENV, or a run: the model it ended with."
    ),
]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Id, a unique beginning of it, name, or `last`.")
]
