"""`rlctl load`: give a run other weights while it goes on."""

from typing import Annotated

import typer

from rl_orch.cli.arguments import Json
from rl_orch.cli.connection import ConnectionOptions
from rl_orch.cli.live.commands import Reply, tell
from rl_orch.cli.policy_arguments import FORMS
from rl_orch.cli.spec_flags import absolute
from rl_orch.cli.views.subjects import SubjectArgument

Source = Annotated[str, typer.Argument(metavar="SOURCE", help=FORMS)]


def command(
    run: SubjectArgument, source: Source, *, target: ConnectionOptions, json: Json = False
) -> None:
    """Give a run other weights while it goes on.

    Between two iterations, its policy becomes that of the source, with critics and the optimiser's
    state where the source has them; counters, generators and experience stay. A copy of the
    weights is in the run's directory before this returns, so that it resumes exactly. Networks that
    differ are refused.

    Example:

      rlctl load last best@CartPole-v1
    """
    tell(target, run, ("load", {"source": absolute(source)}), json=json, text=_said)


def _said(reply: Reply) -> str:
    parts = " and ".join(reply["parts"])
    return f"{parts} of {reply['from']}, from step {reply['step']:,} on"
