"""`rlctl launch`: one run or a group of them in the foreground, from spec to verdict."""

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from rl_orch import orchestrator
from rl_orch.cli import subjects
from rl_orch.cli.arguments import Home, Json
from rl_orch.cli.flags import Overrides, SpecFile, spec_from, with_spec_flags
from rl_orch.cli.group_summary import print_group
from rl_orch.cli.output import out, print_json
from rl_orch.cli.progress import watching
from rl_orch.cli.summary import place_flags, print_summary
from rl_orch.cli.words import plain
from rl_orch.core.orchestrator import GroupResult, Orchestrator, RunResult
from rl_orch.core.state import EXIT_CODES
from rl_orch.records import Event, Run

ANSWERS = (
    "stopping after a last checkpoint; Ctrl-C again ends it at once",
    "ending it at once",
)
"""What the first request to stop does, and the second; further ones change nothing."""


@with_spec_flags
def command(
    overrides: Overrides = None,
    file: SpecFile = None,
    home: Home = None,
    json: Json = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Show no progress.")] = False,
    *,
    flags: dict[str, str],
) -> int:
    """Train a policy, evaluate it, gate it and register it.

    With --seeds, a group: a run for each seed, as many at once as the cores allow. It exits with 1
    if any run failed or was lost, else with 4 if any was stopped, 3 if any was rejected, or 0.

    Ctrl-C ends the run after a last checkpoint; a second Ctrl-C ends it at once.

    Examples:

      rlctl launch --env CartPole-v1 --total-timesteps 100000

      rlctl launch -f spec.yaml train.lr=1e-3 env.seed=7

      rlctl launch -f spec.yaml --seeds 5
    """
    spec = spec_from(file, overrides, flags)
    database = spec.registry.db_path
    connected = orchestrator.connect(home, database=database)
    with stop_requests() as requests, watching(quiet=quiet) as show:

        def watch(run: Run, events: Sequence[Event]) -> None:
            requests.answer(run)
            show(run, events)

        asked = requests.count
        if spec.members:
            results = connected.launch_group(spec, watch=watch, stop_requests=asked)
        else:
            result = connected.launch(spec, watch=watch, stop_requests=asked)
    if spec.members:
        return conclude_group(connected, results, home=home, database=database, json=json)
    return conclude(connected, result, home=home, database=database, json=json)


def conclude(
    connected: Orchestrator,
    result: RunResult,
    *,
    home: Path | None,
    database: Path | str | None,
    json: bool,
) -> int:
    """Say what became of a run, and return the exit code for it."""
    if json:
        print_json(plain(result.run))
    else:
        shown = connected.show(result.run.id)
        print_summary(out(), shown, result.verdict, flags=place_flags(home, database))
    return EXIT_CODES[result.run.state]


def conclude_group(
    connected: Orchestrator,
    result: GroupResult,
    *,
    home: Path | None,
    database: Path | str | None,
    json: bool,
) -> int:
    """Say what became of a group, and return the exit code for it."""
    subject = subjects.of_group(connected, result.group.id)
    if json:
        print_json(subject.document())
    else:
        print_group(out(), subject, flags=place_flags(home, database))
    return EXIT_CODES[result.group.state]


class Requests:
    """How often the user has asked to stop, and how often that was answered."""

    def __init__(self) -> None:
        self._count = 0
        self._answered = 0

    def count(self) -> int:
        """The number of requests so far."""
        return self._count

    def add(self, _number: int, _frame: FrameType | None) -> None:
        """Take a signal as a request. Only that: it may come in the middle of any output."""
        self._count += 1

    def answer(self, run: Run) -> None:
        """Say what becomes of the requests that are new, once there is a run to stop."""
        if not run.active:
            return
        news, self._answered = ANSWERS[self._answered : self._count], self._count
        for sentence in news:
            # Not by a console of ours: the live panel puts what goes to sys.stderr above itself.
            with suppress(OSError):  # After SIGHUP there may be no terminal left.
                print(sentence, file=sys.stderr, flush=True)


@contextmanager
def stop_requests() -> Iterator[Requests]:
    """Ctrl-C, SIGTERM and a closed terminal become requests instead of ending this process."""
    requests = Requests()
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # As it is under nohup.
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, requests.add) for number in numbers}
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
