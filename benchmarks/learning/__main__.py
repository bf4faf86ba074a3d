"""Runs the tasks, prints what they add up to, and keeps and draws it.

Each run is a process of one thread; `--jobs` of them go on at a time, and ours and the peer's take
turns. Both sides are evaluated on the same episodes after the same updates. Where our spec has
options that the peer lacks, ours is run once more without them, to be compared. A finished run
takes the place of the one with the same task, side and seed, so that tasks may be run one by one.
Writes `benchmarks/results/learning.json`, `docs/images/learning.svg` and, of the tasks in which all
settings are equal, `docs/images/learning-equal.svg`; and the measured parts of `docs/learning.md`
and `docs/algorithms.md`.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from benchmarks.learning.page import differences, measured, thresholds
from benchmarks.learning.picture import draw
from benchmarks.learning.results import PEERS, SIDES, Results, Side
from benchmarks.learning.tasks import EQUAL, TASKS, Task, spec_of
from benchmarks.marks import fill
from benchmarks.peers.sb3_learning import plain, untranslatable
from rl_orch.io.run.manifest import fingerprint, git_commit
from rl_orch.rl.evaluate import evaluation_seed
from rl_orch.rl.streams import derive
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve

ROOT = Path(__file__).parents[2]
PEER = ROOT / "benchmarks" / "peers" / "sb3_learning.py"
RESULTS = ROOT / "benchmarks" / "results" / "learning.json"
PAGE = ROOT / "docs" / "learning.md"
TUNED_PAGE = ROOT / "docs" / "algorithms.md"
PICTURES = ("learning.svg", "learning-equal.svg")


@dataclass(frozen=True, slots=True)
class Job:
    """One training."""

    task: Task
    side: Side
    spec: Spec

    @property
    def label(self) -> str:
        """What to call it."""
        return f"{self.task.name} {self.side} seed {self.spec.env.seed}"


def main() -> None:
    """Run what is asked for."""
    options = _options()
    results = Results(options.results)
    tasks = [(TASKS | EQUAL)[name] for name in options.tasks]
    jobs = [] if options.no_runs else [*_jobs(tasks, results, options)]
    commit, progress = git_commit(ROOT), Progress(len(jobs))
    with ThreadPoolExecutor(options.jobs) as pool:
        going = {pool.submit(_run, job, options.peer_python, progress): job for job in jobs}
        try:
            for done in as_completed(going):
                results.add(going[done].task, done.result() | {"commit": commit})
                progress.finished(going[done])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if not results.known():
        sys.exit(f"{options.results} has no runs")
    results.write()
    _publish(results, options)


def _publish(results: Results, options: argparse.Namespace) -> None:
    """Draw and print each kind of task, and fill the page unless results are kept elsewhere."""
    equal = [task for task in results.known() if task.equal]
    others = [task for task in results.known() if not task.equal]
    for tasks, tabulate, name in zip(
        (others, equal), (thresholds, differences), PICTURES, strict=True
    ):
        if tasks:
            draw(results, tasks, options.pictures / name)
            print(f"{tabulate(results, tasks)}\n")
    if options.results == RESULTS:
        fill(PAGE, measured(results, [*EQUAL.values()], f"images/{PICTURES[1]}"))
        fill(TUNED_PAGE, thresholds(results, others))
    print(f"wrote {options.results} and pictures to {options.pictures}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.learning", description=__doc__)
    parser.add_argument("--peer-python", help="An interpreter that has SB3; without it, only ours.")
    every = TASKS | EQUAL
    parser.add_argument("--tasks", nargs="+", choices=every, default=[*every], metavar="NAME")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES, help="Who trains.")
    parser.add_argument("--seeds", type=int, help="Seeds of each task, instead of its own number.")
    parser.add_argument("--jobs", type=int, default=2, help="Runs at a time.")
    parser.add_argument(
        "--budget-share", type=float, default=1.0, help="Part of the budget, for a quick form."
    )
    parser.add_argument(
        "--fresh", action="store_true", help="As many seeds again that the tasks have not had."
    )
    parser.add_argument("--missing", action="store_true", help="Only runs that are not there yet.")
    parser.add_argument("--no-runs", action="store_true", help="Draw what is there.")
    parser.add_argument("--results", type=Path, help="Where the results are kept.")
    parser.add_argument("--pictures", type=Path, help="The folder that pictures are drawn in.")
    options = parser.parse_args()
    quick = options.budget_share != 1.0 or options.seeds is not None
    folder = Path(tempfile.gettempdir())
    options.results = options.results or (folder / RESULTS.name if quick else RESULTS)
    published = options.results == RESULTS
    options.pictures = options.pictures or (PAGE.parent / "images" if published else folder)
    return options


def _jobs(tasks: list[Task], results: Results, options: argparse.Namespace) -> Iterator[Job]:
    """Every training that is to be made; the sides take turns."""
    for task in tasks:
        count, share = options.seeds or task.seeds, options.budget_share
        first = task.seeds + 1 if options.fresh else 1
        specs = [spec_of(task, seed=seed, share=share) for seed in range(first, first + count)]
        lacking = untranslatable(specs[0].model_dump(mode="json"))
        results.begin(task, specs[0], _about(task, specs[0]) | {"sb3_lacks": lacking})
        for spec in specs:
            for side, wanted in _sides(task, spec, with_peer=options.peer_python is not None):
                made = options.missing and results.has(task, side, spec.env.seed)
                if side in options.sides and not made:
                    yield Job(task, side, wanted)


def _sides(task: Task, spec: Spec, *, with_peer: bool) -> Iterator[tuple[Side, Spec]]:
    """Who trains, and with which spec."""
    document = spec.model_dump(mode="json")
    yield "ours", spec
    if task.in_torch:
        yield "torch", resolve(document, overrides=["train.engine=torch"])
    if not with_peer:
        return
    same = Spec.model_validate(plain(document))
    if not untranslatable(same.model_dump(mode="json")):
        yield from ((peer, same) for peer in (PEERS if task.sbx else PEERS[:1]))
        if untranslatable(document):
            yield "plain", same


def _about(task: Task, spec: Spec) -> dict[str, Any]:
    return {
        "episodes": task.episodes,
        "processor": _processor(),
        "cores": os.cpu_count(),
        "fingerprint": fingerprint(spec),
    }


def _run(job: Job, peer_python: str | None, progress: "Progress") -> dict[str, Any]:
    """Carry out a training in a process of its own."""
    spec, seed = job.spec, evaluation_seed(job.spec)
    workload = {
        "peer": job.side,
        "spec": spec.model_dump(mode="json"),
        "every": max(spec.train.total_timesteps // job.task.points, 1),
        "episodes": job.task.episodes,
        "reset_seeds": [derive(seed, k) for k in range(job.task.episodes)],
    }
    ours = [sys.executable, "-m", "benchmarks.learning.ours"]
    command = [str(peer_python), str(PEER)] if job.side in PEERS else ours
    points, last = [], {}
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            [*command, json.dumps(workload)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
        ) as process,
    ):
        for line in process.stdout or ():
            last = json.loads(line)
            if "step" in last:
                points.append(last)
                progress.reached(job, last["step"])
        if process.wait() != 0:
            errors.seek(0)
            raise RuntimeError(f"{job.label} failed:\n{errors.read()}")
    return {
        "side": job.side,
        "seed": spec.env.seed,
        **last,
        "steps": [point["step"] for point in points],
        "returns": [round(point["mean_return"], 6) for point in points],
    }


class Progress:
    """A line on stderr that says how far the runs are."""

    def __init__(self, count: int) -> None:
        self._count, self._finished = count, 0
        self._lock = Lock()

    def reached(self, job: Job, step: int) -> None:
        """A run was evaluated at a step."""
        if sys.stderr.isatty():
            total = job.spec.train.total_timesteps
            self._say(f"{job.label}: {step:,} of {total:,} steps", end="")

    def finished(self, job: Job) -> None:
        """A run has ended."""
        self._finished += 1
        self._say(f"{job.label}: finished", end="\n")

    def _say(self, what: str, end: str) -> None:
        with self._lock:
            start = "\r\x1b[K" if sys.stderr.isatty() else ""
            line = f"{start}{self._finished} of {self._count} runs · {what}"
            print(line, end=end, file=sys.stderr, flush=True)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


if __name__ == "__main__":
    main()
