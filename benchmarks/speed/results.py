"""What the runs add up to: medians, ratios, who learned, and the file they are in."""

import json
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.speed.workloads import WORKLOADS, Floor, Workload

NAMES = {
    "ours": "ours",
    "ours-kernels": "ours, kernels",
    "ours-torch": "ours, torch",
    "sb3": "SB3",
    "cleanrl": "CleanRL",
    "sbx": "SBX",
}
"""What the sides are called; those of this package first."""

PEERS = ("sb3", "cleanrl", "sbx")


@dataclass(frozen=True, slots=True)
class Figure:
    """The median of some runs, and the least and the greatest of them."""

    median: float
    low: float
    high: float


class Results:
    """The runs of all workloads, in a file that is written after each of them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.workloads: dict[str, dict[str, Any]] = {}
        if path.exists():
            self.workloads = json.loads(path.read_text("utf-8")).get("workloads", {})

    def begin(self, workload: Workload, *, env_steps: int, about: Mapping[str, Any]) -> None:
        """Make room for the runs of a workload; those of another form of it are forgotten."""
        shown = json.loads(json.dumps(asdict(workload))) | {"env_steps": env_steps}
        entry = self.workloads.get(workload.name, {})
        same = all(entry.get(key) == value for key, value in shown.items())
        kept = {key: entry[key] for key in ("threads", "runs")} if same else {}
        self.workloads[workload.name] = {**shown, **about, "threads": {}, "runs": [], **kept}

    def has(self, workload: Workload, side: str, repeat: int) -> bool:
        """Whether that run has been made."""
        runs = self.workloads[workload.name]["runs"]
        return any((run["side"], run["repeat"]) == (side, repeat) for run in runs)

    def threads(self, workload: Workload, side: str) -> int | None:
        """The number of threads that a side was found to be fastest with."""
        probed = self.workloads[workload.name]["threads"].get(side)
        return None if probed is None else int(probed["best"])

    def probed(self, workload: Workload, side: str, speeds: Mapping[int, float]) -> None:
        """Keep how fast a side was with each number of threads."""
        found = {str(count): round(speed, 2) for count, speed in speeds.items()}
        entry = self.workloads[workload.name]["threads"]
        entry[side] = {"best": best_threads(speeds), "steps_per_s": found}
        self.write()

    def add(self, workload: Workload, run: dict[str, Any]) -> None:
        """Keep a run, in place of the one of its side and number, and write the file."""
        entry, key = self.workloads[workload.name], (run["side"], run["repeat"])
        others = [other for other in entry["runs"] if (other["side"], other["repeat"]) != key]
        entry["runs"] = sorted([*others, run], key=lambda run: (run["side"], run["repeat"]))
        self.write()

    def known(self) -> list[Workload]:
        """The workloads that have runs, in the order of the table."""
        return [each for name, each in WORKLOADS.items() if self.speeds(each)]

    def speeds(self, workload: Workload) -> dict[str, dict[int, float]]:
        """Steps per second by side and number of the run."""
        runs = self.workloads.get(workload.name, {}).get("runs", [])
        found: dict[str, dict[int, float]] = {side: {} for side in NAMES}
        for run in runs:
            found[run["side"]][run["repeat"]] = run["steps"] / run["seconds"]
        return {side: speeds for side, speeds in found.items() if speeds}

    def unlearned(self, workload: Workload) -> list[str]:
        """The runs that did not learn, in words; those of a quick form are not judged."""
        return [
            f"{workload.name} {NAMES[run['side']]}, seed {run['seed']}: mean return "
            f"{_number(run['mean_return'])} of the last {workload.floor.episodes} episodes; "
            f"at least {workload.floor.at_least:g} counts as learned"
            for run in self.workloads[workload.name]["runs"]
            if run["learned"] is False
        ]

    def write(self) -> None:
        """Write the runs, and what they add up to."""
        document = {
            each.name: self.workloads[each.name] | self._summary(each)
            for each in WORKLOADS.values()
            if each.name in self.workloads
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(_json({"workloads": document}), "utf-8")

    def _summary(self, workload: Workload) -> dict[str, Any]:
        speeds = self.speeds(workload)
        ours = [side for side in speeds if side not in PEERS]
        return {
            "steps_per_s": {side: asdict(figure([*of.values()])) for side, of in speeds.items()},
            "fastest_peer": fastest_peer(speeds),
            "ratios": {
                side: {
                    peer: asdict(found)
                    for peer in PEERS
                    if peer in speeds and (found := ratio(speeds[side], speeds[peer]))
                }
                for side in ours
            },
        }


def figure(values: Sequence[float]) -> Figure:
    """The median of values, and between which they lie."""
    return Figure(statistics.median(values), min(values), max(values))


def ratio(ours: Mapping[int, float], peer: Mapping[int, float]) -> Figure | None:
    """How many times as fast ours is: of runs of one number, which were made one after another."""
    both = sorted(ours.keys() & peer.keys())
    return figure([ours[number] / peer[number] for number in both]) if both else None


def fastest_peer(speeds: Mapping[str, Mapping[int, float]]) -> str | None:
    """The peer with the greatest median, if there is one."""
    medians = {peer: statistics.median(speeds[peer].values()) for peer in PEERS if speeds.get(peer)}
    return max(medians, key=lambda peer: medians[peer], default=None)


def best_threads(speeds: Mapping[int, float]) -> int:
    """The number of threads with which a side is fastest; of equals, the smaller."""
    return max(sorted(speeds), key=lambda count: speeds[count])


def mean_return(returns: Sequence[float], floor: Floor) -> float | None:
    """The mean return of the last episodes; None if there were too few."""
    last = returns[-floor.episodes :]
    return statistics.fmean(last) if len(last) == floor.episodes else None


def learned(returns: Sequence[float], floor: Floor) -> bool:
    """Whether the last episodes of a training reach the floor."""
    mean = mean_return(returns, floor)
    return mean is not None and mean >= floor.at_least


def table(results: Results, workloads: Iterable[Workload]) -> str:
    """Steps per second, and how many times as fast ours is, as a table in Markdown."""
    titles = [
        "workload",
        "side",
        "steps/s",
        *(f"{NAMES[peer]}, steps/s" for peer in PEERS),
        *(f"ours / {NAMES[peer]}" for peer in PEERS),
        "ours / fastest peer",
    ]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for workload in workloads:
        lines += [f"| {' | '.join(row)} |" for row in _rows(results, workload)]
    return "\n".join(lines)


def _rows(results: Results, workload: Workload) -> Iterable[list[str]]:
    speeds = results.speeds(workload)
    failed = {
        run["side"] for run in results.workloads[workload.name]["runs"] if run["learned"] is False
    }
    peers = [_speed(speeds.get(peer), failed=peer in failed) for peer in PEERS]
    fastest = fastest_peer(speeds)
    for side in [side for side in NAMES if side not in PEERS and side in speeds] or ["ours"]:
        ours = speeds.get(side, {})
        yield [
            workload.name,
            NAMES[side],
            _speed(ours, failed=side in failed),
            *peers,
            *(_times(ratio(ours, speeds.get(peer, {}))) for peer in PEERS),
            _times(ratio(ours, speeds[fastest])) if fastest else "–",
        ]


def _speed(speeds: Mapping[int, float] | None, *, failed: bool) -> str:
    if not speeds:
        return "–"
    found = figure([*speeds.values()])
    mark = " **did not learn**" if failed else ""
    return _shown(found, ",.0f") + mark


def _times(found: Figure | None) -> str:
    return "–" if found is None else _shown(found, ".2f")


def _shown(found: Figure, form: str) -> str:
    """The median and, of several runs, between which they lie."""
    if found.low == found.high:
        return format(found.median, form)
    return f"{found.median:{form}} ({found.low:{form}}..{found.high:{form}})"


def _number(value: float | None) -> str:
    return "not known" if value is None else f"{value:.1f}"


def _json(document: Mapping[str, Any]) -> str:
    """Indented, but with each list of numbers on one line."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    return re.sub(r"\[\s+([-+\d.eE,\s]+?)\s+\]", lambda m: f"[{_one_line(m[1])}]", text) + "\n"


def _one_line(numbers: str) -> str:
    return re.sub(r"\s+", " ", numbers)
