"""`python -m rl_orch.worker.evaluate DIRECTORY CHECKPOINT`: judge a checkpoint from its files.

A process apart from training: what is evaluated is what was saved, on episodes that training
never used to choose it.
"""

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import torch

from rl_orch.errors import RlctlError
from rl_orch.io import checkpoints, deposits
from rl_orch.io.heartbeat import beating
from rl_orch.io.rundir import RunDir, write_text
from rl_orch.rl.envs import vector
from rl_orch.rl.envs.seen import flat_space
from rl_orch.rl.evaluate import evaluate, final_evaluation_seed
from rl_orch.rl.learner import load_policy
from rl_orch.rl.policy import Actor, Setup
from rl_orch.spec.model import Spec
from rl_orch.worker import log
from rl_orch.worker.served_policy import serving

PROBLEM = "problem.txt"
"""Beside the reports: why there is no final one, in a sentence."""


def run_evaluation(directory: RunDir, checkpoint: str) -> int:
    """Write `evals/final.json` for a checkpoint of the run, whose directory it holds meanwhile."""
    with directory.locked(), beating(directory.heartbeat):
        problem = directory.report_file("final").with_name(PROBLEM)
        problem.unlink(missing_ok=True)
        try:
            return _evaluated(directory, checkpoint)
        except RlctlError as error:
            with suppress(RlctlError):  # On a full disk, the log has to do.
                write_text(problem, f"{error.message}\n")
            raise


def _evaluated(directory: RunDir, checkpoint: str) -> int:
    spec = directory.spec()
    torch.set_num_threads(1 if spec.train.engine == "kernels" else spec.resources.threads)
    path = directory.checkpoints / Path(checkpoint).name
    with _policy(spec, directory, path) as (policy, step):
        report = evaluate(
            policy,
            spec,
            episodes=spec.eval.final_episodes,
            seed=final_evaluation_seed(spec),
            deterministic=spec.eval.deterministic,
            step=step,
            checkpoint=checkpoint,
        )
    directory.write_report("final", report)
    log.info("checkpoint evaluated", name=checkpoint, mean=f"{report.summary.mean:.2f}")
    return 0


@contextmanager
def _policy(spec: Spec, directory: RunDir, path: Path) -> Iterator[tuple[Actor, int]]:
    """The policy of a checkpoint, and the step it was saved at."""
    with closing(vector.make(spec, num_envs=1)) as envs:
        setup = Setup(spec, flat_space(envs.single_observation_space), envs.single_action_space)
    if spec.runner.name != "external":
        loaded = checkpoints.load(path)
        yield load_policy(setup, loaded.tensors), loaded.step
        return
    deposit = deposits.load(path)
    payload = deposits.payload(path, deposit)
    with serving(spec, directory, payload, setup.action_space) as policy:
        yield policy, deposit.step


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
