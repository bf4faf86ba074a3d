"""What the runs add up to: curves with intervals over seeds, and bars; and the file they are in."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from benchmarks.learning.differences import Comparison, compare
from benchmarks.learning.tasks import EQUAL, TASKS, Task
from rl_orch import stats
from rl_orch.spec.model import Spec

Side: TypeAlias = Literal["ours", "plain", "torch", "sb3", "sbx"]
SIDES: tuple[Side, ...] = ("ours", "plain", "torch", "sb3", "sbx")
"""Ours as it is shipped; ours without what the peer lacks, where it lacks something; ours in torch,
where the kernels train otherwise; the peer, and the peer's algorithm in JAX."""

PEERS: tuple[Side, ...] = ("sb3", "sbx")


PAIRS: tuple[tuple[Side, Side], ...] = (("ours", "sb3"), ("ours", "torch"))
"""Whose difference is looked at where both train the same."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Interquartile means over seeds and their 95 % bootstrap intervals, at each step."""

    seeds: tuple[int, ...]
    steps: tuple[int, ...]
    iqm: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Bar:
    """Whether what was asked for is reached at the end; `passed` is None where that is not known.

    `target` is the threshold, or the lower end of the peer's interval.
    """

    rule: str
    target: float | None
    ours: float | None
    passed: bool | None


class Results:
    """The runs of all tasks, in a file that is written after each of them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.tasks: dict[str, dict[str, Any]] = {}
        if path.exists():
            self.tasks = json.loads(path.read_text())["tasks"]

    def begin(self, task: Task, spec: Spec, about: Mapping[str, Any]) -> None:
        """Make room for the runs of a task; those of another spec are forgotten."""
        shown = spec.model_dump(mode="json", exclude_defaults=True)
        del shown["env"]["seed"]
        shown["agent"] = {"algorithm": task.algorithm, **shown.get("agent", {})}
        entry = self.tasks.get(task.name, {})
        runs = entry.get("runs", []) if entry.get("spec") == shown else []
        self.tasks[task.name] = {**about, "spec": shown, "runs": runs}

    def has(self, task: Task, side: Side, seed: int) -> bool:
        """Whether that run has been made."""
        return any((run["side"], run["seed"]) == (side, seed) for run in self._runs(task))

    def add(self, task: Task, run: dict[str, Any]) -> None:
        """Keep a run, in place of the one of its side and seed, and write the file."""
        others = [
            other
            for other in self._runs(task)
            if (other["side"], other["seed"]) != (run["side"], run["seed"])
        ]
        runs = sorted([*others, run], key=lambda run: (run["side"], run["seed"]))
        self.tasks[task.name]["runs"] = runs
        self._dump()

    def curve(self, task: Task, side: Side) -> Curve | None:
        """The curve of one side, if there are runs of it."""
        runs = [run for run in self._runs(task) if run["side"] == side]
        return curve(runs) if runs else None

    def curves(self, task: Task) -> dict[Side, Curve]:
        """The curves of all sides that have runs."""
        found = {side: self.curve(task, side) for side in SIDES}
        return {side: curve for side, curve in found.items() if curve is not None}

    def compared(
        self, task: Task, one: Side, other: Side, *, fresh: bool = False
    ) -> Comparison | None:
        """One side against another, if both have runs with the whole budget; with `fresh`, by the
        seeds alone that a row was repeated with."""
        first = task.seeds if fresh else 0
        whole = (run for run in self._runs(task) if run["steps"][-1] >= task.env_steps)
        runs = [run for run in whole if run["seed"] > first]
        sides = [[run for run in runs if run["side"] == side] for side in (one, other)]
        return compare(*sides) if all(sides) else None

    def like(self, task: Task) -> Curve | None:
        """The curve of ours that has the same hyperparameters as the peer's, if there is one."""
        lacking = self.tasks.get(task.name, {}).get("sb3_lacks")
        return self.curve(task, "plain" if lacking else "ours")

    def bar(self, task: Task) -> Bar:
        """Whether a task is learned."""
        ours = self.like(task) if task.threshold is None else self.curve(task, "ours")
        asked = PEERS if task.sbx else PEERS[:1]
        return judge(task, ours, [self.curve(task, peer) for peer in asked])

    def known(self) -> list[Task]:
        """The tasks that have runs, in the order of the table."""
        tasks = (TASKS | EQUAL).items()
        return [task for name, task in tasks if self.tasks.get(name, {}).get("runs")]

    def write(self) -> None:
        """Write the runs, and what they add up to."""
        for task in self.known():
            self.tasks[task.name] |= self._summary(task)
        self._dump()

    def _dump(self) -> None:
        tasks = {task.name: self.tasks[task.name] for task in self.known()}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(_json({"tasks": tasks}))

    def _runs(self, task: Task) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = self.tasks.get(task.name, {}).get("runs", [])
        return runs

    def _summary(self, task: Task) -> dict[str, Any]:
        curves = self.curves(task)
        summary = {"curves": {side: asdict(curve) for side, curve in curves.items()}}
        if task.equal:
            pairs = {f"{one} - {other}": self.compared(task, one, other) for one, other in PAIRS}
            found = {pair: asdict(leads) for pair, leads in pairs.items() if leads}
            return {**summary, "differences": found}
        lead = not_below(self.like(task), curves.get("sb3"))
        return {**summary, "bar": asdict(self.bar(task)), "not_below_sb3": lead}


def curve(runs: Sequence[Mapping[str, Any]]) -> Curve:
    """What the runs of one side say of each step at which all of them were evaluated.

    A bootstrap over a few seeds is rather too narrow than too wide: it is hard on whoever is asked
    not to be below it.
    """
    by_step = [dict(zip(run["steps"], run["returns"], strict=True)) for run in runs]
    steps = sorted(set.intersection(*(set(found) for found in by_step)))
    columns = [np.array([found[step] for found in by_step]) for step in steps]
    intervals = [stats.interval(column, stats.iqm) for column in columns]
    return Curve(
        seeds=tuple(run["seed"] for run in runs),
        steps=tuple(steps),
        iqm=tuple(float(stats.iqm(column[None, :])[0]) for column in columns),
        low=tuple(low for low, _ in intervals),
        high=tuple(high for _, high in intervals),
    )


def judge(task: Task, ours: Curve | None, peers: Sequence[Curve | None]) -> Bar:
    """Whether a task is learned: a short form of the budget or too few seeds say nothing of it."""
    if task.threshold is None:
        rule = f"not below the interval of {' and '.join(('SB3', 'SBX')[: len(peers)])}"
        whole = [peer.low[-1] for peer in peers if peer is not None and _whole(task, peer)]
        target = max(whole) if len(whole) == len(peers) else None
    else:
        rule, target = f"at least {task.threshold:g}", task.threshold
    if ours is None or not _whole(task, ours):
        return Bar(rule, target, None, None)
    return Bar(rule, target, ours.iqm[-1], None if target is None else ours.iqm[-1] >= target)


def not_below(ours: Curve | None, sb3: Curve | None) -> bool | None:
    """Whether ours ends at or above the lower end of the peer's interval, if both are known."""
    if ours is None or sb3 is None or ours.steps[-1] != sb3.steps[-1]:
        return None
    return ours.iqm[-1] >= sb3.low[-1]


def _whole(task: Task, curve: Curve | None) -> bool:
    """Whether a curve has the whole budget and as many seeds as are asked for."""
    return (
        curve is not None and curve.steps[-1] >= task.env_steps and len(curve.seeds) >= task.seeds
    )


def _json(document: Mapping[str, Any]) -> str:
    """Indented, but with each list of numbers on one line."""
    text = json.dumps(document, indent=2)
    return re.sub(r"\[\s+([-+\d.eE,\s]+?)\s+\]", lambda m: f"[{_one_line(m[1])}]", text) + "\n"


def _one_line(numbers: str) -> str:
    return re.sub(r"\s+", " ", numbers)
