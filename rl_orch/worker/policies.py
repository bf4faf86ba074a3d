"""Policies from their files: of checkpoints, and of programs that serve them."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from rl_orch.io import checkpoints, deposits
from rl_orch.io.rundir import RunDir
from rl_orch.rl.envs import vector
from rl_orch.rl.envs.seen import flat_space
from rl_orch.rl.learner import load_policy
from rl_orch.rl.policy import Actor, Setup
from rl_orch.spec.model import Spec
from rl_orch.worker.served_policy import serving


@contextmanager
def opened(spec: Spec, directory: RunDir, path: Path) -> Iterator[tuple[Actor, int]]:
    """The policy of a checkpoint of a run, and the step that it was saved at."""
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
