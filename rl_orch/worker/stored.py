"""Policies as files hold them: from a checkpoint with its spec, or from a bundle.

Weights come from safetensors and the rest from the spec; nothing that could run code is loaded.
"""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rl_orch.errors import BadInput
from rl_orch.io import bundles, checkpoints, deposits
from rl_orch.io.bundles import Bundle
from rl_orch.io.rundir import RunDir
from rl_orch.rl.envs import space_json, vector
from rl_orch.rl.envs.seen import flat_space
from rl_orch.rl.learner import load_policy
from rl_orch.rl.policy import PolicyModule, Setup
from rl_orch.spec.model import Spec


@dataclass(frozen=True, slots=True)
class Loaded:
    """A policy, its spec and weights, and the bundle or the checkpoint it is from."""

    policy: PolicyModule
    spec: Spec
    tensors: dict[str, np.ndarray]
    step: int
    bundle: Bundle | None = None
    document: dict[str, Any] | None = None


def load(path: Path) -> Loaded:
    """The policy at a path, on the CPU and in torch."""
    if bundles.is_bundle(path):
        return _from_bundle(path)
    return _from_checkpoint(path)


def run_of(path: Path) -> RunDir:
    """The run directory that a checkpoint is in."""
    directory = RunDir(path.absolute().parent.parent)
    if not directory.spec_file.is_file():
        raise BadInput(
            f"{str(path)!r} is no checkpoint of a run: {directory.spec_file} is not there",
            hint="Name a run, a checkpoint inside its run directory, or a bundle.",
        )
    return directory


def _from_bundle(path: Path) -> Loaded:
    bundle = bundles.read(path)
    spec, told = _on_cpu(bundle.spec), bundle.policy
    setup = Setup(
        spec,
        space_json.from_json(told.observation_space),
        space_json.from_json(told.action_space),
    )
    tensors = bundle.tensors()
    return Loaded(load_policy(setup, tensors), spec, tensors, bundle.report.step, bundle)


def _from_checkpoint(path: Path) -> Loaded:
    spec = _on_cpu(run_of(path).spec())
    if deposits.is_deposit(path):
        raise BadInput(
            f"{str(path)!r} is what an external program saved; only that program can read it",
            hint="Policies that this package trained can be loaded.",
        )
    loaded = checkpoints.load(path)
    with closing(vector.make(spec, num_envs=1)) as envs:
        setup = Setup(spec, flat_space(envs.single_observation_space), envs.single_action_space)
    policy = load_policy(setup, loaded.tensors)
    return Loaded(policy, spec, loaded.tensors, loaded.step, document=loaded.document)


def _on_cpu(spec: Spec) -> Spec:
    resources = spec.resources.model_copy(update={"device": "cpu"})
    return spec.model_copy(update={"resources": resources})
