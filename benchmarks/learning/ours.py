"""One training by this package: prints a line of JSON for each evaluation, and one at the end."""

import json
import sys
import time
from contextlib import closing
from typing import Any

import torch

from rl_orch.rl.evaluate import Evaluator, evaluation_seed
from rl_orch.rl.seeding import seed_all
from rl_orch.rl.train import Training
from rl_orch.rl.training_recorder import NullRecorder
from rl_orch.spec.model import Spec


def main(workload: dict[str, Any]) -> None:
    """Train the spec of a workload, and evaluate at its points."""
    spec = Spec.model_validate(workload["spec"])
    total, every, episodes = spec.train.total_timesteps, workload["every"], workload["episodes"]
    torch.set_num_threads(spec.resources.threads)
    seed_all(spec.env.seed)
    began = time.perf_counter()
    with closing(Training(spec, NullRecorder())) as training, closing(Evaluator(spec)) as evaluator:
        while (before := training.env_steps) < total:
            training.train_step()
            step = training.env_steps
            if before // every == step // every and step < total:
                continue
            report = evaluator.evaluate(
                training.actor,
                episodes=episodes,
                seed=evaluation_seed(spec),
                deterministic=True,
                step=step,
            )
            print(json.dumps({"step": step, "mean_return": report.summary.mean}), flush=True)
    print(json.dumps({"seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
