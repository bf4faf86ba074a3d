"""`python -m rl_orch.worker.evaluate DIRECTORY CHECKPOINT`: judge a checkpoint from its files.

A process apart from training: what is evaluated is what was saved, on episodes that training
never used to choose it.
"""

import sys
from contextlib import closing
from pathlib import Path

import torch

from rl_orch.errors import RlctlError
from rl_orch.io import checkpoints
from rl_orch.io.rundir import RunDir
from rl_orch.rl.envs import vector
from rl_orch.rl.evaluate import evaluate, final_evaluation_seed
from rl_orch.rl.policy import load_policy
from rl_orch.worker import log


def run_evaluation(directory: RunDir, checkpoint: str) -> int:
    """Write `evals/final.json` for a checkpoint of the run, whose directory it holds meanwhile."""
    with directory.locked():
        return _evaluated(directory, checkpoint)


def _evaluated(directory: RunDir, checkpoint: str) -> int:
    spec = directory.spec()
    torch.set_num_threads(spec.resources.threads)
    loaded = checkpoints.load(directory.checkpoints / Path(checkpoint).name)
    with closing(vector.make(spec, num_envs=1)) as envs:
        spaces = envs.single_observation_space, envs.single_action_space
    report = evaluate(
        load_policy(spec, *spaces, loaded.tensors),
        spec,
        episodes=spec.eval.final_episodes,
        seed=final_evaluation_seed(spec),
        deterministic=spec.eval.deterministic,
        step=loaded.step,
        checkpoint=checkpoint,
    )
    directory.write_report("final", report)
    log.info("checkpoint evaluated", name=checkpoint, mean=f"{report.summary.mean:.2f}")
    return 0


def main() -> int:
    """Evaluate, or say in the log why not."""
    try:
        return run_evaluation(RunDir(Path(sys.argv[1])), sys.argv[2])
    except RlctlError as error:
        log.error(error.message, **({"hint": error.hint} if error.hint else {}))
        return error.exit_code


if __name__ == "__main__":
    log.configure()
    sys.exit(main())
