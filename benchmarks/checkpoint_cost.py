"""What saving a checkpoint every ten updates costs PPO on CartPole-v1, in throughput.

Two trainings in one process take turns, ten updates at a time, one of them with a checkpoint after
each ten; which goes first changes with every pair. The figures to read are the mean of the pairs'
ratios with its interval, and the share of time that saving takes, which is less noisy.
Writes `benchmarks/results/checkpoint_cost.json`.
"""

import argparse
import json
import platform
import statistics
import time
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from rl_orch.io.checkpoints.checkpoint_retention import CheckpointRetention
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import EventWriter
from rl_orch.io.run.manifest import fingerprint, git_commit
from rl_orch.rl.train import Training
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from rl_orch.stats import summarize
from rl_orch.worker.attempt.commands import PendingCommands
from rl_orch.worker.attempt.recorder import FileRecorder

HERE = Path(__file__).parent
EVERY = 10
WORKLOADS: dict[str, dict[str, Any]] = {
    "demo": {"num_envs": 16, "steps": 128, "batch_size": 512, "update_epochs": 10},
    "wide": {"num_envs": 64, "steps": 128, "batch_size": 2048, "update_epochs": 4},
}


def main() -> None:
    """Measure, print a table, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=40)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [_measure(name, options.pairs) for name in WORKLOADS]
    print(
        f"| workload | steps/s | with a save every {EVERY} updates | cost [95 %] | share | stall |"
    )
    print("|---|---|---|---|---|---|")
    for row in rows:
        low, high = row["cost_ci95"]
        print(
            f"| {row['workload']} | {row['without']:,.0f} | {row['with']:,.0f} "
            f"| {row['cost']:.2%} [{low:.2%}, {high:.2%}], n = {row['pairs']} pairs "
            f"| {row['share']:.2%} | {1000 * row['stall_s']:.1f} ms |"
        )
    document = {
        "commit": git_commit(HERE),
        "python": platform.python_version(),
        "fingerprint": fingerprint(_spec(WORKLOADS["demo"])),
        "workloads": WORKLOADS,
        "rows": rows,
    }
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    (results / "checkpoint_cost.json").write_text(json.dumps(document, indent=2) + "\n")


def _measure(name: str, pairs: int) -> dict[str, Any]:
    """Both trainings go on from block to block, so that no start-up is measured."""
    spec = _spec(WORKLOADS[name])
    with ExitStack() as stack:
        blocks = {saves: _Block(spec, stack, saves=saves) for saves in (False, True)}
        for block in blocks.values():
            block.seconds()
        stalls = blocks[True].stalls = []
        seconds: dict[bool, list[float]] = {False: [], True: []}
        for pair in range(pairs):
            for saves in (False, True) if pair % 2 else (True, False):
                seconds[saves].append(blocks[saves].seconds())
    both = zip(seconds[False], seconds[True], strict=True)
    costs = summarize([1.0 - without / with_saves for without, with_saves in both])
    steps = EVERY * spec.rollout_size
    return {
        "workload": name,
        "pairs": pairs,
        "without": steps / statistics.median(seconds[False]),
        "with": steps / statistics.median(seconds[True]),
        "cost": costs.mean,
        "cost_ci95": costs.ci95,
        "share": sum(stalls) / sum(seconds[True]),
        "stall_s": statistics.median(stalls),
        "longest_stall_s": max(stalls),
        "seconds_without": seconds[False],
        "seconds_with": seconds[True],
    }


class _Block:
    """A training that goes on by ten updates at a time, through the worker's own recorder."""

    def __init__(self, spec: Spec, stack: ExitStack, *, saves: bool) -> None:
        directory = RunDir(Path(stack.enter_context(TemporaryDirectory())) / "run")
        directory.create(spec, {})
        writer = stack.enter_context(EventWriter(directory.events, run="run", attempt=1))
        exact = {"level": "bitwise", "method": "captured", "reason": None, "pure_reset": True}
        meta = {"run_id": "run", "attempt": 1, "resume": exact}
        self._recorder = FileRecorder(
            directory, spec, writer, PendingCommands(), meta=meta, kept=CheckpointRetention()
        )
        self._training = stack.enter_context(closing(Training(spec, self._recorder)))
        self._saves = saves
        self.stalls: list[float] = []

    def seconds(self) -> float:
        """How long ten updates take, with the checkpoint that comes after them."""
        began = time.perf_counter()
        for _ in range(EVERY):
            self._recorder.command()
            self._training.train_step()
        if self._saves:
            saving = time.perf_counter()
            self._recorder.save(self._training.snapshot(), None)
            self.stalls.append(time.perf_counter() - saving)
        return time.perf_counter() - began


def _spec(workload: dict[str, Any]) -> Spec:
    return resolve(
        {
            "env": {"id": "CartPole-v1", "num_envs": workload["num_envs"], "seed": 1},
            "rollout": {"steps": workload["steps"]},
            "train": {k: workload[k] for k in ("batch_size", "update_epochs")},
        }
    )


if __name__ == "__main__":
    main()
