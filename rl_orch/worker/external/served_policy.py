"""A policy that is a process: it serves `act` from an environment of its own.

The evaluator and its episodes are those of every other run; only who decides is somebody else.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import numpy as np
import torch
from gymnasium import Space
from numpy.typing import NDArray

from rl_orch.errors import BadInput
from rl_orch.io.files import regular
from rl_orch.io.processes import pids
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import newest_attempt
from rl_orch.rl.data.batch import mapped
from rl_orch.rl.policies.policy import Decision, PolicyInput
from rl_orch.spec.model import Spec
from rl_orch.worker import log
from rl_orch.worker.external import program
from rl_orch.worker.external.request_reply import Dialogue
from rl_orch.worker.external.scratch import facts

FIRST_S = 60.0
"""How long the first answer may take: programs load their libraries before it."""

LATER_S = 30.0
NAME = "the policy's program"
PLACE = "{checkpoint}"
SHOWN_CHARS = 200


class ServedPolicy:
    """Decides by asking a program; what it answers must be an action of the environment."""

    def __init__(self, dialogue: Dialogue, action_space: Space[Any]) -> None:
        self._dialogue = dialogue
        self._space = action_space
        self._timeout_s = FIRST_S
        self.device = torch.device("cpu")
        self.memory_size = 0

    def decide(self, seen: PolicyInput, generator: torch.Generator | None) -> Decision:
        """Actions (N, *action_shape), as the environment takes them."""
        listed = mapped(seen.observations, np.ndarray.tolist)
        question = {"obs": listed, "deterministic": generator is None}
        answer = self._dialogue.ask(question, timeout_s=self._timeout_s)
        self._timeout_s = LATER_S
        return Decision(actions_in(answer, len(seen.first), self._space))

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        """The same: a program answers in the environment's terms."""
        return actions


@contextmanager
def serving(
    spec: Spec, directory: RunDir, checkpoint: Path, action_space: Space[Any]
) -> Iterator[ServedPolicy]:
    """The policy of a checkpoint, served as long as this lasts. No process of it stays behind.

    Where this process is none of the run's own, those that serve are not marked as such either:
    the run may be at work, and whoever ends what is left of it means other ones.
    """
    attempt = newest_attempt(directory.events)
    apart = RunDir(directory.path / f"served-{secrets.token_hex(8)}")
    place = directory if pids.is_of(directory.path) else apart
    arguments = [word.replace(PLACE, str(checkpoint)) for word in spec.runner.policy]
    given = facts(spec, directory, attempt) | pids.cookie(place.path, attempt)
    with regular.appender(directory.log) as errors:
        child = program.start(
            arguments, spec, directory, given, input=PIPE, output=PIPE, errors=errors
        )
    dialogue = Dialogue(child, _note, name=NAME)
    try:
        yield ServedPolicy(dialogue, action_space)
        dialogue.close()
    finally:
        program.end(child, place, attempt)
        dialogue.close()


def actions_in(answer: dict[str, Any], count: int, space: Space[Any]) -> NDArray[Any]:
    """The actions in an answer, of which every one is in the space; a BadInput if not."""
    if "action" not in answer:
        raise BadInput(f'{NAME} answered without "action": {str(answer)[:SHOWN_CHARS]}')
    try:
        rows = np.asarray(answer["action"])
    except ValueError:
        rows = np.empty(0)
    wanted = (count, *(space.shape or ()))
    if rows.shape != wanted or rows.dtype.kind not in "iuf":
        seen = f"{rows.dtype} of shape {list(rows.shape)}"
        raise BadInput(
            f"{NAME} answered {count} observations with {seen}; must be numbers of shape "
            f"{list(wanted)}, an action for each"
        )
    with np.errstate(all="ignore"):
        actions = rows.astype(space.dtype)
    for given, action in zip(rows, actions, strict=True):
        exact = space.dtype is None or space.dtype.kind == "f" or np.array_equal(given, action)
        if not (np.isfinite(given).all() and exact and space.contains(action)):
            raise BadInput(f"{NAME} answered with the action {given}, which is not in {space}")
    return actions


def _note(line: bytes) -> None:
    log.info("policy", said=line.decode("utf-8", "replace"))
