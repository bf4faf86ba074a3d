"""What is known of runs under way, as it comes in."""

import math
from collections import Counter, deque
from collections.abc import Sequence

from rl_orch.io.run.history import evaluation_of, number_of
from rl_orch.records import Evaluation, Event, EventKind, Run

WINDOW = 100
"""Training episodes that the shown return is averaged over."""


class LiveNumbers:
    """The newest numbers of a run, taken from its events."""

    def __init__(self) -> None:
        self.returns: deque[float] = deque(maxlen=WINDOW)
        self.metrics: dict[str, float] = {}
        self.evaluation: Evaluation | None = None
        self.guardrail: str | None = None
        self.compiling: str | None = None

    def take(self, events: Sequence[Event]) -> list[tuple[int, Evaluation]]:
        """Take events in; returns the evaluations among them, each with its step."""
        evaluations = []
        for event in events:
            number, evaluation = number_of(event.value), evaluation_of(event)
            if evaluation is not None:
                self.evaluation = evaluation
                evaluations.append((event.step, evaluation))
            elif event.kind is EventKind.EPISODE and number is not None:
                self.returns.append(number)
            elif event.kind is EventKind.METRIC and number is not None:
                self.metrics[event.key] = number
                self.compiling = None
            elif event.kind is EventKind.GUARDRAIL:
                self.guardrail = f"{event.key}: {event.value}"
            elif event.kind is EventKind.LOG and event.key == "compiling":
                self.compiling = f"compiling {event.value}"
        return evaluations

    @property
    def episode_return(self) -> float:
        """The mean of the newest training returns; not a number before the first."""
        return sum(self.returns) / len(self.returns) if self.returns else math.nan

    @property
    def health(self) -> str:
        """`ok`, or what is wrong, or what keeps the run from its first update."""
        bad = [key for key, value in self.metrics.items() if not math.isfinite(value)]
        return self.guardrail or (f"{bad[0]} is not finite" if bad else self.compiling or "ok")


def ended_text(runs: Sequence[Run]) -> str:
    """How many of some runs have ended, and how: `3/5 ended: 2 succeeded, 1 rejected`."""
    ended = Counter(run.state for run in runs if not run.active)
    how = ", ".join(f"{count} {state}" for state, count in ended.most_common())
    return f"{ended.total()}/{len(runs)} ended" + (f": {how}" if how else "")
