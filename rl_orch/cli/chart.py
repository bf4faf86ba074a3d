"""Curves in the terminal: the one place that touches plotext, which has no types."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import plotext  # type: ignore[import-untyped]

WIDTH, HEIGHT = 76, 14
COLOURS = ("cyan", "magenta", "green", "yellow")


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of returns over environment steps, with the evaluations as dots on it."""

    label: str
    steps: Sequence[int]
    returns: Sequence[float]
    eval_steps: Sequence[int] = ()
    eval_returns: Sequence[float] = ()


def draw(
    curves: Sequence[Curve], *, target: float | None = None, colour: bool = True, width: int = WIDTH
) -> str:
    """The curves as text; a target is a horizontal line. Empty where there is nothing to draw."""
    if not any(curve.steps or curve.eval_steps for curve in curves):
        return ""
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plotsize(min(width, 100), HEIGHT)
    for curve, tint in zip(curves, COLOURS * len(curves), strict=False):
        if curve.steps:
            plotext.plot(
                list(curve.steps),
                list(curve.returns),
                marker="braille",
                color=tint,
                label=curve.label,
            )
        if curve.eval_steps:
            label = f"{curve.label}, evaluated" if curve.steps else curve.label
            plotext.scatter(
                list(curve.eval_steps),
                list(curve.eval_returns),
                marker="●",
                color=f"{tint}+",
                label=label,
            )
    if target is not None:
        plotext.hline(target, color="gray")
    steps = [step for curve in curves for step in (*curve.steps, *curve.eval_steps)]
    returns = [ret for curve in curves for ret in (*curve.returns, *curve.eval_returns)]
    across = ticks(0, max(steps))
    up = ticks(min(returns), max(returns) if target is None else max(*returns, target))
    plotext.xticks(across, [_short(tick) for tick in across])
    plotext.xlim(0, max(steps))
    plotext.yticks(up, [f"{tick:g}" for tick in up])
    plotext.xlabel("environment steps")
    text = str(plotext.build())
    return text if colour else str(plotext.uncolorize(text))


def ticks(low: float, high: float) -> list[float]:
    """Round numbers from low to high, six at the most."""
    span = max(high - low, 1e-9)
    size = 10.0 ** math.floor(math.log10(span))
    step = next(size * part for part in (0.1, 0.2, 0.5, 1, 2, 5) if span / (size * part) <= 5)
    first = math.ceil(low / step)
    return [round(step * k, 10) for k in range(first, math.floor(high / step) + 1)]


def _short(steps: float) -> str:
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if steps >= size:
            return f"{steps / size:g}{unit}"
    return f"{steps:g}"
