"""`python -m rl_orch.worker.tasks.fit_foreign < question.json`: hold tensors from elsewhere against
a spec.

The environment is made, so that its spaces say which shapes fit. What acting does without may be
missing, and starts as it would in a training; whatever else does not fit is named.
"""

import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray
from safetensors.numpy import load as decode_tensors
from safetensors.numpy import save as encode_tensors

from rl_orch.errors import BadInput, RlctlError
from rl_orch.io.files.sealed import advice
from rl_orch.records.tasks import FitForeignAnswer, FitForeignTask
from rl_orch.rl.envs import space_json
from rl_orch.rl.learn.learner import algorithm, load_policy
from rl_orch.rl.policies.policy import POLICY, TENSOR_PREFIX, Setup, policy_tensors
from rl_orch.spec.engine import assign
from rl_orch.spec.model import Spec
from rl_orch.worker.checks import environment
from rl_orch.worker.policies.load import setup_of
from rl_orch.worker.task import Tell, answer_one

NOT_FOR_ACTING = ("critic.", "log_std")
"""Beginnings of names of what greedy actions do not depend on."""

Tensors = dict[str, NDArray[Any]]


def adopt(task: FitForeignTask, tell: Tell) -> FitForeignAnswer:
    """Settle what the spec leaves open, and list what the policy begins without."""
    tell("making the environment", 0.1)
    settled = _checked(task.spec)
    spec = assign(task.spec, settled)
    setup = setup_of(spec)
    _refuse_other_bounds(setup.action_space, task.stretched, spec.env.id)
    tell("fitting", 0.6)
    given = dict(decode_tensors(Path(task.tensors).read_bytes()))
    whole, missing = fitted(given, setup)
    load_policy(setup, whole)
    try:
        Path(task.out).write_bytes(encode_tensors(whole))
    except OSError as error:
        raise RlctlError(
            f"the fitted policy cannot be written: {error.strerror}",
            hint=advice(error, then="import it again"),
        ) from None
    told = {POLICY: space_json.of_policy(setup)}
    return FitForeignAnswer(settled=settled, missing=tuple(missing), spaces=told)


def fitted(given: Tensors, setup: Setup) -> tuple[Tensors, list[str]]:
    """Tensors of a policy as a snapshot has them, and names of the new ones."""
    new = policy_tensors(algorithm(setup.spec.agent.algorithm).build_policy(setup))
    wanted = {name.removeprefix(TENSOR_PREFIX): tensor for name, tensor in new.items()}
    for name, tensor in sorted(given.items()):
        if name not in wanted or wanted[name].shape != tensor.shape:
            raise _unfit(name, tensor, wanted, setup)
    missing = sorted(set(wanted) - set(given))
    needed = [name for name in missing if not name.startswith(NOT_FOR_ACTING)]
    if needed:
        raise BadInput(
            f"{needed[0]} is missing, of shape {list(wanted[needed[0]].shape)}: "
            f"{setup.spec.agent.algorithm} in {setup.spec.env.id} cannot act without it",
        )
    whole = {
        TENSOR_PREFIX + name: given[name].astype(tensor.dtype) if name in given else tensor
        for name, tensor in wanted.items()
    }
    return whole, missing


def _unfit(name: str, tensor: NDArray[Any], wanted: Tensors, setup: Setup) -> BadInput:
    spec = setup.spec
    here = f"{spec.agent.algorithm} in {spec.env.id}"
    if name not in wanted:
        return BadInput(f"{name} has no place in {here}; it has: {', '.join(sorted(wanted))}")
    return BadInput(
        f"{name} has the shape {list(tensor.shape)}; must be {list(wanted[name].shape)} for "
        f"{here}, which shows {setup.observation_space} and takes {setup.action_space}",
        path="env",
        hint="Is it another environment, or another version of it, that the policy has learned?",
    )


def _checked(spec: Spec) -> dict[str, str]:
    """Values that the spec leaves open; raises if its environment cannot be made or does not suit
    it."""
    told = environment.answer(spec)
    for problem in told.problems:
        raise BadInput(problem.message, path=problem.path, hint=problem.hint)
    return told.settled


def _refuse_other_bounds(space: Space[Any], told: Mapping[str, Any], env_id: str) -> None:
    """Raise if actions were stretched to other bounds than those of the environment."""
    if not told or not isinstance(space, spaces.Box):
        return
    ours = {"scale": (space.high - space.low) / 2.0, "bias": (space.high + space.low) / 2.0}
    for name, numbers in told.items():
        if not np.allclose(np.reshape(ours[name], -1), numbers, rtol=1e-5):
            raise BadInput(
                f"action_{name} is {list(numbers)}, but by the bounds of {env_id} it is "
                f"{np.reshape(ours[name], -1).tolist()}",
                path="env",
                hint="The policy has learned in an environment with other bounds.",
            )


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        sys.exit(answer_one(FitForeignTask, adopt))
