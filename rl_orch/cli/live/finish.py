"""How `launch` and `resume` end: what became of a run or a group, in words or as JSON."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rl_orch import plugins
from rl_orch.cli.connection import Connected, RetryingConnection
from rl_orch.cli.live.follow import follow
from rl_orch.cli.live.progress import watched
from rl_orch.cli.output import out, print_json, warn
from rl_orch.cli.views import subjects
from rl_orch.core.runs.groups import RunOrGroup, of_runs
from rl_orch.core.runs.state import EXIT_CODES
from rl_orch.records import Submission, Verdict

if TYPE_CHECKING:
    from rl_orch.core.orchestrator import GroupResult, Orchestrator, RunResult


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """How a command tells what it does; `flags` are what the commands that it suggests need."""

    flags: str
    json: bool
    quiet: bool


def conclude(
    connected: Connected, ended: RunOrGroup, options: OutputOptions, verdict: Verdict | None = None
) -> int:
    """Say what became of a run or a group, and return the exit code for it."""
    if options.json:
        print_json(subjects.document(ended))
    elif ended.group is not None:
        # What draws is loaded now: a launch need not wait for it.
        plugins.part("group summary").print_group(out(), connected, ended, flags=options.flags)
    else:
        shown, past = connected.show(ended.id, checkpoints=False), connected.history(ended.id)
        print_summary = plugins.part("run summary").print_summary
        print_summary(out(), shown, past, verdict or shown.verdict, flags=options.flags)
    return EXIT_CODES[ended.whole.state]


def run_in_foreground(
    connected: "Orchestrator", carry_out: "Callable[..., RunResult]", options: OutputOptions
) -> int:
    """Carry a run out here to its end, and return the exit code for it."""
    with watched(quiet=options.quiet) as (watch, asked):
        result = carry_out(watch=watch, stop_requests=asked)
    return conclude(connected, RunOrGroup((result.run,)), options, result.verdict)


def group_in_foreground(
    connected: "Orchestrator", carry_out: "Callable[..., GroupResult]", options: OutputOptions
) -> int:
    """Carry a group out here to its end, and return the exit code for it."""
    with watched(quiet=options.quiet) as (watch, asked):
        result = carry_out(watch=watch, stop_requests=asked)
    return conclude(connected, subjects.of_group(connected, result.group.id), options)


def attached(line: RetryingConnection, submission: Submission, options: OutputOptions) -> int:
    """Follow what a service carries out to its end, and return the exit code for it."""
    for sentence in submission.warnings:
        warn(sentence)
    with watched(quiet=options.quiet) as (watch, stop_requests):
        runs = follow(line, submission.runs, watch, stop_requests)
    ended = line.ask(lambda connected: subjects.find(connected, of_runs(runs).id))
    return conclude(line.connected, ended, options)
