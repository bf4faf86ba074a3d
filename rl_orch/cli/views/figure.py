"""Curves as PNG or SVG: the one place that touches matplotlib, loaded when a picture is drawn."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rl_orch.core.runs.curves import Curve, Line
from rl_orch.errors import BadInput, RlctlError
from rl_orch.io.files import private

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette, which colour-blind people can tell apart."""

GREY = "#666666"
STROKES = ("-", "--", "-.", ":")
DOTS = "osD^vPX"


def check_name(path: Path) -> None:
    """Raise if a picture cannot be written under that name."""
    if path.suffix.lower() not in FORMATS:
        raise BadInput(
            f"--out is {str(path)!r}; its name must end in {' or '.join(FORMATS)}",
            hint=f"For example: --out {path.stem or 'curves'}.png",
        )


@dataclass(frozen=True, slots=True)
class FinalScores:
    """Final returns of the runs of a group; their interquartile mean and its interval, which for a
    single run has no bounds."""

    label: str
    returns: tuple[float, ...]
    iqm: float | None = None
    bounds: tuple[float, float] | None = None


def save(
    path: Path,
    curves: Sequence[Curve],
    *,
    title: str,
    target: float | None = None,
    scores: Sequence[FinalScores] = (),
    metric: str = "return",
) -> None:
    """Write the curves into a file, whose name says in which format; `scores` are a panel beside
    them, or all of it where there is no curve."""
    # Matplotlib takes a second to load and is needed only here. No pyplot: no display is asked for.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "rlctl", "font.size": 10}):
        shown = [each for each in scores if each.returns]
        drawn = any(curve.drawn for curve in curves)
        figure = Figure(
            figsize=(11.0 if shown and drawn else 8.0, 5.0), dpi=150, layout="constrained"
        )
        if shown:
            panel = figure.add_subplot(1, 3, 3) if drawn else figure.subplots()
            _draw_scores(panel, shown, target, metric)
        if drawn:
            axes = figure.add_subplot(1, 3, (1, 2)) if shown else figure.subplots()
            _draw_curves(axes, curves, target, metric)
            axes.set_title(title, loc="left")
            figure.legend(loc="outside lower center", ncols=2, frameon=False)
        else:
            figure.suptitle(title)
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else {}
        try:
            private.inner_folder(path.parent)
            with open(path, "wb", opener=private.inner_file) as file:
                figure.savefig(file, format=path.suffix[1:].lower(), metadata=metadata)
        except OSError as error:
            raise RlctlError(
                f"picture {str(path)!r} cannot be written: {error.strerror}",
                hint="Name a file in a folder that can be written to.",
            ) from None


def _draw_curves(axes: "Axes", curves: Sequence[Curve], target: float | None, metric: str) -> None:
    for index, curve in enumerate(curves):
        _draw(axes, curve, index)
    if target is not None:
        _draw_gate(axes, target)
    _frame(axes, curves, target)
    axes.set_ylabel(_text(f"episode {metric}"))
    _explain(axes, curves)


def _draw(axes: "Axes", curve: Curve, index: int) -> None:
    colour, label = COLOURS[index % len(COLOURS)], _text(curve.label)
    stroke, dot = STROKES[index % len(STROKES)], DOTS[index % len(DOTS)]
    training, evaluated = curve.training, curve.evaluated
    axes.plot(training.steps, training.returns, stroke, color=colour, label=label)
    if training.low:
        axes.fill_between(
            training.steps, training.low, training.high, color=colour, alpha=0.2, linewidth=0
        )
    for tail in curve.tails:
        axes.plot(tail.steps, tail.returns, color=colour, linewidth=0.7, alpha=0.6)
    if evaluated.steps:
        axes.errorbar(
            evaluated.steps, evaluated.returns, yerr=_whiskers(evaluated),
            fmt=dot, color=colour, markersize=4, capsize=2, linewidth=0.8,
        )  # fmt: skip


def _draw_scores(
    axes: "Axes", scores: Sequence[FinalScores], target: float | None, metric: str
) -> None:
    """A dot for each run, and the interquartile mean of each group with its interval."""
    for index, each in enumerate(scores):
        colour, n = COLOURS[index % len(COLOURS)], len(each.returns)
        spread = [index + 0.3 * ((place + 0.5) / n - 0.5) for place in range(n)]
        axes.plot(spread, each.returns, "o", color=colour, markersize=4, alpha=0.5)
        if each.iqm is not None:
            axes.plot([index - 0.3, index + 0.3], [each.iqm] * 2, color=colour, linewidth=2)
        if each.bounds is not None and all(map(math.isfinite, each.bounds)):
            axes.plot([index] * 2, each.bounds, color=colour, linewidth=1)
    if target is not None:
        axes.axhline(target, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
    axes.set_xticks(range(len(scores)), [_text(each.label) for each in scores], rotation=20)
    axes.set_xlim(-0.6, len(scores) - 0.4)
    middle = "IQM, " if any(len(each.returns) > 1 for each in scores) else ""
    title = f"final {metric} of each run; {middle}95 % interval"
    axes.set_title(_text(title), loc="left", fontsize=9)
    axes.grid(alpha=0.25, linewidth=0.6, axis="y")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_gate(axes: "Axes", target: float) -> None:
    axes.axhline(target, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
    axes.annotate(
        f"gate {target:g}", (0, target), xycoords=("axes fraction", "data"),
        xytext=(4, 3), textcoords="offset points", color=GREY,
    )  # fmt: skip


def _explain(axes: "Axes", curves: Sequence[Curve]) -> None:
    """What shade, dots and thin lines are, in the legend; once for all curves."""
    if any(curve.training.low for curve in curves):
        axes.fill_between([], [], [], color=GREY, alpha=0.3, label="95 % interval of the mean")
    if any(curve.evaluated.steps for curve in curves):
        banded = any(curve.evaluated.low for curve in curves)
        label = "evaluated, with 95 % interval" if banded else "evaluated"
        axes.plot([], [], "o", color=GREY, markersize=4, label=label)
    if any(curve.tails for curve in curves):
        axes.plot([], [], color=GREY, linewidth=0.7, label="single runs that went on")


def _whiskers(line: Line) -> list[list[float]] | None:
    if not line.low:
        return None
    below = [middle - low for middle, low in zip(line.returns, line.low, strict=True)]
    above = [high - middle for middle, high in zip(line.returns, line.high, strict=True)]
    return [below, above]


def _frame(axes: "Axes", curves: Sequence[Curve], target: float | None) -> None:
    """Axes with their units and room for markers with their intervals; a shaded band that is wider
    than that leaves the picture."""
    returns = [value for curve in curves for value in (*curve.drawn, *curve.whiskers)]
    returns += [] if target is None else [target]
    if returns:
        margin = 0.05 * (max(returns) - min(returns)) or 1.0
        axes.set_ylim(min(returns) - margin, max(returns) + margin)
    axes.set_xlim(left=0)
    axes.set_xlabel("environment steps")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _text(label: str) -> str:
    """A label that is not taken for a formula, nor for one to be hidden."""
    return label.replace("$", r"\$").removeprefix("_")
