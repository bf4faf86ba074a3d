"""`rlctl rollback`: give an alias back to the model that had it before."""

from typing import Annotated

import typer

from rl_orch.cli.arguments import Database, Home, Json, Server
from rl_orch.cli.connection import connect
from rl_orch.cli.output import out, print_json
from rl_orch.cli.views.models import change_line
from rl_orch.cli.views.text import plain


def command(
    alias: Annotated[
        str, typer.Argument(metavar="ALIAS", help="Such as production, or production@CartPole-v1.")
    ],
    env: Annotated[
        str | None, typer.Option("--env", metavar="ENV", help="Where several have the alias.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Why; it stays in the history.")] = None,
    home: Home = None,
    database: Database = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Give an alias back to the model that had it before.

    Once more goes back once more. Models that are gone by now are passed over.
    """
    change = connect(home, database, server).models.rollback(alias, env=env, reason=reason)
    if json:
        print_json(plain(change))
    else:
        out().print(change_line(change))
