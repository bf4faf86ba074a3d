"""What being supervised by a service costs a training: throughput, and the service's own CPU time.

Trainings of one spec take turns: one started by hand, with nobody watching, and one queued at a
running service. Which goes first changes with every pair. The figures to read are the mean of the
pairs' throughput ratios with its interval, and the service's CPU time as a share of the trainer's.
A training lasts about a minute: a first one, by hand, says how many steps that takes.
Writes `benchmarks/results/supervision_cost.json`.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from rl_orch.client import Client
from rl_orch.io import service_note
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import read
from rl_orch.io.run.manifest import fingerprint, git_commit
from rl_orch.records import EventKind
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from rl_orch.stats import summarize

HERE = Path(__file__).parent
RLCTL = [sys.executable, "-c", "from rl_orch.cli.rlctl import main; main()"]
SPEC: dict[str, Any] = {
    "env": {"id": "CartPole-v1", "num_envs": 16, "seed": 1},
    "rollout": {"steps": 128},
    "train": {"batch_size": 512, "update_epochs": 4, "total_timesteps": 120_000},
    "eval": {"every": 10**9, "episodes": 1, "final_episodes": 1},
    "registry": {"enable": False},
}


FIRST_BYTES = 4096
"""An event file of that size tells of a first iteration."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Steps a second of one training, its CPU time, and that of the service meanwhile."""

    speed: float
    trainer_s: float
    service_s: float = 0.0


def main() -> None:
    """Measure, print a table, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long a training lasts")
    options = parser.parse_args()
    with TemporaryDirectory() as folder, _service(Path(folder)) as service:
        spec = _lasting(options.seconds, Path(folder))
        bare, supervised = _pairs(spec, Path(folder), service, options.pairs)
    ratios = [s.speed / b.speed for b, s in zip(bare, supervised, strict=True)]
    ratio = summarize(ratios)
    share = sum(s.service_s for s in supervised) / sum(s.trainer_s for s in supervised)
    print("| bare | supervised | ratio [95 %] | service's CPU time |")
    print("|---|---|---|---|")
    print(
        f"| {statistics.median(b.speed for b in bare):,.0f} steps/s "
        f"| {statistics.median(s.speed for s in supervised):,.0f} steps/s "
        f"| {ratio.mean:.3f} [{ratio.ci95[0]:.3f}, {ratio.ci95[1]:.3f}], n = {ratio.n} pairs "
        f"| {share:.2%} of the trainer's |"
    )
    document = {
        "commit": git_commit(HERE),
        "python": platform.python_version(),
        "fingerprint": fingerprint(spec),
        "spec": spec.model_dump(mode="json"),
        "seconds": options.seconds,
        "ratio": ratio.mean,
        "ratio_ci95": ratio.ci95,
        "pairs": ratio.n,
        "cpu_share": share,
        "ratios": ratios,
        "bare": [b.speed for b in bare],
        "supervised": [s.speed for s in supervised],
    }
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    (results / "supervision_cost.json").write_text(json.dumps(document, indent=2) + "\n")


def _lasting(seconds: float, folder: Path) -> Spec:
    """The spec with as many steps as take so long here; the first training compiles, too."""
    for name in ("compiling", "warm-up"):
        speed = _bare(resolve(SPEC), folder / name).speed
    train = SPEC["train"] | {"total_timesteps": int(speed * seconds)}
    return resolve(SPEC | {"train": train})


def _pairs(
    spec: Spec, folder: Path, service: psutil.Process, pairs: int
) -> tuple[list[Measured], list[Measured]]:
    at = service_note.living(folder / "home")
    assert at is not None
    client = Client(at.url, at.token)
    bare, supervised = [], []
    for pair in range(pairs):
        for watched in (False, True) if pair % 2 else (True, False):
            if watched:
                supervised.append(_supervised(spec, client, service))
            else:
                bare.append(_bare(spec, folder / f"bare-{pair}"))
        print(f"pair {pair + 1}/{pairs}: {supervised[-1].speed / bare[-1].speed:.3f}", flush=True)
    return bare, supervised


def _bare(spec: Spec, path: Path) -> Measured:
    """A training with nobody watching."""
    directory = RunDir(path)
    directory.create(spec, {"run_id": path.name})
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    with directory.log.open("ab") as log:
        subprocess.run(
            [sys.executable, "-m", "rl_orch.worker.train", str(path), "1"],
            stdout=log,
            stderr=log,
            env=os.environ | threads | {"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1"},
            check=True,
        )
    return Measured(_speed(directory), 0.0)


def _supervised(spec: Spec, client: Client, service: psutil.Process) -> Measured:
    """The same under the service: its CPU time counts from the first iteration to the last."""
    run = client.submit(spec).runs[0]
    directory = RunDir(Path(run.path))
    root = _root(directory)
    while not directory.events.exists() or directory.events.stat().st_size < FIRST_BYTES:
        time.sleep(0.05)
    before, trained = _cpu_s(service), _cpu_s(root)
    seen = trained
    spent = 0.0
    while root.is_running() and root.status() != psutil.STATUS_ZOMBIE:  # The API would count.
        seen, spent = _cpu_s(root) or seen, _cpu_s(service) - before
        time.sleep(0.5)
    while client.get(run.id).active:
        time.sleep(0.2)
    return Measured(_speed(directory), seen - trained, spent)


def _root(directory: RunDir) -> psutil.Process:
    while (holder := directory.lock_holder()) is None:
        time.sleep(0.05)
    return psutil.Process(int(holder.partition(":")[0]))


def _cpu_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def _times(directory: RunDir) -> list[tuple[float, int]]:
    """When each iteration was told of, and at which step."""
    told = {e.step: e.ts for e in read(directory.events) if e.kind is EventKind.METRIC}
    return [(ts, step) for step, ts in told.items()]


def _speed(directory: RunDir) -> float:
    """Steps a second from the first iteration to the last, so that no start-up is measured."""
    times = _times(directory)
    return (times[-1][1] - times[0][1]) / (times[-1][0] - times[0][0])


@contextmanager
def _service(folder: Path) -> Iterator[psutil.Process]:
    home = folder / "home"
    with (folder / "service.log").open("w") as log:
        child = subprocess.Popen(
            [*RLCTL, "up", "--port", "0", "--home", str(home)], stdout=log, stderr=log
        )
        try:
            while service_note.living(home) is None:
                assert child.poll() is None, (folder / "service.log").read_text()
                time.sleep(0.05)
            yield psutil.Process(child.pid)
        finally:
            child.terminate()
            child.wait()


if __name__ == "__main__":
    main()
