"""Arguments that several commands take, spelled once."""

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
Home = Annotated[
    Path | None,
    typer.Option("--home", help="Folder of the runs; RLCTL_HOME, or ./rlruns.", show_default=False),
]
Database = Annotated[
    Path | None,
    typer.Option(
        "--registry-db",
        envvar=["RL_REGISTRY_DB", "RL_REGISTRY_DB_PATH"],
        help="The database.",
        show_default=False,
    ),
]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Id, a unique beginning of it, name, or `last`.")
]
