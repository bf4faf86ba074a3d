"""Draws the learning curves as small multiples."""

import math
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from benchmarks.learning.results import Curve, Results
from benchmarks.learning.tasks import Task

COLUMNS = 4
OURS = "#1f6fb4"
SB3 = "#8a8a8a"
NAMES = {"qrdqn": "QR-DQN"}

STYLE: Any = {
    "svg.hashsalt": "learning",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
}


def draw(results: Results, path: Path) -> None:
    """A panel for each task that has runs; the dashed line is what is asked for."""
    tasks = results.known()
    rows = math.ceil(len(tasks) / COLUMNS)
    columns = min(COLUMNS, len(tasks))
    height = 1.8 * rows + 0.4
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(2.4 * columns, height))
        axes = figure.subplots(rows, columns, squeeze=False)
        for panel, task in zip(axes.flat, tasks, strict=False):
            _panel(panel, task, results.curve(task, "ours"), results.curve(task, "sb3"))
        for panel in axes.flat[len(tasks) :]:
            panel.set_visible(False)
        figure.supxlabel("environment steps", size=8)
        figure.supylabel("return of an episode, interquartile mean over seeds", size=8)
        _legend(figure)
        figure.tight_layout(rect=(0, 0, 1, 1 - 0.3 / height))
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Date": None}, facecolor="white")


def _panel(panel: Any, task: Task, ours: Curve | None, sb3: Curve | None) -> None:
    panel.set_title(f"{NAMES.get(task.algorithm, task.algorithm.upper())} · {task.env}", size=8)
    if task.threshold is not None:
        panel.axhline(task.threshold, color="black", linewidth=0.7, linestyle=(0, (4, 3)))
    for curve, colour in ((sb3, SB3), (ours, OURS)):
        if curve is None:
            continue
        panel.plot(curve.steps, curve.iqm, color=colour, linewidth=1.3)
        panel.fill_between(curve.steps, curve.low, curve.high, color=colour, alpha=0.2, linewidth=0)
    end = max(curve.steps[-1] for curve in (ours, sb3) if curve is not None)
    panel.set_xticks([0, end / 2, end])
    panel.xaxis.set_major_formatter(FuncFormatter(_steps))
    panel.yaxis.set_major_locator(MaxNLocator(4))
    panel.tick_params(width=0.6, length=2.5, labelsize=7)


def _steps(value: float, _position: int) -> str:
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 1e3 else f"{value:g}"


def _legend(figure: Any) -> None:
    handles = [
        Line2D([], [], color=OURS, linewidth=1.5, label="rl-orch"),
        Line2D([], [], color=SB3, linewidth=1.5, label="Stable-Baselines3"),
        Line2D([], [], color="black", linewidth=0.7, linestyle=(0, (4, 3)), label="asked for"),
    ]
    figure.legend(handles=handles, loc="upper center", ncols=3, frameon=False, fontsize=8)
