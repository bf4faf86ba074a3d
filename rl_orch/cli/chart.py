"""Curves in the terminal: the one place that touches plotext, which has no types."""

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
                marker="dot",
                color=f"{tint}+",
                label=label,
            )
    if target is not None:
        plotext.hline(target, color="gray")
    ticks = _ticks(max(step for curve in curves for step in (*curve.steps, *curve.eval_steps)))
    plotext.xticks(ticks, [_short(tick) for tick in ticks])
    plotext.xlabel("environment steps")
    text = str(plotext.build())
    return text if colour else str(plotext.uncolorize(text))


def _ticks(last: int) -> list[int]:
    """Round numbers of steps along the axis."""
    size = 10 ** (len(str(last)) - 1)
    step = next(
        size * part // 10 for part in (1, 2, 5, 10, 20, 50) if size * part // 10 * 6 >= last
    )
    return list(range(0, last + 1, max(step, 1)))


def _short(steps: int) -> str:
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if steps >= size:
            return f"{steps / size:g}{unit}"
    return str(steps)
