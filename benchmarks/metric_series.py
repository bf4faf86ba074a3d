"""What a curve of a million points costs: to index, to ask for 2,000 points of, and on the disk.

The same points are told in three ways: on one curve, on twelve, and by ten attempts each of which
goes on from before the end of the one before. The alternative is to read the event file each time
and fold its attempts (`io/run/events.folded`). Nothing is left in memory between two questions,
files are in the cache of the operating system; processor time is told as well, for it is less
noisy. Writes `benchmarks/results/metric_series.json`.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from rl_orch.io.metrics import recent, series
from rl_orch.io.run import events
from rl_orch.io.run.manifest import fingerprint, git_commit
from rl_orch.records import Event, EventKind
from rl_orch.spec.resolve import resolve

HERE = Path(__file__).parent
SHOWN = 2_000
MORE = 1_000
HISTORIES: dict[str, dict[str, int]] = {
    "one curve": {"keys": 1, "attempts": 1},
    "twelve curves": {"keys": 12, "attempts": 1},
    "ten attempts": {"keys": 1, "attempts": 10},
}


def main() -> None:
    """Measure, print a table, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--questions", type=int, default=30)
    options = parser.parse_args()
    rows = [_measure(name, options.points, options.questions) for name in HISTORIES]
    print("| history | events | index | to build | to ask | longest | processor | from the file |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['history']} | {row['events_bytes'] / 1e6:.0f} MB "
            f"| {row['index_bytes'] / 1e6:.0f} MB | {row['build_s']:.1f} s "
            f"| {1000 * row['ask_s']:.0f} ms | {1000 * row['longest_ask_s']:.0f} ms "
            f"| {1000 * row['ask_processor_s']:.0f} ms | {row['from_file_s']:.1f} s |"
        )
    document = {
        "commit": git_commit(HERE),
        "python": platform.python_version(),
        "fingerprint": fingerprint(resolve({"env": {"id": "CartPole-v1"}})),
        "points": options.points,
        "shown": SHOWN,
        "histories": HISTORIES,
        "rows": rows,
    }
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    (results / "metric_series.json").write_text(json.dumps(document, indent=2) + "\n")


def _measure(name: str, points: int, questions: int) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        run, told = Path(folder), _told(points, **HISTORIES[name])
        _append(run, (next(told) for _ in range(points)))
        size = (run / "events.jsonl").stat().st_size
        processor_s = time.process_time()
        build_s = _seconds(lambda: series.catch_up(run))
        built_s = time.process_time()
        asked = [_seconds(lambda: _ask(run)) for _ in range(questions)]
        asked_s = time.process_time()
        return {
            "history": name,
            "events_bytes": size,
            "index_bytes": (run / "metrics.db").stat().st_size,
            "build_s": build_s,
            "build_processor_s": built_s - processor_s,
            "ask_s": statistics.median(asked),
            "longest_ask_s": max(asked),
            "ask_processor_s": (asked_s - built_s) / questions,
            "answer_bytes": _ask(run),
            "keys_s": _seconds(lambda: series.keys_of_run(run)),
            "recent_s": _seconds(lambda: recent.of_run(run, 100)),
            "from_file_s": _seconds(lambda: _read_all(run)),
            "more": MORE,
            "more_s": _more_s(run, told),
            "idle_s": statistics.median(_seconds(lambda: series.catch_up(run)) for _ in range(99)),
        }


def _told(points: int, *, keys: int, attempts: int) -> Iterator[Event]:
    """The events of a run; each attempt begins a tenth of its length before the last one's end."""
    values = np.random.default_rng(1).normal(size=points + MORE).cumsum().tolist()
    length, step, after = -(-points // attempts), 0, None
    for number in range(points + MORE):
        attempt, place = min(number // length, attempts - 1), number % length
        if place == 0 and attempt == number // length:
            step = max(0, step - length // 10)
            tags = {"after": after}
            yield _event(attempt + 1, 1, step, EventKind.STATE, "started", None, tags)
        seq = number - attempt * length + 2
        after = {"attempt": attempt + 1, "seq": seq - seq // 10}
        step += 1
        key = f"losses/loss_{number % keys}"
        yield _event(attempt + 1, seq, step, EventKind.METRIC, key, values[number], {})


def _event(
    attempt: int, seq: int, step: int, kind: EventKind, key: str, value: Any, tags: dict[str, Any]
) -> Event:
    return Event(
        seq=seq,
        attempt=attempt,
        ts=1_794_776_510.25 + seq / 7,
        run="first-k3m9xq",
        step=step,
        kind=kind,
        key=key,
        value=value,
        tags=tags,
    )


def _append(run: Path, told: Iterator[Event]) -> None:
    with (run / "events.jsonl").open("a") as file:
        file.writelines(event.model_dump_json() + "\n" for event in told)


def _ask(run: Path) -> int:
    """Ask as the HTTP API does; how many bytes the answer takes."""
    return sum(len(one.model_dump_json()) for one in series.of_run(run, points=SHOWN))


def _read_all(run: Path) -> int:
    return sum(1 for _ in events.folded(run / "events.jsonl", (EventKind.METRIC,)))


def _more_s(run: Path, told: Iterator[Event]) -> float:
    """How long it takes to take in some lines more."""
    _append(run, (next(told) for _ in range(MORE)))
    return _seconds(lambda: series.catch_up(run))


def _seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
