"""A bar for whoever watches a child at work."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from rl_orch.cli.output import err, live, note
from rl_orch.io.processes.task_worker import ProgressCallback, unwatched

LINE_EVERY_S = 10.0


@contextmanager
def watching(*, quiet: bool) -> Iterator[ProgressCallback]:
    """A bar on standard error, where a person is watching; elsewhere a line now and then."""
    if quiet or not live():
        yield unwatched if quiet else _lines()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err(), transient=True) as progress:
        task = progress.add_task("preparing", total=1.0)
        yield lambda doing, done: progress.update(task, description=doing, completed=done)


def _lines(timer: Callable[[], float] = time.monotonic) -> ProgressCallback:
    """Says how far it is every ten seconds; nothing of what takes less."""
    said_at = timer()

    def watch(doing: str, done: float) -> None:
        nonlocal said_at
        if timer() - said_at >= LINE_EVERY_S:
            said_at = timer()
            note(f"{doing} {done:.0%}")

    return watch
