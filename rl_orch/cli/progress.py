"""What `launch` shows of a run under way: a live panel for a person, plain lines otherwise."""

import math
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from rl_orch.cli.output import err, live, safe
from rl_orch.cli.words import figure, interval_text, short
from rl_orch.core.orchestrator import Watch
from rl_orch.io.history import evaluation_of, number_of
from rl_orch.records import Evaluation, Event, EventKind, Run, State

PLAIN_EVERY_S = 10.0
WINDOW = 100
"""Training episodes that the shown return is averaged over."""

LOSSES = {
    "losses/policy_loss": "policy loss",
    "losses/value_loss": "value loss",
    "losses/entropy": "entropy",
    "losses/approx_kl": "KL",
}


@contextmanager
def watching(*, quiet: bool) -> Iterator[Watch]:
    """What to call at each tick so that whoever is there sees the run."""
    if quiet:
        yield lambda _run, _events: None
    elif live():
        panel = Panel()
        with panel.live:
            yield panel.watch
    else:
        yield Lines().watch


class Numbers:
    """The newest numbers of a run, taken from its events."""

    def __init__(self) -> None:
        self.returns: deque[float] = deque(maxlen=WINDOW)
        self.metrics: dict[str, float] = {}
        self.evaluation: Evaluation | None = None
        self.guardrail: str | None = None

    def take(self, events: Sequence[Event]) -> list[tuple[int, Evaluation]]:
        """Take events in; returns the evaluations among them, each with its step."""
        evaluations = []
        for event in events:
            number, evaluation = number_of(event), evaluation_of(event)
            if evaluation is not None:
                self.evaluation = evaluation
                evaluations.append((event.step, evaluation))
            elif event.kind is EventKind.EPISODE and number is not None:
                self.returns.append(number)
            elif event.kind is EventKind.METRIC and number is not None:
                self.metrics[event.key] = number
            elif event.kind is EventKind.GUARDRAIL:
                self.guardrail = f"{event.key}: {event.value}"
        return evaluations

    @property
    def episode_return(self) -> float:
        """The mean of the newest training returns; not a number before the first."""
        return sum(self.returns) / len(self.returns) if self.returns else math.nan

    @property
    def health(self) -> str:
        """`ok`, or what is wrong."""
        bad = [key for key, value in self.metrics.items() if not math.isfinite(value)]
        return self.guardrail or (f"{bad[0]} is not finite" if bad else "ok")


class Panel:
    """A progress bar with the newest numbers under it, redrawn in place."""

    def __init__(self) -> None:
        self._numbers = Numbers()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("steps"),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
        )
        self._task: TaskID | None = None
        self.live = Live(self._bar, console=err(), refresh_per_second=8, transient=True)

    def watch(self, run: Run, events: Sequence[Event]) -> None:
        """Redraw with what is new."""
        self._numbers.take(events)
        if self._task is None:
            self._task = self._bar.add_task(run.state, total=run.total_timesteps)
        done = min(run.env_steps, run.total_timesteps)
        self._bar.update(self._task, completed=done, description=f"[cyan]{run.state}[/]")
        title = f"[bold]{safe(run.id)}[/]  [dim]{safe(short(run.path))}[/]"
        self.live.update(Group(title, self._bar, self._grid(run)))

    def _grid(self, run: Run) -> Table:
        numbers = self._numbers
        cells = {
            "return": figure(numbers.episode_return),
            "evaluated": "–" if numbers.evaluation is None else figure(numbers.evaluation.mean),
            "steps/s": "–" if run.sps is None else f"{run.sps:,.0f}",
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


class Lines:
    """A line for each evaluation and change of state, and at least every ten seconds."""

    def __init__(self) -> None:
        self._numbers = Numbers()
        self._console = err()
        self._state: State | None = None
        self._said_at = time.monotonic()

    def watch(self, run: Run, events: Sequence[Event]) -> None:
        """Say what is new."""
        for step, evaluation in self._numbers.take(events):
            interval = interval_text(evaluation)
            what = f"evaluated {figure(evaluation.mean)}, 95 % {interval}, n = {evaluation.n}"
            self._say(run, step, what)
        if run.state is not self._state:
            self._state = run.state
            self._say(run, run.env_steps, f"{run.state}: {run.reason}")
        elif time.monotonic() - self._said_at >= PLAIN_EVERY_S:
            self._say(run, run.env_steps, f"return {figure(self._numbers.episode_return)}")

    def _say(self, run: Run, step: int, what: str) -> None:
        self._said_at = time.monotonic()
        speed = "" if run.sps is None else f"  {run.sps:,.0f} steps/s"
        line = f"{run.id}  {step:,}/{run.total_timesteps:,}{speed}  {what}"
        self._console.print(safe(line), soft_wrap=True)
