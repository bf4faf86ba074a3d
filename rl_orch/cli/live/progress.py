"""What `launch` shows of runs under way: a live panel for a person, plain lines otherwise.

The panel is in `panel.py`.
"""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rl_orch.cli.live.interrupts import Requests, handled
from rl_orch.cli.live.numbers import LiveNumbers, ended_text
from rl_orch.cli.live.panel import Panel
from rl_orch.cli.output import err, live, safe
from rl_orch.cli.views.text import interval_text
from rl_orch.records import Evaluation, Event, Run, State
from rl_orch.stats.text import figure

if TYPE_CHECKING:
    from rl_orch.core.runs.foreground import RunObserver, StopRequests

__all__ = ["Panel", "ProgressLines", "watched", "watching"]

PLAIN_EVERY_S = 10.0
NUMBER = re.compile(r"\d[\d,]*")


@contextmanager
def watched(*, quiet: bool) -> "Iterator[tuple[RunObserver, StopRequests]]":
    """What to call at each tick, and how often the user has asked to stop by then."""
    requests = Requests()
    with handled(requests.add), watching(quiet=quiet) as view:

        def watch(run: Run, events: Sequence[Event]) -> None:
            requests.answer(run)
            if view is not None:
                view.watch(run, events)

        yield watch, requests.count


@contextmanager
def watching(*, quiet: bool, several: bool = False) -> "Iterator[Panel | ProgressLines | None]":
    """What to tell at each tick so that whoever is there sees the run, or all of them."""
    if quiet:
        yield None
    elif live():
        panel = Panel(several=several)
        with panel.live:
            yield panel
    else:
        yield ProgressLines()


class ProgressLines:
    """A line for each change of state, and at least every ten seconds.

    Of evaluations the newest is said, every ten seconds at most and before each change of state. Of
    a group also a line whenever one of its runs has ended, and none of those that wait.
    """

    def __init__(self) -> None:
        self._console = err()
        self._runs: dict[str, Run] = {}
        self._numbers: dict[str, LiveNumbers] = {}
        self._said_at: dict[str, float] = {}
        self._said: dict[str, str] = {}
        self._evaluated_at: dict[str, float] = {}
        self._unsaid: dict[str, tuple[int, Evaluation]] = {}

    def recall(self, run: Run, events: Sequence[Event]) -> None:
        """Take in what a run told before anybody watched it; that is no news."""
        self._numbers.setdefault(run.id, LiveNumbers()).take(events)

    def watch(self, run: Run, events: Sequence[Event]) -> None:
        """Say what is new."""
        numbers = self._numbers.setdefault(run.id, LiveNumbers())
        before, self._runs[run.id] = self._runs.get(run.id), run
        compiling, evaluations = numbers.compiling, numbers.take(events)
        if numbers.compiling not in (None, compiling):
            self._say(run, run.env_steps, str(numbers.compiling))
        changed = before is not None and run.state is not before.state
        if evaluations:
            self._unsaid[run.id] = evaluations[-1]
        if run.id in self._unsaid and (changed or self._may_evaluate(run)):
            self._say_of_evaluation(run, *self._unsaid.pop(run.id))
        if run.group is not None and run.state is State.QUEUED:
            return
        if before is None or changed:
            self._say(run, run.env_steps, f"{run.state}: {run.reason}")
            self._say_of_group(run)
        elif run.state is State.EVALUATING or run.reason != before.reason:
            self._say_of_reason(run)
        elif not run.active or time.monotonic() - self._said_at[run.id] < PLAIN_EVERY_S:
            return
        elif run.state is State.QUEUED:
            self._say(run, run.env_steps, f"{run.state}: {run.reason}")
        else:
            self._say(run, run.env_steps, f"return {figure(numbers.episode_return)}")

    def _say(self, run: Run, step: int, what: str) -> None:
        self._said_at[run.id] = time.monotonic()
        self._said[run.id] = run.reason
        speed = "" if run.sps is None else f"  {run.sps:,.0f} {run.trained.words}/s"
        line = f"{run.id}  {step:,}/{run.total_timesteps:,}{speed}  {what}"
        self._console.print(safe(line), soft_wrap=True)

    def _may_evaluate(self, run: Run) -> bool:
        """Whether the last evaluation was said long enough ago."""
        last = self._evaluated_at.get(run.id)
        return last is None or time.monotonic() - last >= PLAIN_EVERY_S

    def _say_of_evaluation(self, run: Run, step: int, evaluation: Evaluation) -> None:
        self._evaluated_at[run.id] = time.monotonic()
        interval = interval_text(evaluation)
        what = f"evaluated {figure(evaluation.mean)}, 95 % {interval}, n = {evaluation.n}"
        self._say(run, step, what)

    def _say_of_reason(self, run: Run) -> None:
        """How far the final evaluation is, for one: other words at once, numbers now and then."""
        said, words = self._said.get(run.id, ""), run.reason
        recently = time.monotonic() - self._said_at[run.id] < PLAIN_EVERY_S
        if words != said and not (recently and NUMBER.sub("", words) == NUMBER.sub("", said)):
            self._say(run, run.env_steps, f"{run.state}: {words}")

    def _say_of_group(self, run: Run) -> None:
        if not run.active and run.group is not None and len(self._runs) > 1:
            line = f"{run.group}  {ended_text(list(self._runs.values()))}"
            self._console.print(safe(line), soft_wrap=True)
