"""How `launch` and `resume` end: what became of a run or a group, in words or as JSON."""

from dataclasses import dataclass

from rl_orch.cli import subjects
from rl_orch.cli.attach import follow
from rl_orch.cli.connection import Connected, Lasting
from rl_orch.cli.output import out, print_json, warn
from rl_orch.cli.progress import watched
from rl_orch.cli.subjects import Subject
from rl_orch.core.state import EXIT_CODES
from rl_orch.records import Submission, Verdict


@dataclass(frozen=True, slots=True)
class Manner:
    """How a command tells what it does; `flags` are what the commands that it suggests need."""

    flags: str
    json: bool
    quiet: bool


def conclude(
    connected: Connected, ended: Subject, manner: Manner, verdict: Verdict | None = None
) -> int:
    """Say what became of a run or a group, and return the exit code for it."""
    # What draws is loaded now: a launch need not wait for it.
    from rl_orch.cli.group_summary import print_group
    from rl_orch.cli.summary import print_summary

    if manner.json:
        print_json(ended.document())
    elif ended.group is not None:
        print_group(out(), connected, ended, flags=manner.flags)
    else:
        shown, past = connected.show(ended.id), connected.history(ended.id)
        print_summary(out(), shown, past, verdict or shown.verdict, flags=manner.flags)
    return EXIT_CODES[ended.whole.state]


def attached(line: Lasting, submission: Submission, manner: Manner) -> int:
    """Follow what a service carries out to its end, and return the exit code for it."""
    for sentence in submission.warnings:
        warn(sentence)
    with watched(quiet=manner.quiet) as (watch, stop_requests):
        runs = follow(line, submission.runs, watch, stop_requests)
    ended = line.ask(lambda connected: subjects.find(connected, subjects.of_runs(runs).id))
    return conclude(line.connected, ended, manner)
