"""`rlctl watch`: the live panel of runs that others carry out."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

import typer

from rl_orch.cli.arguments import Json
from rl_orch.cli.connection import ConnectionOptions, RetryingConnection
from rl_orch.cli.live.follow import as_now, observe
from rl_orch.cli.live.progress import watching
from rl_orch.cli.output import note, out, print_json
from rl_orch.cli.views import subjects
from rl_orch.cli.views.text import ACTIVE, plain
from rl_orch.core.runs.groups import folded_state, rows
from rl_orch.core.runs.state import EXIT_CODES
from rl_orch.records import Run
from rl_orch.records.queries import LARGEST_PAGE, Query


def command(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...", help="Runs or groups; without any, all that have yet to end."
        ),
    ] = None,
    *,
    target: ConnectionOptions,
    json: Json = False,
) -> int:
    """Show the live panel of runs until they have ended.

    They may have been launched with --detach or in another terminal. Ctrl-C ends the panel alone:
    the runs go on. Otherwise it exits as `rlctl wait` does.

    Examples:

      rlctl watch

      rlctl watch cartpole-k3m9xq steady
    """
    line = target.retrying(reading=True)
    meant = line.ask(lambda connected: subjects.find_all(connected, runs or ()))
    named = {run.id: run for subject in meant for run in subject.runs}
    look: Callable[[], Sequence[Run]] = _UnderWay(line).look
    if named:
        look = partial(as_now, line, list(named.values()))
    try:
        with watching(quiet=False, several=len(named) != 1) as view:
            assert view is not None
            ended = observe(line, look, view.watch, recall=view.recall)
    except KeyboardInterrupt:
        note("no longer watched; the runs go on")
        raise
    if json:
        print_json({"runs": [plain(run) for run in ended]})
    for row in rows(ended) if not json else ():
        out().print(subjects.line(row))
    if not ended:
        note("no run is under way")
        return 0
    return EXIT_CODES[folded_state([run.state for run in ended])]


class _UnderWay:
    """All runs that have yet to end, and those of them that have ended since."""

    def __init__(self, line: RetryingConnection) -> None:
        self._line = line
        self._seen: dict[str, Run] = {}

    def look(self) -> Sequence[Run]:
        """The runs, in the order in which they were first seen."""
        query = Query(limit=LARGEST_PAGE, states=ACTIVE, sort="created_at")
        active = {run.id: run for run in self._line.ask(lambda known: known.ls(query)).runs}
        for run_id, run in self._seen.items():
            if run.active and run_id not in active:
                self._seen[run_id] = self._line.get(run_id)
        self._seen |= active
        return list(self._seen.values())
