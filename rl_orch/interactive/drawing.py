"""Curves drawn small: as a picture in HTML, which needs no library, and as a line of text."""

from collections.abc import Sequence
from dataclasses import fields
from html import escape

from rl_orch.core.runs.curves import Curve, Line
from rl_orch.stats.text import figure

WIDTH, HEIGHT, MARGIN = 420, 130, 6
BARS = "▁▂▃▄▅▆▇█"
LONGEST = 32
"""Characters of a curve as text."""


class DrawnCurve(Curve):
    """A curve that a notebook shows as a picture, and a console as a line."""

    __slots__ = ()

    @classmethod
    def of(cls, curve: Curve) -> "DrawnCurve":
        """The same curve."""
        return cls(**{each.name: getattr(curve, each.name) for each in fields(Curve)})

    def __repr__(self) -> str:
        bars = sparkline(self.training.returns) or "no returns yet"
        return f"<the curve of {self.label}, {self.last_step:,} steps: {bars}>"

    def _repr_html_(self) -> str:
        return svg(self) or f"<p>{escape(repr(self)[1:-1])}</p>"


def svg(curve: Curve) -> str:
    """The curve as inline SVG: returns over steps, the band of a group, dots for evaluations."""
    if not curve.drawn:
        return ""
    low, high = min(curve.drawn), max(curve.drawn)
    plane = _Plane(max(curve.last_step, 1), low, (high - low) or 1.0)
    parts = [plane.band(curve.training), plane.line(curve.training)]
    parts += [plane.line(tail) for tail in curve.tails]
    parts += [plane.dots(curve.evaluated)]
    words = f"return from {figure(low)} to {figure(high)} over {curve.last_step:,} steps"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{WIDTH}" height="{HEIGHT + 16}"'
        f' style="color:#3572b0"><title>{escape(words)}</title>{"".join(parts)}'
        f'<text x="{MARGIN}" y="{HEIGHT + 12}" font-size="11" fill="currentColor">{escape(words)}'
        "</text></svg>"
    )


def sparkline(values: Sequence[float]) -> str:
    """The values as a row of bars, lowest to highest."""
    if not values:
        return ""
    shown = [values[at * len(values) // LONGEST] for at in range(LONGEST)]
    shown = list(values) if len(values) <= LONGEST else shown
    low, high = min(shown), max(shown)
    steps = [(value - low) / ((high - low) or 1.0) for value in shown]
    return "".join(BARS[min(int(step * len(BARS)), len(BARS) - 1)] for step in steps)


class _Plane:
    """Where steps and returns lie in a picture."""

    def __init__(self, last: int, low: float, extent: float) -> None:
        self._last, self._low, self._extent = last, low, extent

    def line(self, line: Line) -> str:
        """A curve."""
        points = self._points(line.steps, line.returns)
        return f'<polyline fill="none" stroke="currentColor" stroke-width="1.5" points="{points}"/>'

    def band(self, line: Line) -> str:
        """The interval about a mean, if there is one."""
        if not line.low:
            return ""
        there, back = self._points(line.steps, line.high), self._points(line.steps, line.low)
        turned = " ".join(reversed(back.split()))
        return f'<polygon fill="currentColor" opacity="0.2" points="{there} {turned}"/>'

    def dots(self, line: Line) -> str:
        """A dot for each point."""
        places = (pair.split(",") for pair in self._points(line.steps, line.returns).split())
        return "".join(f'<circle cx="{x}" cy="{y}" r="2.5" fill="#d1495b"/>' for x, y in places)

    def _points(self, steps: Sequence[int], values: Sequence[float]) -> str:
        pairs = zip(map(self._x, steps), map(self._y, values), strict=True)
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in pairs)

    def _x(self, step: int) -> float:
        return MARGIN + (WIDTH - 2 * MARGIN) * step / self._last

    def _y(self, value: float) -> float:
        share = min(max((value - self._low) / self._extent, 0.0), 1.0)
        return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * share
