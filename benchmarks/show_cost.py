"""What it costs to look at a long run: `rlctl show` and `rlctl ls`, beside one of few events.

Every command is a process of its own, files are in the cache of the operating system. The first
`show` finds no index and makes it; the others find it. Besides the time it is counted how often
the event file was passed over; processor time is told as well, for it is less noisy.
Writes `benchmarks/results/show_cost.json`.
"""

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rl_orch.core.orchestrator import Orchestrator
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import EventWriter
from rl_orch.io.run.manifest import fingerprint, git_commit
from rl_orch.records import EventKind
from rl_orch.stats import summarize
from rl_orch.testing import FakeRunner, a_spec, trains_to

HERE = Path(__file__).parent
FEW = 1_000
COUNTED = """
import os, sys
from rl_orch.cli.rlctl import main
pread, read = os.pread, [0]
def counted(fd, size, offset):
    data = pread(fd, size, offset)
    if os.readlink(f"/proc/self/fd/{fd}").endswith("events.jsonl"):
        read[0] += len(data)
    return data
os.pread = counted
try:
    main()
finally:
    print(read[0], file=sys.stderr)
"""
"""`rlctl`, which says at its end how many bytes of event files it has read."""


def main() -> None:
    """Measure, print a table, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        rows = _measured(Path(folder), options.events, options.runs)
    print("| command | seconds | processor | passes over the event file |")
    print("|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['command']} | {row['seconds']:.2f} s | {row['processor_s']:.2f} s "
            f"| {row['passes']:.2f} |"
        )
    document = {
        "commit": git_commit(HERE),
        "python": platform.python_version(),
        "fingerprint": fingerprint(a_spec()),
        "events": options.events,
        "rows": rows,
    }
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    (results / "show_cost.json").write_text(json.dumps(document, indent=2) + "\n")


def _measured(home: Path, events: int, runs: int) -> list[dict[str, Any]]:
    few, many = _run_of(home, FEW), _run_of(home, events)
    asked = {
        f"show, {events:,} events, no index": (["show", many.path.name], 1),
        f"show, {events:,} events": (["show", many.path.name], runs),
        f"show --json, {events:,} events": (["show", many.path.name, "--json"], runs),
        f"show, {FEW:,} events": (["show", few.path.name], runs),
        "ls": (["ls"], runs),
    }
    size = many.events.stat().st_size
    return [
        {"command": name, "events_bytes": size} | _timed(home, words, times, size)
        for name, (words, times) in asked.items()
    ]


def _run_of(home: Path, events: int) -> RunDir:
    """A run that has ended and told of so many events: metrics, episodes and some evaluations."""
    run = Orchestrator(home, FakeRunner(trains_to([400.0] * 10))).launch(a_spec()).run
    directory = RunDir.of(run)
    for name in ("events.jsonl", "metrics.db"):
        (directory.path / name).unlink(missing_ok=True)
    summary = {"summary": summarize([400.0] * 10).model_dump(mode="json")}
    with EventWriter(directory.events, run=run.id, attempt=1) as log:
        log.emit(EventKind.STATE, "started", step=0, tags={"after": None})
        for step in range(1, events):
            if step % 5_000 == 0:
                log.emit(EventKind.EVAL, "eval/mean_return", 400.0, step=step, tags=summary)
            elif step % 2:
                log.emit(EventKind.METRIC, f"losses/loss_{step % 12}", 1.0 / step, step=step)
            else:
                tags = {"length": 17, "env": step % 8}
                log.emit(EventKind.EPISODE, "episode", step / events, step=step, tags=tags)
    return directory


def _timed(home: Path, words: list[str], times: int, size: int) -> dict[str, Any]:
    command = [sys.executable, "-c", COUNTED, *words, "--home", str(home)]
    seconds, read, processor_s = [], [], _processor_s()
    for _ in range(times):
        began = time.perf_counter()
        ended = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds.append(time.perf_counter() - began)
        read.append(int(ended.stderr.split()[-1]))
    return {
        "seconds": statistics.median(seconds),
        "longest_s": max(seconds),
        "processor_s": (_processor_s() - processor_s) / times,
        "events_bytes_read": max(read),
        "passes": max(read) / size,
    }


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
