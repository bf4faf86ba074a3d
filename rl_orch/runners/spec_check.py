"""Checks of a spec by a child that makes its environment, or asks torch for its device."""

import subprocess
from collections.abc import Sequence

from pydantic import BaseModel

from rl_orch.errors import BadInput, Problem, SpecInvalid, Warn
from rl_orch.io.processes.task_worker import Answer, TaskEnded, TaskWorker
from rl_orch.records.tasks import CheckAnswer, CheckTask
from rl_orch.spec.model import Spec

CHECK_TIMEOUT_S = 120.0


def checker(program: str) -> TaskWorker[CheckAnswer]:
    """A child that waits for a spec to check."""
    return TaskWorker(CheckAnswer, (program,), doing="the check of the spec")


def checked(worker: TaskWorker[Answer], request: BaseModel | None, *, doing: str) -> Answer:
    """The answer of a child that checks something; a BadInput if that takes too long."""
    try:
        return worker.answer(request, timeout_s=CHECK_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise BadInput(
            f"{doing} took longer than {CHECK_TIMEOUT_S:.0f} s",
            hint="Make the environment by hand to see what it waits for.",
        ) from None


def check_task(spec: Spec, module_path: Sequence[str]) -> CheckTask:
    """The request to a child that makes an environment: the spec, and folders of modules."""
    return CheckTask(spec=spec, module_path=tuple(module_path))


def heed(problems: Sequence[Problem], warnings: Sequence[Problem], warn: Warn) -> None:
    """Raise if a check has found problems; else pass its warnings on."""
    if problems:
        raise SpecInvalid(problems)
    for warning in warnings:
        warn(warning)


def deadly(env_id: str, ended: TaskEnded) -> CheckAnswer:
    """The answer in place of that of a child which making the environment has ended."""
    message = (
        f"env.id is {env_id!r}; making or stepping it ended the process with exit code "
        f"{ended.exit_status}: {ended.last_line}"
    )
    return CheckAnswer(problems=(Problem("env.id", env_id, message),))
