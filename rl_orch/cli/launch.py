"""`rlctl launch`: one run in the foreground, from spec to verdict."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import typer

from rl_orch import orchestrator
from rl_orch.cli.arguments import Home, Json
from rl_orch.cli.flags import Overrides, SpecFile, spec_from, with_spec_flags
from rl_orch.cli.output import err, out, print_json, safe
from rl_orch.cli.progress import watching
from rl_orch.cli.summary import print_summary
from rl_orch.cli.words import plain
from rl_orch.core.state import EXIT_CODES


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

    Ctrl-C ends the run after a last checkpoint; a second Ctrl-C ends it at once.

    Examples:

      rlctl launch --env CartPole-v1 --total-timesteps 100000

      rlctl launch -f spec.yaml train.lr=1e-3 env.seed=7
    """
    spec = spec_from(file, overrides, flags)
    connected = orchestrator.connect(home, database=spec.registry.db_path)
    with stop_requests() as requests, watching(quiet=quiet) as watch:
        result = connected.launch(spec, watch=watch, stop_requests=requests.count)
    if json:
        print_json(plain(result.run))
    else:
        print_summary(out(), connected.show(result.run.id), result.verdict)
    return EXIT_CODES[result.run.state]


class Requests:
    """How often the user has asked to stop."""

    def __init__(self) -> None:
        self._count = 0

    def count(self) -> int:
        """The number of requests so far."""
        return self._count

    def add(self, number: int, _frame: FrameType | None) -> None:
        """Take a signal as a request."""
        self._count += 1
        name = signal.Signals(number).name
        wait = "again to end it at once" if self._count == 1 else "ending it at once"
        err().print(f"[yellow]{safe(name)}[/]: stopping after a last checkpoint ({wait})")


@contextmanager
def stop_requests() -> Iterator[Requests]:
    """Ctrl-C and SIGTERM become requests instead of ending this process."""
    requests = Requests()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, requests.add) for number in numbers}
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
