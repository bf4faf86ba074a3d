"""Progress of runs for whoever waits: HTML in a notebook, one line of text in a terminal."""

import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from html import escape
from importlib import import_module
from typing import Any

from rl_orch.core.runs.curves import Curve, Line
from rl_orch.core.runs.foreground import RunObserver, no_observer
from rl_orch.interactive.drawing import svg
from rl_orch.io.metrics.names import EPISODIC_RETURN
from rl_orch.records import Event, EventKind, Run, State
from rl_orch.stats.text import figure

EVERY_S = 0.5
EPISODES = 100
"""Episodes whose mean return is shown."""


def observer(progress: bool | None) -> RunObserver:
    """What watches runs: where it is left open, it shows itself in notebooks and terminals."""
    if progress is False:
        return no_observer
    if in_notebook():
        return RunProgress(_in_notebook())
    if progress or sys.stderr.isatty():
        return RunProgress(_in_terminal)
    return no_observer


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


class RunProgress:
    """Watches runs, and shows them as they are every now and then, and at their end."""

    def __init__(
        self, show: "Callable[[Sequence[_Shown]], None]", now: Callable[[], float] = time.monotonic
    ) -> None:
        self._show, self._now, self._last = show, now, -EVERY_S
        self._runs: dict[str, _Shown] = {}

    def __call__(self, run: Run, events: Sequence[Event]) -> None:
        """Take in what is new of a run."""
        shown = self._runs.setdefault(run.id, _Shown(run))
        shown.take(run, events)
        over = not any(each.run.active for each in self._runs.values())
        if over or self._now() - self._last >= EVERY_S:
            self._last = self._now()
            self._show([*self._runs.values()])


class _Shown:
    """A run, and the mean return of its last episodes over its steps."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.returns: deque[float] = deque(maxlen=EPISODES)
        self.points: list[tuple[int, float]] = []

    def take(self, run: Run, events: Sequence[Event]) -> None:
        self.run = run
        ended = [event for event in events if event.kind is EventKind.EPISODE]
        values = [e.value for e in ended if e.key == EPISODIC_RETURN and _is_number(e.value)]
        self.returns.extend(map(float, values))
        if values:
            self.points.append((ended[-1].step, sum(self.returns) / len(self.returns)))

    @property
    def text(self) -> str:
        if self.run.state is State.EVALUATING:
            return f"{self.run.id} {self.run.state}: {self.run.reason}"
        run, speed = self.run, "" if self.run.sps is None else f", {self.run.sps:,.0f} steps/s"
        mean = f", return {figure(self.points[-1][1])}" if self.points else ""
        return f"{run.id} {run.state}: {run.trained} of {run.total_timesteps:,}{mean}{speed}"

    @property
    def share(self) -> float:
        return min(self.run.env_steps / self.run.total_timesteps, 1.0)


def _in_notebook() -> "Callable[[Sequence[_Shown]], None]":
    display: Any = import_module("IPython.display")
    handle = display.display(display.HTML(""), display_id=True)

    def show(runs: Sequence[_Shown]) -> None:
        handle.update(display.HTML("".join(map(html_of, runs))))

    return show


def html_of(shown: Any) -> str:
    """A run under way, as HTML."""
    steps, means = [step for step, _ in shown.points], [mean for _, mean in shown.points]
    picture = svg(Curve(shown.run.id, Line(steps, means))) if len(steps) > 1 else ""
    bar = f'<progress value="{shown.share:.3f}" max="1" style="width:420px"></progress>'
    return f"<div>{bar}<br><code>{escape(shown.text)}</code><br>{picture}</div>"


def _in_terminal(runs: Sequence[_Shown]) -> None:
    over = not any(each.run.active for each in runs)
    text = "; ".join(each.text for each in runs if over or each.run.active) or "starting"
    sys.stderr.write(f"\r\x1b[2K{text[:160]}" + ("\n" if over else ""))
    sys.stderr.flush()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
