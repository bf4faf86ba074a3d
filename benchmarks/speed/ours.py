"""One training by this package on a task given as JSON; prints what was measured as JSON."""

import json
import sys
import time
from contextlib import closing
from typing import Any

import torch

from benchmarks.speed.recorder import Returns
from benchmarks.speed.workloads import KEPT_RETURNS
from rl_orch.io.run.manifest import fingerprint
from rl_orch.rl.seeding import seed_all
from rl_orch.rl.train import Training
from rl_orch.spec.model import Spec


def main(task: dict[str, Any]) -> None:
    """Train once; the clock starts when the first update after the warm-up is complete."""
    spec, recorder = Spec.model_validate(task["spec"]), Returns()
    torch.set_num_threads(spec.resources.threads)
    seed_all(spec.env.seed)
    with closing(Training(spec, recorder)) as training:
        while training.env_steps < task["warm_up"]:
            training.train_step()
        before, began = training.env_steps, time.perf_counter()
        while training.env_steps < spec.train.total_timesteps:
            training.train_step()
        seconds, steps = time.perf_counter() - began, training.env_steps - before
    known = fingerprint(spec)
    versions = {
        name: known[name]
        for name in ("rl-orch", "torch", "numpy", "gymnasium", "numba")
        if name in known
    }
    returns = recorder.returns[-KEPT_RETURNS:]
    print(
        json.dumps({"steps": steps, "seconds": seconds, "returns": returns, "versions": versions})
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
