"""What a word on the command line means: a run, or a group with all of its runs."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from rl_orch.cli.connection import Connected
from rl_orch.cli.output import safe
from rl_orch.cli.words import plain, state_counts, state_text
from rl_orch.core.groups import fold
from rl_orch.records import Group, Run

SubjectArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="A run or a group: id, a unique beginning of it, name, or `last`."
    ),
]


@dataclass(frozen=True, slots=True)
class Subject:
    """A run, or a group and its runs by seed."""

    runs: tuple[Run, ...]
    group: Group | None = None

    @property
    def id(self) -> str:
        """The id of the group, or of the one run."""
        return self.runs[0].id if self.group is None else self.group.id

    @property
    def whole(self) -> Run | Group:
        """The group, or the one run."""
        return self.group or self.runs[0]

    @property
    def reason(self) -> str:
        """Why it is in its state, in words."""
        return self.runs[0].reason if self.group is None else state_counts(self.group)

    def document(self) -> dict[str, Any]:
        """The run, or the group with its runs, as every `--json` shows it."""
        if self.group is None:
            return plain(self.runs[0])
        runs = [plain(run) for run in self.runs]
        return plain(self.group) | {"group": self.group.id, "runs": runs}

    def line(self) -> str:
        """What has become of it in a line, with rich's markup."""
        return f"{safe(self.id)}  {state_text(self.whole)}: {safe(self.reason)}"


def find(connected: Connected, reference: str) -> Subject:
    """The run or the group that is meant, as it really is."""
    group = connected.group(reference)
    if group is None:
        return Subject((connected.get(reference),))
    return of_group(connected, group.id)


def of_group(connected: Connected, group_id: str) -> Subject:
    """A group and its runs."""
    return of_runs(connected.group_runs(group_id))


def of_runs(runs: tuple[Run, ...]) -> Subject:
    """One run by itself, or those of a group."""
    return Subject(runs) if runs[0].group is None else Subject(runs, fold(runs))
