"""Draws the learning curves as small multiples."""

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from benchmarks.learning.results import Curve, Results, Side
from benchmarks.learning.tasks import Task

COLUMNS = 4
LOOKS: Mapping[Side, tuple[str, str]] = {
    "sb3": ("#8a8a8a", "Stable-Baselines3"),
    "sbx": ("#5aae61", "SBX"),
    "torch": ("#7b3294", "rl-orch in torch"),
    "plain": ("#e08214", "rl-orch without what SB3 lacks"),
    "ours": ("#1f6fb4", "rl-orch"),
}
"""Colour and label of each side, the topmost last."""

ASKED: Any = {"color": "black", "linewidth": 0.7, "linestyle": (0, (4, 3))}

STYLE: Any = {
    "svg.hashsalt": "learning",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
}


def draw(results: Results, tasks: Sequence[Task], path: Path) -> None:
    """A panel for each of these tasks, which have runs; the dashed line is what is asked for."""
    rows = math.ceil(len(tasks) / COLUMNS)
    columns = min(COLUMNS, len(tasks))
    height = 1.8 * rows + 0.4
    curves = {task.name: results.curves(task) for task in tasks}
    shown = {side for drawn in curves.values() for side in drawn}
    asked = any(task.threshold is not None for task in tasks)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(2.4 * columns, height))
        axes = figure.subplots(rows, columns, squeeze=False)
        for panel, task in zip(axes.flat, tasks, strict=False):
            _panel(panel, task, curves[task.name])
        for panel in axes.flat[len(tasks) :]:
            panel.set_visible(False)
        figure.supxlabel("environment steps", size=8)
        figure.supylabel("return of an episode, interquartile mean over seeds", size=8)
        _legend(figure, shown, asked=asked)
        figure.tight_layout(rect=(0, 0, 1, 1 - 0.3 / height))
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Date": None}, facecolor="white")


def _panel(panel: Any, task: Task, curves: Mapping[Side, Curve]) -> None:
    panel.set_title(task.title, size=8)
    if task.threshold is not None:
        panel.axhline(task.threshold, **ASKED)
    for side, (colour, _) in LOOKS.items():
        if (curve := curves.get(side)) is not None:
            panel.plot(curve.steps, curve.iqm, color=colour, linewidth=1.3)
            panel.fill_between(
                curve.steps, curve.low, curve.high, color=colour, alpha=0.2, linewidth=0
            )
    end = max(curve.steps[-1] for curve in curves.values())
    panel.set_xticks([0, end / 2, end])
    panel.xaxis.set_major_formatter(FuncFormatter(_steps))
    panel.yaxis.set_major_locator(MaxNLocator(4))
    panel.tick_params(width=0.6, length=2.5, labelsize=7)


def _steps(value: float, _position: int) -> str:
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 1e3 else f"{value:g}"


def _legend(figure: Any, shown: Collection[Side], *, asked: bool) -> None:
    lines = [
        Line2D([], [], color=colour, linewidth=1.5, label=label)
        for side, (colour, label) in reversed([*LOOKS.items()])
        if side in shown
    ]
    lines += [Line2D([], [], label="asked for", **ASKED)] if asked else []
    figure.legend(handles=lines, loc="upper center", ncols=4, frameon=False, fontsize=8)
