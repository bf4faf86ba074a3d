"""PPO by this package on a workload given as JSON; prints steps and seconds as JSON."""

import json
import sys
import time
from typing import Any

import torch

from rl_orch.records import EvalReport, EventKind
from rl_orch.rl.replay import Segment
from rl_orch.rl.seeding import seed_all
from rl_orch.rl.train import Command, Snapshot, Training
from rl_orch.spec.resolve import resolve


class Nowhere:
    """An outlet that keeps nothing: the loop alone is measured."""

    def emit(
        self,
        kind: EventKind,
        key: str,
        value: Any,
        *,
        step: int,
        tags: dict[str, Any] | None = None,
    ) -> None:
        """Forget an event."""

    def stash(self, segment: Segment) -> None:
        """Forget a segment."""

    def save(self, snapshot: Snapshot, report: EvalReport | None) -> None:
        """Forget a snapshot."""

    def doubt(self, reason: str, *, step: int) -> None:
        """Forget a doubt."""

    def command(self) -> Command | None:
        """Nobody asks anything."""
        return None


def main(workload: dict[str, Any]) -> None:
    """Train once and say how long it took, set-up aside."""
    spec = resolve(
        {
            "env": {k: workload[k] for k in ("num_envs", "seed")} | {"id": workload["env"]},
            "rollout": {"steps": workload["steps"]},
            "train": {k: workload[k] for k in ("batch_size", "update_epochs", "lr")},
        }
    )
    torch.set_num_threads(workload["threads"])
    seed_all(workload["seed"])
    training = Training(spec, Nowhere())
    training.train_step()
    before, began = training.env_steps, time.perf_counter()
    while training.env_steps - before < workload["total_timesteps"]:
        training.train_step()
    seconds = time.perf_counter() - began
    print(json.dumps({"steps": training.env_steps - before, "seconds": seconds}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
