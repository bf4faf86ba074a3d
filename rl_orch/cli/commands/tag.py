"""`rlctl tag`: names and values that people give to runs."""

from typing import Annotated

import typer

from rl_orch.cli.arguments import Json
from rl_orch.cli.connection import ConnectionOptions
from rl_orch.cli.output import out, print_json, safe
from rl_orch.cli.views import subjects
from rl_orch.cli.views.subjects import SubjectArgument
from rl_orch.cli.views.text import tags_text
from rl_orch.core.runs.groups import of_runs
from rl_orch.spec import tags


def command(
    run: SubjectArgument,
    pairs: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Tags to set.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", help="A tag to remove; may be repeated.")
    ] = None,
    *,
    target: ConnectionOptions,
    json: Json = False,
) -> None:
    """Set and remove tags of a run, or of all runs of a group.

    `rlctl ls --tag NAME=VALUE` finds them.
    """
    connected = target.connect()
    chosen = dict(map(tags.pair, pairs or ()))
    meant = subjects.find_only(connected, run, ask=not json).runs
    tagged = of_runs(tuple(connected.tag(m.id, chosen, remove=remove or ()) for m in meant))
    if json:
        print_json(subjects.document(tagged))
        return
    for each in tagged.runs:
        out().print(safe(f"{each.id}  {tags_text(each)}"))
