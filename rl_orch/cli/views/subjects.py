"""What a word on the command line means: a run, or a group with all of its runs."""

from typing import Annotated, Any

import typer

from rl_orch.cli.connection import Connected
from rl_orch.cli.output import safe
from rl_orch.cli.views.text import plain, state_counts, state_text
from rl_orch.core.runs.groups import RunOrGroup, of_runs

SubjectArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="A run or a group: id, a unique beginning of it, name, or `last`."
    ),
]


def reason(subject: RunOrGroup) -> str:
    """Why it is in its state, in words."""
    return subject.runs[0].reason if subject.group is None else state_counts(subject.group)


def document(subject: RunOrGroup) -> dict[str, Any]:
    """The run, or the group with its runs, as every `--json` shows it."""
    if subject.group is None:
        return plain(subject.runs[0])
    runs = [plain(run) for run in subject.runs]
    return plain(subject.group) | {"group": subject.group.id, "runs": runs}


def line(subject: RunOrGroup) -> str:
    """What has become of it in a line, with rich's markup."""
    return f"{safe(subject.id)}  {state_text(subject.whole)}: {safe(reason(subject))}"


def find(connected: Connected, reference: str) -> RunOrGroup:
    """The run or the group that is meant, as it really is."""
    group = connected.group(reference)
    if group is None:
        return RunOrGroup((connected.get(reference),))
    return of_group(connected, group.id)


def of_group(connected: Connected, group_id: str) -> RunOrGroup:
    """A group and its runs."""
    return of_runs(connected.group_runs(group_id))
