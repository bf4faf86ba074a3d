"""A bar for whoever watches a child at work."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from rl_orch.cli.output import err, live
from rl_orch.io.processes.task_worker import ProgressCallback


@contextmanager
def watching(*, quiet: bool) -> Iterator[ProgressCallback]:
    """A bar on standard error, where a person is watching."""
    if quiet or not live():
        yield lambda _doing, _done: None
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
