"""Measures, prints a table, and keeps and draws it; fails if a run did not learn.

Every run is a process, alone on the machine; the sides take turns, so that a slow moment hits all
of them. Before that, each side is tried with one thread and with two, and keeps to the better. A
finished run takes the place of the one with the same workload, side and number, so that workloads
may be run one by one. Writes `benchmarks/results/train_speed.json`, `docs/images/train_speed.svg`
and the table in `docs/performance.md`.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.speed.page import fill
from benchmarks.speed.picture import draw
from benchmarks.speed.results import NAMES, PEERS, Results, learned, mean_return, table
from benchmarks.speed.workloads import (
    ENGINES,
    WORKLOADS,
    Workload,
    overrides_of,
    spec_of,
    steps_of,
)
from rl_orch.io.run.manifest import git_commit

ROOT = Path(__file__).parents[2]
PUBLISHED = (
    ROOT / "benchmarks/results/train_speed.json",
    ROOT / "docs/images/train_speed.svg",
    ROOT / "docs/performance.md",
)
PROGRAMS = {
    "sb3": (".venv-peers", "benchmarks.peers.sb3_speed"),
    "sbx": (".venv-peers", "benchmarks.peers.sb3_speed"),
    "cleanrl": (".venv-peers-cleanrl", "benchmarks.peers.cleanrl_speed"),
}
"""The environment of each peer, which `make peers` builds, and what is run in it."""

THREADS = (1, 2)
MOST_SECONDS = 1800


@dataclass(frozen=True, slots=True)
class Side:
    """Who trains: this package in one of its ways, or a peer."""

    name: str
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """One training."""

    workload: Workload
    side: Side
    seed: int
    threads: int
    steps: int

    @property
    def label(self) -> str:
        """What to call it."""
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        return f"{self.workload.name} {NAMES[self.side.name]}, seed {self.seed}, {threads}"


def main() -> None:
    """Run what is asked for."""
    options = _options()
    results = Results(options.results)
    for workload in [] if options.no_runs else [WORKLOADS[name] for name in options.workloads]:
        _measure(workload, results, options)
    known = results.known()
    if not known:
        sys.exit(f"{options.results} has no runs")
    results.write()
    draw(results, options.picture)
    text = table(results, known)
    print(text)
    print(f"wrote {options.results} and {options.picture}")
    if options.page is not None:
        fill(options.page, options.picture, text, results)
        print(f"filled in {options.page}")
    if failed := [line for workload in known for line in results.unlearned(workload)]:
        sys.exit("\n".join(["these runs did not learn:", *failed]))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.speed", description=__doc__)
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=[*WORKLOADS])
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=[*PEERS])
    parser.add_argument(
        "--ours", nargs="*", choices=ENGINES, default=["auto"], help="Ways of training of ours."
    )
    parser.add_argument("--repeats", type=int, default=3, help="Runs of each side.")
    parser.add_argument("--threads", type=int, help="Instead of trying what is best.")
    parser.add_argument("--quick", action="store_true", help="A first look: a short run each.")
    parser.add_argument("--missing", action="store_true", help="Only runs that are not there yet.")
    parser.add_argument("--no-runs", action="store_true", help="Draw what is there.")
    parser.add_argument("--results", type=Path, help="Where the results are kept.")
    parser.add_argument("--picture", type=Path, help="Where the picture is drawn.")
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error(f"--repeats is {options.repeats}; must be at least 1")
    folder = Path(tempfile.gettempdir())
    places = [folder / path.name for path in PUBLISHED] if options.quick else PUBLISHED
    elsewhere = options.quick or options.results or options.picture
    options.page = None if elsewhere else places[2]
    options.results = options.results or places[0]
    options.picture = options.picture or places[1]
    options.repeats = 1 if options.quick else options.repeats
    _require(options.peers)
    return options


def _require(peers: list[str]) -> None:
    """Refuse to begin without the environment of a peer."""
    missing = sorted({PROGRAMS[peer][0] for peer in peers if not _python(peer).exists()})
    if missing:
        sys.exit(f"{', '.join(missing)} not found; run `make peers`, or name other --peers")


def _python(peer: str) -> Path:
    return ROOT / PROGRAMS[peer][0] / "bin" / "python"


def _measure(workload: Workload, results: Results, options: argparse.Namespace) -> None:
    """Make the runs of a workload, and keep each of them."""
    steps = steps_of(workload, quick=options.quick)
    results.begin(workload, env_steps=steps, about=_machine())
    sides = [*_sides(workload, options)]
    wanted = [
        (repeat, side)
        for repeat in range(1, options.repeats + 1)
        for side in sides
        if not (options.missing and results.has(workload, side.name, repeat))
    ]
    tried = () if options.quick or options.threads else dict.fromkeys(side for _, side in wanted)
    for side in tried:
        if not (options.missing and results.threads(workload, side.name)):
            results.probed(workload, side.name, _probe(workload, side))
    for repeat, side in wanted:
        threads = options.threads or results.threads(workload, side.name) or THREADS[0]
        job = Job(workload, side, seed=repeat, threads=threads, steps=steps)
        results.add(workload, _run(job, judged=not options.quick) | {"repeat": repeat})


def _sides(workload: Workload, options: argparse.Namespace) -> Iterator[Side]:
    """Who trains a workload, of those who are asked for."""
    for engine in options.ours:
        name = "ours" if engine == "auto" else f"ours-{engine}"
        overrides = overrides_of(workload, engine)
        if overrides is None:
            _say(f"{workload.name}: not trained by {NAMES[name]}; the spec has no such engine")
        else:
            yield Side(name, tuple(overrides))
    yield from (Side(peer) for peer in workload.peers if peer in options.peers)


def _probe(workload: Workload, side: Side) -> dict[int, float]:
    """Steps per second of a short run with each number of threads."""
    steps, found = steps_of(workload, quick=True), {}
    for threads in [count for count in THREADS if count <= (os.cpu_count() or 1)]:
        run = _run(Job(workload, side, seed=1, threads=threads, steps=steps), judged=False)
        found[threads] = run["steps"] / run["seconds"]
    return found


def _run(job: Job, *, judged: bool) -> dict[str, Any]:
    """Carry out a training in a process of its own."""
    spec = spec_of(
        job.workload,
        seed=job.seed,
        threads=job.threads,
        steps=job.steps,
        overrides=job.side.overrides,
    )
    task = {
        "spec": spec.model_dump(mode="json"),
        "warm_up": job.workload.warm_up,
        "peer": job.side.name,
    }
    began = time.perf_counter()
    done = subprocess.run(
        [*_command(job.side), json.dumps(task)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | _environment(job.threads),
        timeout=MOST_SECONDS,
    )
    if done.returncode != 0:
        sys.exit(f"{job.label} failed:\n{done.stderr}")
    measured = json.loads(done.stdout.splitlines()[-1])
    returns, floor = measured.pop("returns"), job.workload.floor
    speed = measured["steps"] / measured["seconds"]
    took = time.perf_counter() - began
    _say(f"{job.label}: {speed:,.0f} steps/s ({took:.0f} s in all)")
    return {
        "side": job.side.name,
        "seed": job.seed,
        "threads": job.threads,
        "overrides": [*job.side.overrides],
        **measured,
        "mean_return": mean_return(returns, floor),
        "learned": learned(returns, floor) if judged else None,
        "commit": git_commit(ROOT),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _command(side: Side) -> list[str]:
    if side.name not in PROGRAMS:
        return [sys.executable, "-m", "benchmarks.speed.ours"]
    return [str(_python(side.name)), "-m", PROGRAMS[side.name][1]]


def _environment(threads: int) -> dict[str, str]:
    """What the numeric libraries read their number of threads from; XLA reads NPROC."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NPROC")
    return dict.fromkeys(names, str(threads))


def _machine() -> dict[str, Any]:
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
