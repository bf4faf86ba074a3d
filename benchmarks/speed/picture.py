"""Draws how fast each side trains, as bars."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from benchmarks.speed.results import PEERS, Results, fastest_peer, figure, ratio
from benchmarks.speed.workloads import Workload

LOOKS: Mapping[str, tuple[str, str]] = {
    "ours": ("#1f6fb4", "rl-orch"),
    "ours-kernels": ("#1f6fb4", "rl-orch, kernels"),
    "ours-torch": ("#7fb2dd", "rl-orch, torch"),
    "sb3": ("#8a8a8a", "Stable-Baselines3"),
    "cleanrl": ("#e08214", "CleanRL"),
    "sbx": ("#5aae61", "SBX"),
}
"""Colour and label of each side, the topmost bar first."""

STYLE: Any = {
    "svg.hashsalt": "train_speed",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
}


def draw(results: Results, path: Path) -> None:
    """A group of bars for each workload: medians, with a line from the slowest run to the fastest,
    and how many times as fast ours is as the fastest peer."""
    workloads = results.known()
    bars = sum(len(results.speeds(workload)) for workload in workloads)
    shown = [side for side in LOOKS if any(side in results.speeds(each) for each in workloads)]
    height = 0.16 * bars + 0.18 * len(workloads) + 0.9
    with matplotlib.rc_context(STYLE):
        drawn = Figure(figsize=(7.2, height))
        axes = drawn.subplots()
        axes.set_xscale("log")
        middles, place = [], 0.0
        for workload in workloads:
            first = place
            place = _group(axes, results.speeds(workload), place)
            middles.append((first + place - 1) / 2)
            place += 1.1
        axes.set_yticks(middles, [_label(workload) for workload in workloads])
        axes.invert_yaxis()
        axes.margins(x=0.16, y=0.02)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.tick_params(width=0.6, length=2.5, labelsize=7)
        axes.set_xlabel(
            "environment steps per second while training; × is to the fastest peer", size=8
        )
        handles = [Patch(color=LOOKS[side][0], label=LOOKS[side][1]) for side in shown]
        drawn.legend(handles=handles, loc="upper center", ncols=6, frameon=False, fontsize=8)
        drawn.tight_layout(rect=(0, 0, 1, 1 - 0.3 / height))
        path.parent.mkdir(parents=True, exist_ok=True)
        drawn.savefig(path, format="svg", metadata={"Date": None}, facecolor="white")


def _group(axes: Any, speeds: Mapping[str, Mapping[int, float]], place: float) -> float:
    """Draw the bars of a workload from a place on; returns the next place."""
    fastest = fastest_peer(speeds)
    for side in [side for side in LOOKS if side in speeds]:
        found = figure([*speeds[side].values()])
        axes.barh(place, found.median, height=0.85, color=LOOKS[side][0])
        axes.plot([found.low, found.high], [place, place], color="black", linewidth=0.7)
        times = ratio(speeds[side], speeds[fastest]) if fastest and side not in PEERS else None
        note = "" if times is None else f"  ×{times.median:.2f}"
        axes.text(found.high, place, note, va="center", size=7)
        place += 1.0
    return place


def _label(workload: Workload) -> str:
    algorithm, env, *_ = workload.about.split(" · ")
    return f"{workload.name}\n{algorithm} · {env}"
