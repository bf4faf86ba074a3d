"""`rlctl note`: what people have to say of a run."""

from typing import Annotated

import typer

from rl_orch.cli.arguments import Json
from rl_orch.cli.connection import ConnectionOptions
from rl_orch.cli.output import out, print_json, safe
from rl_orch.cli.views import subjects
from rl_orch.cli.views.subjects import SubjectArgument
from rl_orch.core.runs.groups import of_runs


def command(
    run: SubjectArgument,
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="The note; an empty one removes it.")
    ] = None,
    *,
    target: ConnectionOptions,
    json: Json = False,
) -> None:
    """Note something on a run, or on all runs of a group; without a text, print the note.

    `rlctl show` shows it, and `rlctl ls --columns run,name,note` lists it.

    Example:

      rlctl note last "the first one with frame stacking"
    """
    connected = target.connect()
    if text is None:
        noted = subjects.find(connected, run)
    else:
        meant = subjects.find_only(connected, run, ask=not json).runs
        noted = of_runs(tuple(connected.note(each.id, text) for each in meant))
    if json:
        print_json(subjects.document(noted))
        return
    for each in noted.runs:
        out().print(safe(f"{each.id}  {each.note or 'no note'}"))
