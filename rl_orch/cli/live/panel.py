"""The live panel: one run in detail, or a group with a line for each of its runs."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress_bar import ProgressBar
from rich.table import Table

from rl_orch.cli.live.numbers import LiveNumbers, ended_text
from rl_orch.cli.output import err, safe
from rl_orch.cli.views.text import short, state_text
from rl_orch.records import Event, Run, State
from rl_orch.stats.text import figure

LOSSES = {
    "losses/policy_loss": "policy loss",
    "losses/value_loss": "value loss",
    "losses/entropy": "entropy",
    "losses/approx_kl": "KL",
}
AROUND = 6
"""Lines of a panel of many runs that are not about a single one."""


class Panel:
    """A progress bar with the newest numbers under it, redrawn in place.

    Of a group there is a line for each run, as many as fit; of other runs, the newest is shown,
    unless `several` are to be.
    """

    def __init__(self, *, several: bool = False) -> None:
        self._several = several
        self._runs: dict[str, Run] = {}
        self._numbers: dict[str, LiveNumbers] = {}
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("steps"),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
        )
        self._task = self._bar.add_task("", total=None)
        self._console = err()
        self.live = Live(
            get_renderable=self._view, console=self._console, refresh_per_second=8, transient=True
        )

    def watch(self, run: Run, events: Sequence[Event]) -> None:
        """Take in what is new; it is shown when the panel is drawn next."""
        if not self._several and run.group is None and run.id not in self._runs:
            self._runs.clear()
            self._bar.reset(self._task)
        self._numbers.setdefault(run.id, LiveNumbers()).take(events)
        self._runs[run.id] = run
        runs = list(self._runs.values())
        state = run.state if len(runs) == 1 else State.RUNNING
        self._bar.update(
            self._task,
            completed=sum(min(each.env_steps, each.total_timesteps) for each in runs),
            total=sum(each.total_timesteps for each in runs),
            description=f"[cyan]{state}[/]",
        )

    def recall(self, run: Run, events: Sequence[Event]) -> None:
        """Take in what a run told before anybody watched it."""
        self._numbers.setdefault(run.id, LiveNumbers()).take(events)

    def _view(self) -> RenderableType:
        runs = list(self._runs.values())
        if not runs:
            return self._bar
        return self._one(runs[0]) if len(runs) == 1 else self._many(runs)

    def _one(self, run: Run) -> RenderableType:
        title = f"[bold]{safe(run.id)}[/]  [dim]{safe(short(run.path))}[/]"
        if run.state is State.QUEUED and run.reason:
            return Group(title, self._bar, safe(run.reason))
        evaluating = [safe(run.reason)] if run.state is State.EVALUATING else []
        return Group(title, self._bar, self._details(run), *evaluating)

    def _details(self, run: Run) -> Table:
        numbers = self._numbers[run.id]
        cells = {
            "return": figure(numbers.episode_return),
            "evaluated": "–" if numbers.evaluation is None else figure(numbers.evaluation.mean),
            f"{run.trained.words}/s": _speed(run),
        }
        cells |= {
            name: f"{numbers.metrics[key]:.3g}"
            for key, name in LOSSES.items()
            if key in numbers.metrics
        }
        cells["health"] = safe(numbers.health)
        grid = Table.grid(padding=(0, 2))
        grid.add_row(*(f"[dim]{name}[/]" for name in cells))
        grid.add_row(*cells.values())
        return grid

    def _many(self, runs: Sequence[Run]) -> RenderableType:
        alike = runs[0].group is not None and len({run.group for run in runs}) == 1
        name = safe(runs[0].group) if alike else f"{len(runs)} runs"
        title = f"[bold]{name}[/]  [dim]{ended_text(runs)}[/]"
        room = max(1, self._console.height - AROUND)
        shown = sorted(runs, key=_rank)[:room]
        grid = Table(box=None, pad_edge=False)
        words = runs[0].trained.words
        columns = (
            "seed" if alike else "run",
            "state",
            "",
            words,
            f"{words}/s",
            "return",
            "evaluated",
            "health",
        )
        for column in columns:
            grid.add_column(column, header_style="dim", no_wrap=True)
        for run in sorted(shown, key=runs.index):
            grid.add_row(str(run.seed) if alike else safe(run.id), *self._cells(run))
        more = [f"[dim]+ {len(runs) - len(shown)} more[/]"] if len(shown) < len(runs) else []
        return Group(title, self._bar, grid, *more)

    def _cells(self, run: Run) -> list[RenderableType]:
        numbers = self._numbers[run.id]
        seen = run.eval or numbers.evaluation
        return [
            state_text(run),
            ProgressBar(total=run.total_timesteps, completed=run.env_steps, width=20),
            f"{run.env_steps:,}",
            _speed(run),
            figure(numbers.episode_return),
            "–" if seen is None else figure(seen.mean),
            safe(numbers.health) if run.state is not State.QUEUED else "",
        ]


def _rank(run: Run) -> int:
    """Runs under way are worth a line most, then those that went wrong, then those to come."""
    if run.active and run.state is not State.QUEUED:
        return 0
    if run.state in (State.FAILED, State.LOST):
        return 1
    return 2 if run.state is State.QUEUED else 3


def _speed(run: Run) -> str:
    return "–" if run.sps is None else f"{run.sps:,.0f}"
