"""`rlctl promote`: give a model an alias."""

from typing import Annotated

import typer

from rl_orch.cli.arguments import Json, ModelArgument
from rl_orch.cli.connection import ConnectionOptions
from rl_orch.cli.output import print_result
from rl_orch.cli.views.models import change_line


def command(
    model: ModelArgument,
    to: Annotated[
        str, typer.Option("--to", metavar="ALIAS", help="Such as production, staging, canary.")
    ],
    env: Annotated[
        str | None, typer.Option("--env", metavar="ENV", help="Refuse a model of any other one.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Whatever gates say; needs --reason.")
    ] = False,
    reason: Annotated[str | None, typer.Option(help="Why; it stays in the history.")] = None,
    allow_equal: Annotated[
        bool, typer.Option("--allow-equal", help="Not to be worse than the present one is enough.")
    ] = False,
    margin: Annotated[
        float,
        typer.Option(min=0.0, help="By how much less return it is still not worse."),
    ] = 0.0,
    episodes: Annotated[
        int | None,
        typer.Option(
            min=10, max=100_000, help="Compare the two over so many; 100, or what is stored."
        ),
    ] = None,
    *,
    target: ConnectionOptions,
    json: Json = False,
) -> None:
    """Give a model an alias, if gates let it pass.

    Its own gate must have passed it. Where another model has the alias, both play the same seeds,
    and it must be better by the lower bound of the 95 % interval of the difference. Exits with 3 if
    it is refused.

    Examples:

      rlctl promote 12 --to production
    """
    change = target.connect().models.promote(
        model,
        to,
        env=env,
        force=force,
        reason=reason,
        allow_equal=allow_equal,
        margin=margin,
        episodes=episodes,
    )
    print_result(change, change_line(change), as_json=json)
