"""Forecast of when waiting runs will start: from the queue and the speed of the runs at work.

Pure: the scheduler itself, played forward.
"""

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import median

from rl_orch.core.queue.scheduler import Capacity, Claim, choose, in_line
from rl_orch.records import Run

MOMENT_S = 1.0
"""What a run still takes that has made all of its steps, and is evaluated."""

LOOKED_AT = 200
"""Waiting runs whose start is worked out; those behind them have a position only."""

ORDINALS = (
    *("first", "second", "third", "fourth", "fifth"),
    *("sixth", "seventh", "eighth", "ninth", "tenth"),
)


@dataclass(frozen=True, slots=True)
class Forecast:
    """Position of a run in the queue, counted from 1, and its wait in seconds.

    The wait is None where it cannot be told.
    """

    position: int
    wait_s: float | None

    @property
    def sentence(self) -> str:
        """Both, for people."""
        return f"{self.position_text}; {self.wait_text}"

    @property
    def position_text(self) -> str:
        """The position, for people."""
        words = ORDINALS[self.position - 1 : self.position]
        return f"{words[0]} in the queue" if words else f"number {self.position} in the queue"

    @property
    def wait_text(self) -> str:
        """The wait, for people."""
        if self.wait_s is None:
            return "when it will start cannot be told yet"
        if self.wait_s == 0:
            return "there is a place for it"
        return f"a place is expected in about {_about(self.wait_s)}"


def forecast(
    queue: Sequence[Run], working: Sequence[Claim], capacity: Capacity
) -> dict[str, Forecast]:
    """Forecast for each waiting run, by its id.

    A run is taken to last as its steps do at the speed of the runs at work, those of the same
    environment and algorithm if there are any; nothing is known of runs that nobody has queued.
    """
    ordered = in_line(queue, working)
    starts = dict(_starts(ordered[:LOOKED_AT], working, capacity))
    return {run.id: Forecast(n, starts.get(run.id)) for n, run in enumerate(ordered, 1)}


def _starts(
    queue: Sequence[Run], working: Sequence[Claim], capacity: Capacity
) -> Iterator[tuple[str, float]]:
    """Start of each run, in seconds from now, while that can be told."""
    speeds = [claim.run for claim in working if claim.run.sps]
    now, number, waiting = 0.0, count(), {run.id: run for run in queue}
    busy = [(_lasts(claim.run, speeds), next(number), claim) for claim in working]
    heapq.heapify(busy)
    while True:
        claims = [claim for *_, claim in busy]
        for placed in choose(list(waiting.values()), claims, capacity):
            del waiting[placed.run.id]
            heapq.heappush(busy, (now + _lasts(placed.run, speeds), next(number), placed))
            yield placed.run.id, now
        if not waiting or not busy or busy[0][0] == math.inf:
            return
        now, *_ = heapq.heappop(busy)


def _lasts(run: Run, speeds: Sequence[Run]) -> float:
    """Seconds until the run ends, by its last step and at least a moment, since it has its place
    till then; infinite where nothing tells of its speed."""
    alike = [other for other in speeds if (other.env, other.algo) == (run.env, run.algo)]
    sps = run.sps or median([other.sps or 0.0 for other in alike or speeds] or [0.0])
    steps = run.total_timesteps - run.env_steps
    return max(MOMENT_S, steps / sps) if sps else math.inf


def _about(seconds: float) -> str:
    if seconds < 90:
        return f"{max(10, round(seconds, -1)):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.0f} h"
