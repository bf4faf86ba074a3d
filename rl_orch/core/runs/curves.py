"""Curves from runs: the returns of one over its steps, or the mean of a group with its band.

Data only; `cli/views/chart.py` draws it in the terminal, `cli/views/figure.py` into a file.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rl_orch import stats
from rl_orch.core.runs.groups import JUDGED
from rl_orch.records import Episodes, History, Run, State

Floats = NDArray[np.float64]

POINTS = 80
"""Stretches of steps that the longest run of a group is cut into."""

LOOSE_ENDS = 2
"""Runs that end within so many stretches of each other count as equally long."""

TRAINED = (State.EVALUATING, *JUDGED)


@dataclass(frozen=True, slots=True)
class Line:
    """Returns over environment steps; with a band from low to high where those are given."""

    steps: Sequence[int] = ()
    returns: Sequence[float] = ()
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Curve:
    """The curve of a run or a group, as it is drawn.

    `training` are the returns while it learned, `evaluated` those of its evaluations. `tails` are
    runs of a group that went on after the first had ended, each by itself. `extent` is the lowest
    and the highest return of any single run, which a band may surpass.
    """

    label: str
    training: Line
    evaluated: Line = Line()
    tails: Sequence[Line] = ()
    extent: tuple[float, float] | None = None

    @property
    def drawn(self) -> list[float]:
        """Every return that a picture must have room for."""
        lines = (self.training, self.evaluated, *self.tails)
        return [*(value for line in lines for value in line.returns), *(self.extent or ())]

    @property
    def whiskers(self) -> list[float]:
        """Bounds of the intervals of evaluations."""
        return [*self.evaluated.low, *self.evaluated.high]

    @property
    def last_step(self) -> int:
        """Last step of the curve."""
        lines = (self.training, self.evaluated, *self.tails)
        return max((line.steps[-1] for line in lines if line.steps), default=0)


def of_run(past: History, label: str, *, until: int | None = None) -> Curve:
    """The curve of one run, averaged over stretches of steps.

    The stretches are as long as in a run that lasts `until`.
    """
    seen = _finite(past)
    steps, returns = seen.returns(until=until)
    kept = [(s, r) for s, r in zip(steps, returns, strict=True) if math.isfinite(r)]
    return Curve(label, _line(kept), _line(_means(seen)))


def of_group(runs: Sequence[Run], history_of: Callable[[str], History], label: str) -> Curve:
    """The mean over the runs of a group with its pointwise 95 % interval.

    Runs that were trained to their end count; while there are none, those that have begun. Mean
    and band end where the shortest of them does: a mean over those that go on would be one over
    other runs. What comes after is in `tails`.
    """
    counted = [run for run in runs if run.state in TRAINED] or list(runs)
    histories = [_finite(history_of(run.id)) for run in counted]
    seen = [past for past in histories if past.episodes or past.evaluations]
    among = f"{len(seen)}" if len(seen) == len(runs) else f"{len(seen)} of {len(runs)}"
    label = f"{label}, mean of {among} run{'' if len(seen) == len(runs) == 1 else 's'}"
    return folded(seen, label)


def folded(histories: Sequence[History], label: str) -> Curve:
    """The histories of some runs as one curve."""
    evaluated = _common_evaluations(histories)
    trained = [past.episodes for past in histories if past.episodes]
    if not trained:
        return Curve(label, Line(), evaluated)
    width = max(1, -(-max(episodes.steps[-1] for episodes in trained) // POINTS))
    rows = [_stretches(episodes, width) for episodes in trained]
    start, end = max(first for first, _ in rows), min(first + len(row) for first, row in rows)
    common = [row[start - first : end - first] for first, row in rows]
    tails = [
        Line(_ends(end - 1, first + len(row), width), row[end - 1 - first :].tolist())
        for first, row in rows
        if first < end and first + len(row) > end + LOOSE_ENDS
    ]
    everything = np.concatenate([row for _, row in rows])
    extent = (float(everything.min()), float(everything.max()))
    training = _mean_line(np.array(common), _ends(start, end, width)) if end > start else Line()
    returns = [value for episodes in trained for value in episodes.rets]
    training = _within(training, (min(returns), max(returns)))
    return Curve(label, training, evaluated, tails, extent)


def smoothed(curve: Curve, points: int) -> Curve:
    """The curve with each return of training, and its band, averaged over so many points around it;
    fewer at its ends. Evaluations stay as they are."""
    line = curve.training
    lines = (_moving_mean(values, points) for values in (line.returns, line.low, line.high))
    return replace(curve, training=Line(line.steps, *lines))


def _moving_mean(values: Sequence[float], points: int) -> list[float]:
    before, after = (points - 1) // 2, points // 2
    windows = (values[max(0, at - before) : at + after + 1] for at in range(len(values)))
    return [sum(window) / len(window) for window in windows]


def _within(line: Line, seen: tuple[float, float]) -> Line:
    """The line with its band cut to the range of the returns of single episodes."""
    if not line.low:
        return line
    low, high = np.clip(line.low, *seen).tolist(), np.clip(line.high, *seen).tolist()
    return replace(line, low=low, high=high)


def _finite(past: History) -> History:
    """The history of a run without numbers that are not finite."""
    episodes = past.episodes
    if not all(map(math.isfinite, episodes.rets)):
        episodes = Episodes.of(one for one in episodes if math.isfinite(one.ret))
    evaluations = tuple(pair for pair in past.evaluations if math.isfinite(pair[1].mean))
    return History(episodes, evaluations)


def _stretches(episodes: Episodes, width: int) -> tuple[int, Floats]:
    """The first stretch with an episode's end, and the mean returns from there.

    There is a mean for each stretch of steps. A stretch in which none ended keeps the return of the
    one before.
    """
    stretch = np.array(episodes.steps) // width
    first = int(stretch.min())
    counts = np.bincount(stretch - first)
    means = np.bincount(stretch - first, weights=episodes.rets) / np.maximum(counts, 1)
    filled = np.maximum.accumulate(np.where(counts > 0, np.arange(len(counts)), 0))
    return first, means[filled]


def _common_evaluations(histories: Sequence[History]) -> Line:
    """The evaluations at the steps at which every run had one."""
    means = [dict(_means(past)) for past in histories]
    shared = sorted(set.intersection(*map(set, means))) if means else []
    rows = np.array([[mean[step] for step in shared] for mean in means])
    return _mean_line(rows, shared) if shared else Line()


def _mean_line(rows: Floats, steps: Sequence[int]) -> Line:
    middle = rows.mean(axis=0).tolist()
    if len(rows) < 2:
        return Line(steps, middle)
    low, high = stats.band(rows)
    return Line(steps, middle, low.tolist(), high.tolist())


def _ends(start: int, end: int, width: int) -> list[int]:
    """The last step of each stretch."""
    return [(stretch + 1) * width for stretch in range(start, end)]


def _means(seen: History) -> list[tuple[int, float]]:
    return [(step, evaluation.mean) for step, evaluation in seen.evaluations]


def _line(points: Sequence[tuple[int, float]]) -> Line:
    return Line([step for step, _ in points], [value for _, value in points])
