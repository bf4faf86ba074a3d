"""Curves in the terminal: the one place that touches plotext, which has no types."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotext  # type: ignore[import-untyped]

from rl_orch.core.runs.curves import Curve, Line

WIDTH, HEIGHT, TALL = 76, 14, 20
COLOURS = ("cyan", "magenta", "green", "yellow")
DOTS = "●■▲◆"
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SHADES = "░·"
"""A band in colour is shaded; without colour, neighbours are shaded differently."""


@dataclass(frozen=True, slots=True)
class Pen:
    """How one of several curves is told from the others."""

    colour: str
    line: str
    dot: str
    shade: str

    @property
    def sample(self) -> str:
        """The line as the legend shows it."""
        return "──" if self.line == "braille" else self.line


@dataclass(frozen=True, slots=True)
class Frame:
    """What the axes span, and the size of the picture in characters."""

    last_step: int
    lowest: float
    highest: float
    width: int
    height: int


def draw(
    curves: Sequence[Curve], *, target: float | None = None, colour: bool = True, width: int = WIDTH
) -> str:
    """The curves as text, with a legend under it; a target is a horizontal line.

    Empty where there is nothing to draw. Without colour, several curves are drawn with letters.
    """
    frame = _frame(curves, target, width)
    if frame is None:
        return ""
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plotsize(frame.width, frame.height)
    pens = [_pen(index, colour=colour, alone=len(curves) == 1) for index in range(len(curves))]
    for curve, pen in zip(curves, pens, strict=True):
        _shade(curve.training, pen, frame)
    if target is not None:
        plotext.hline(target, color="gray")
    for curve, pen in zip(curves, pens, strict=True):
        _trace(curve, pen)
    _axes(frame)
    legend = [_entry(curve, pen) for curve, pen in zip(curves, pens, strict=True)]
    text = "\n".join([str(plotext.build()).rstrip("\n"), *(f"  {line}" for line in legend)])
    return text if colour else str(plotext.uncolorize(text))


def ticks(low: float, high: float) -> list[float]:
    """Round numbers from low to high, six at the most."""
    span = max(high - low, 1e-9)
    size = 10.0 ** math.floor(math.log10(span))
    step = next(size * part for part in (0.1, 0.2, 0.5, 1, 2, 5) if span / (size * part) <= 5)
    first = math.ceil(low / step)
    return [round(step * k, 10) for k in range(first, math.floor(high / step) + 1)]


def _frame(curves: Sequence[Curve], target: float | None, width: int) -> Frame | None:
    returns = [value for curve in curves for value in curve.drawn]
    last_step = max((curve.last_step for curve in curves), default=0)
    if not returns or last_step == 0:
        return None
    low, high = min(returns), max(returns) if target is None else max(*returns, target)
    return Frame(last_step, low, high, min(width, 100), HEIGHT if len(curves) == 1 else TALL)


def _pen(index: int, *, colour: bool, alone: bool) -> Pen:
    lettered = not colour and not alone
    return Pen(
        colour=COLOURS[index % len(COLOURS)],
        line=LETTERS[index % len(LETTERS)] if lettered else "braille",
        dot=DOTS[index % len(DOTS)],
        shade=SHADES[index % len(SHADES)] if lettered else SHADES[0],
    )


def _shade(line: Line, pen: Pen, frame: Frame) -> None:
    """Fill the band, one character at a time."""
    if not line.low:
        return
    steps = np.linspace(line.steps[0], line.steps[-1], frame.width)
    low = np.interp(steps, line.steps, np.maximum(line.low, frame.lowest))
    high = np.interp(steps, line.steps, np.minimum(line.high, frame.highest))
    levels = np.linspace(frame.lowest, frame.highest, 2 * frame.height)
    inside = (levels[:, None] >= low) & (levels[:, None] <= high)
    at, across = np.nonzero(inside)
    if at.size:
        xs, ys = steps[across].tolist(), levels[at].tolist()
        plotext.scatter(xs, ys, marker=pen.shade, color=pen.colour)


def _trace(curve: Curve, pen: Pen) -> None:
    for line in (curve.training, *curve.tails):
        if line.steps:
            plotext.plot(list(line.steps), list(line.returns), marker=pen.line, color=pen.colour)
    if curve.evaluated.steps:
        steps, returns = list(curve.evaluated.steps), list(curve.evaluated.returns)
        plotext.scatter(steps, returns, marker=pen.dot, color=f"{pen.colour}+")


def _axes(frame: Frame) -> None:
    across, up = ticks(0, frame.last_step), ticks(frame.lowest, frame.highest)
    plotext.xticks(across, [_short(tick) for tick in across])
    plotext.xlim(0, frame.last_step)
    plotext.yticks(up, [f"{tick:g}" for tick in up])
    if frame.lowest < frame.highest:
        plotext.ylim(frame.lowest, frame.highest)
    plotext.xlabel("environment steps")


def _entry(curve: Curve, pen: Pen) -> str:
    """A curve's line of the legend, which stands under the picture so that it hides nothing."""
    parts = []
    if curve.training.steps:
        parts.append(f"{pen.sample} {curve.label}")
    if curve.training.low:
        parts.append(f"{pen.shade} 95 % interval of the mean")
    if curve.tails:
        parts.append(f"{pen.sample} without {pen.shade}: single runs that went on")
    if curve.evaluated.steps:
        named = "evaluated" if curve.training.low else f"{curve.label}, evaluated"
        parts.append(f"{pen.dot} {named if curve.training.steps else curve.label}")
    return str(plotext.colorize("   ".join(parts), pen.colour))


def _short(steps: float) -> str:
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if steps >= size:
            return f"{steps / size:g}{unit}"
    return f"{steps:g}"
