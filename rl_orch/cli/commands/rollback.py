"""`rlctl rollback`: give an alias back to the model that had it before."""

from typing import Annotated

import typer

from rl_orch.cli.arguments import AliasArgument, Json
from rl_orch.cli.connection import ConnectionOptions
from rl_orch.cli.output import print_result
from rl_orch.cli.views.models import change_line


def command(
    alias: AliasArgument,
    env: Annotated[
        str | None, typer.Option("--env", metavar="ENV", help="Where several have the alias.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Why; it stays in the history.")] = None,
    *,
    target: ConnectionOptions,
    json: Json = False,
) -> None:
    """Give an alias back to the model that had it before.

    Once more goes back once more. Models that are gone by now are passed over.
    """
    change = target.connect().models.rollback(alias, env=env, reason=reason)
    print_result(change, change_line(change), as_json=json)
