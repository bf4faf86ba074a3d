"""Comparing pairs while they are being played, and stopping as soon as the answer is clear.

Looking again and again at a test that was made for one look promotes far too often. Here the chance
of a false promotion, `alpha`, is spent over a fixed number of looks (Lan and DeMets 1983), as the
square of the share of pairs seen (Kim and DeMets 1987): little at first, yet enough to stop early
for a large effect. The bounds follow from that by integrating over all paths that have not been
stopped (Armitage, McPherson and Rowe 1969). Pure.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import numpy as np

from rl_orch.records import Stopping
from rl_orch.stats.bootstrap import Floats
from rl_orch.stats.student import NORMAL, boundary, upper_quantile

Decision = Literal["superior", "not", "go on"]

MISSED = 0.1
"""The share of effects, of the size that the test is made for, that may be missed."""

BOTTOM = -7.0
"""A deviation that no path falls below."""

MOST_DRIFT, FARTHEST = 12.0, 20.0
"""No effect that a test is made for is larger, no bound further out; in deviations at the end."""

MOST_LOOKS = 20
NODES, WEIGHTS = np.polynomial.legendre.leggauss(96)


@dataclass(frozen=True, slots=True)
class Look:
    """What a test says so far. `low` is the lower bound of the mean difference at the last look
    that was reached: with a chance of 1 - alpha it is right at every look at once."""

    decision: Decision
    pairs: int
    low: float


@dataclass(frozen=True, slots=True)
class Sequential:
    """A test of whether the mean of paired differences is above `-margin`.

    `sizes` are the numbers of pairs at which it looks; at each, Student's t at or above `upper`
    says superior, below `lower` says that going on is futile. Whoever goes on nonetheless spoils
    nothing: `upper` does not count on `lower`.
    """

    stopping: Stopping
    sizes: tuple[int, ...]
    upper: tuple[float, ...]
    lower: tuple[float, ...]

    def decide(self, differences: Sequence[float] | Floats) -> Decision:
        """The decision after the pairs so far; it does not matter how often it is asked for."""
        return self.look(differences).decision

    def look(self, differences: Sequence[float] | Floats) -> Look:
        """The first look that decides, or else the last one that these pairs reach."""
        values = np.asarray(differences, dtype=np.float64)
        seen = Look("go on", 0, -math.inf)
        for number, size in enumerate(self.sizes):
            if size > values.size or seen.decision != "go on":
                break
            seen = self._look(values[:size], number)
        return seen

    def _look(self, values: Floats, number: int) -> Look:
        last = number == len(self.sizes) - 1
        middle, margin = float(values.mean()), self.stopping.margin
        error = float(values.std(ddof=1)) / math.sqrt(values.size)
        if error == 0.0 and not last:  # Pairs that are all alike say nothing of rare ones.
            return Look("go on", values.size, -math.inf)
        low = middle - self.upper[number] * error
        superior = low >= -margin if error > 0.0 else middle > -margin
        futile = last or middle + margin < self.lower[number] * error
        decision: Decision = "superior" if superior else "not" if futile else "go on"
        return Look(decision, values.size, low)


@lru_cache(maxsize=64)
def plan(n_max: int, *, looks: int = 5, alpha: float = 0.025, margin: float = 0.0) -> Sequential:
    """A test of at most `n_max` pairs, with `looks` looks at equal distances.

    `alpha` bounds the chance of calling superior what is not; 0.025 is the chance that the lower
    end of a 95 % interval has.
    """
    if not (1 <= looks <= MOST_LOOKS and n_max >= 2 * looks):
        raise ValueError(
            f"looks is {looks}; must be in [1, {MOST_LOOKS}], with two pairs each of {n_max}"
        )
    if not (1e-6 <= alpha <= 0.5 and 0.0 <= margin < math.inf):
        raise ValueError(f"alpha is {alpha}, in [1e-6, 0.5]; margin is {margin}, from 0 on")
    sizes = tuple(-(-n_max * k // looks) for k in range(1, looks + 1))
    times = tuple(size / n_max for size in sizes)
    upper = _upper_bounds(times, alpha)
    lower = _lower_bounds(times, upper)
    return Sequential(
        stopping=Stopping(n_max=n_max, looks=looks, alpha=alpha, margin=margin),
        sizes=sizes,
        upper=_students(upper, sizes),
        lower=_students(lower, sizes),
    )


def _upper_bounds(times: Sequence[float], alpha: float) -> list[float]:
    """For each look the z that is passed, where there is no effect, with the chance to spend."""
    paths, before, bounds = _Paths(0.0), 0.0, []
    for time in times:
        place = paths.exceeded(alpha * (time**2 - before**2), time)
        paths, before = paths.kept((BOTTOM * math.sqrt(time), place), time), time
        bounds.append(place / math.sqrt(time))
    return bounds


def _lower_bounds(times: Sequence[float], upper: Sequence[float]) -> list[float]:
    """For each look the z below which it is futile to go on.

    Where the effect is the one that the test is made for, paths end there with a chance that adds
    up to `MISSED`, spent as alpha is. That effect is the one for which the two bounds meet at the
    last look, found by bisection.
    """
    drift = boundary(lambda drift: _futile(times, upper, drift)[-1] >= upper[-1], MOST_DRIFT, 0.0)
    return [*_futile(times, upper, drift)[:-1], upper[-1]]


def _futile(times: Sequence[float], upper: Sequence[float], drift: float) -> list[float]:
    """The lower bounds for a test that is made for the given drift."""
    paths, before, bounds = _Paths(drift), 0.0, []
    for time, z in zip(times, upper, strict=True):
        top = z * math.sqrt(time)
        share = paths.left - MISSED * (time**2 - before**2)
        place = min(top, paths.exceeded(share, time))
        paths, before = paths.kept((place, top), time), time
        bounds.append(place / math.sqrt(time))
    return bounds


@dataclass(frozen=True, slots=True)
class _Paths:
    """Where Brownian motion with a drift may be at a time, as far as no look has stopped it:
    chances at places, at first all of it at zero."""

    drift: float
    time: float = 0.0
    places: Floats = field(default_factory=lambda: np.zeros(1))
    chances: Floats = field(default_factory=lambda: np.ones(1))

    @property
    def left(self) -> float:
        """The chance of not having been stopped."""
        return float(self.chances.sum())

    def exceeded(self, chance: float, time: float) -> float:
        """The place that is exceeded at a later time with the given chance, by bisection."""
        return boundary(lambda place: self._above(place, time) > chance, -FARTHEST, FARTHEST)

    def kept(self, ends: tuple[float, float], time: float) -> "_Paths":
        """The paths that are between the ends at a later time, by Gauss and Legendre's rule."""
        gap, half = time - self.time, 0.5 * (ends[1] - ends[0])
        places = ends[0] + half * (1.0 + NODES)
        reach = (places[:, None] - self.places - self.drift * gap) / math.sqrt(gap)
        density = np.exp(-0.5 * reach**2) @ self.chances / math.sqrt(2.0 * math.pi * gap)
        return _Paths(self.drift, time, places, half * WEIGHTS * density)

    def _above(self, place: float, time: float) -> float:
        gap = time - self.time
        reach = (place - self.places - self.drift * gap) / math.sqrt(2.0 * gap)
        return 0.5 * float(np.dot([math.erfc(x) for x in reach], self.chances))


def _students(bounds: Sequence[float], sizes: Sequence[int]) -> tuple[float, ...]:
    """Bounds for Student's t that are passed as rarely as those for a normal number."""
    return tuple(
        upper_quantile(NORMAL.cdf(-z), size - 1) for z, size in zip(bounds, sizes, strict=True)
    )
