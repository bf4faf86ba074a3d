"""How long a user waits: from typing `rlctl launch` to the first completed update.

Three ways take turns: in the foreground with compiled kernels kept from before, in the foreground
with nothing kept, and queued at a service that has a process ready. Of the last, also when the
command returns. Writes `benchmarks/results/launch_time.json`.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from rl_orch.client import Client
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import read
from rl_orch.io.run.manifest import fingerprint, git_commit
from rl_orch.records import EventKind
from rl_orch.spec.resolve import resolve

HERE = Path(__file__).parent
RLCTL = [str(Path(sys.executable).with_name("rlctl"))]
WORDS = ("--algo", "ppo", "--env", "CartPole-v1", "train.total_timesteps=50000")
BARS = {
    "foreground, kernels kept": 4.0,
    "foreground, nothing kept": 10.0,
    "detached, service warm: first update": None,
    "detached, service warm: command returns": 1.0,
}
"""What is measured, and the seconds within which it has to be; None where no bar is set."""

READY_AFTER_S = 8.0
"""How long a service is left in peace before each launch: then it has prepared its processes."""


def main() -> None:
    """Measure, print a table, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    measured: dict[str, list[float]] = {name: [] for name in BARS}
    with TemporaryDirectory() as made:
        folder = Path(made)
        kept = folder / "kept"
        _in_foreground(folder / "warm-up", kept)
        for number in range(options.runs):
            took = [_in_foreground(folder / f"warm-{number}", kept)]
            took.append(_in_foreground(folder / f"cold-{number}", folder / f"empty-{number}"))
            with _service(folder / f"served-{number}", kept) as home:
                took += _detached(home, kept)
            for name, seconds in zip(BARS, took, strict=True):
                measured[name].append(seconds)
            print(f"turn {number + 1}/{options.runs}: {_sentence(took)}", flush=True)
    print("| from typing the command | median | least to greatest | bar |")
    print("|---|---|---|---|")
    for name, values in measured.items():
        bar = "" if BARS[name] is None else f"{BARS[name]:.0f} s"
        spread = f"{min(values):.2f} to {max(values):.2f} s"
        print(f"| {name} | {statistics.median(values):.2f} s | {spread} | {bar} |")
    document = {
        "commit": git_commit(HERE),
        "python": platform.python_version(),
        "fingerprint": fingerprint(resolve({"env": {"id": "CartPole-v1"}})),
        "words": WORDS,
        "bars_s": BARS,
        "seconds": measured,
    }
    (HERE / "results" / "launch_time.json").write_text(json.dumps(document, indent=2) + "\n")


def _in_foreground(home: Path, kept: Path) -> float:
    """Seconds to the first update of a launch that this process waits for."""
    began = time.time()
    subprocess.run(
        [*RLCTL, "launch", *WORDS, "--quiet", "--home", str(home)],
        env=_variables(kept),
        stdout=subprocess.DEVNULL,
        check=False,  # The gate may refuse what so short a training makes.
    )
    (path,) = (home / "runs").iterdir()
    return _first_update(RunDir(path)) - began


def _detached(home: Path, kept: Path) -> list[float]:
    """Seconds to the first update, and until the command returned."""
    began = time.time()
    done = subprocess.run(
        [*RLCTL, "launch", *WORDS, "--detach", "--json", "--home", str(home)],
        env=_variables(kept),
        stdout=subprocess.PIPE,
        check=True,
    )
    returned, run = time.time(), json.loads(done.stdout)["id"]
    with Client.of_home(home) as client:
        _until(lambda: not client.get(run).active)
        updated = _first_update(RunDir(Path(client.get(run).path)))
    return [updated - began, returned - began]


def _first_update(directory: RunDir) -> float:
    """When the first update was told of."""
    return next(e.ts for e in read(directory.events) if e.kind is EventKind.METRIC)


@contextmanager
def _service(home: Path, kept: Path) -> Iterator[Path]:
    words = ("--port", "0", "--home", str(home))
    subprocess.run(
        [*RLCTL, "up", "--detach", *words],
        env=_variables(kept),
        stdout=subprocess.DEVNULL,
        check=True,
    )
    try:
        time.sleep(READY_AFTER_S)
        yield home
    finally:
        subprocess.run([*RLCTL, "down", "--home", str(home)], stdout=subprocess.DEVNULL, check=True)


def _variables(kept: Path) -> dict[str, str]:
    """Of a user: Python keeps the bytecode of what it has loaded, as it does unless forbidden."""
    known = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return known | {"XDG_CACHE_HOME": str(kept)}


def _until(holds: Callable[[], bool]) -> None:
    while not holds():
        time.sleep(0.1)


def _sentence(took: list[float]) -> str:
    return ", ".join(f"{name} {seconds:.2f} s" for name, seconds in zip(BARS, took, strict=True))


if __name__ == "__main__":
    main()
