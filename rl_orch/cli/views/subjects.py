"""What a word on the command line means: a run, or a group with all of its runs."""

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rl_orch.cli.connection import Connected
from rl_orch.cli.output import err, safe
from rl_orch.cli.views.text import age_text, plain, state_counts, state_text
from rl_orch.core.runs import groups
from rl_orch.core.runs.groups import RunOrGroup, of_runs
from rl_orch.errors import Ambiguous
from rl_orch.records import State
from rl_orch.records.queries import LARGEST_PAGE, Query


def run_at(word: str | None) -> str | None:
    """The id of the run whose directory is named, as tab completion writes it; else the word."""
    if word is None or os.sep not in word:
        return word
    path = Path(os.path.expanduser(word))
    is_run = all(os.path.isfile(path / name) for name in ("spec.yaml", "manifest.json"))
    return path.resolve().name if is_run and path.resolve().parent.name == "runs" else word


SubjectArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run or a group: id, a unique beginning of it, name, or `last`.",
        callback=run_at,
    ),
]

SubjectsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN...",
        help="Runs or groups: ids, unique beginnings of them, names, or `last`.",
        callback=lambda words: [run_at(word) for word in words],
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


def find_all(connected: Connected, references: Sequence[str]) -> list[RunOrGroup]:
    """The runs and groups that are meant, each once."""
    found = [find(connected, reference) for reference in references]
    return list({subject.id: subject for subject in found}.values())


def documents(shown: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """What `--json` shows of one run or group, or of several."""
    return shown[0] if len(shown) == 1 else {"runs": shown}


def find_only(
    connected: Connected,
    reference: str,
    *,
    active: bool = False,
    states: Collection[State] = (),
    ask: bool = True,
) -> RunOrGroup:
    """The run or the group that is meant, and none by a guess: of several that have the name, a
    person at a terminal chooses one. To `stop`, say, only what is `active` can be meant; to
    `resume`, what is in one of these states."""
    meant = find(connected, reference)
    if meant.id == reference:
        return meant
    named = groups.rows(connected.ls(Query(limit=LARGEST_PAGE, name=reference)).runs)
    try:
        one = groups.only(reference, [row.whole for row in named], active=active, states=states)
    except Ambiguous:
        if not ask or not sys.stdin.isatty():
            raise
        meant_ids = {
            each.id
            for each in groups.candidates([r.whole for r in named], active=active, states=states)
        }
        one = _chosen(reference, [row for row in named if row.id in meant_ids]).whole
    return meant if one is None else find(connected, one.id)


def _chosen(reference: str, rows: Sequence[RunOrGroup]) -> RunOrGroup:
    err().print(f"{safe(repr(reference))} could be any of:")
    for number, row in enumerate(rows, start=1):
        age = f"{age_text(row.whole.created_at)} ago"
        err().print(f"  {number}  {line(row)}  [dim]{age}[/]", soft_wrap=True)
    number = 0
    while not 1 <= number <= len(rows):
        number = typer.prompt(f"Which one, 1 to {len(rows)}", type=int, err=True)
    return rows[number - 1]


def of_group(connected: Connected, group_id: str) -> RunOrGroup:
    """A group and its runs."""
    return of_runs(connected.group_runs(group_id))
