"""Training by any program, as child processes of this machine that outlive their starter.

Their root is a process of ours that starts the program and watches over it, so that the run looks
like every other.
"""

import json
import subprocess
import sys
from pathlib import Path

from rl_orch.core.ports import Exit, Task
from rl_orch.errors import BadInput, Problem, SpecInvalid
from rl_orch.io.asking import ask
from rl_orch.io.children import Children
from rl_orch.spec.model import Spec
from rl_orch.worker import program

CHECK_TIMEOUT_S = 120.0


class ExternalRunner:
    """Starts the program of a spec under a root of ours; a handle is `pid:start`."""

    def __init__(self) -> None:
        self._children = Children()

    def check(self, spec: Spec) -> None:
        """See whether the programs are there, and whether a policy could act where it will."""
        found = program.problems(spec)
        if not found and spec.runner.policy:
            found = _environment_problems(spec)
        if found:
            raise SpecInvalid(found)

    def start(self, directory: Path, task: Task) -> str:
        """Start a root in a session of its own, its output appended to the run's log."""
        if task.checkpoint is None:
            words = ["rl_orch.worker.external", str(directory), str(task.attempt)]
        else:
            words = ["rl_orch.worker.evaluate", str(directory), task.checkpoint]
        command = [sys.executable, "-m", *words]
        return self._children.start(command, directory, attempt=task.attempt, gpus=task.gpus)

    def poll(self, handle: str) -> Exit | None:
        """None while the root lives. Only its parent can see the exit code."""
        alive = self._children.lives(handle)
        return None if alive else Exit(self._children.exit_code(handle))

    def stop(self, handle: str, *, force: bool) -> None:
        """SIGTERM, which the root passes on to its program, or SIGKILL."""
        self._children.stop(handle, force=force)

    def adopt(self, directory: Path) -> str | None:
        """A root of the directory: its identity is what `start` would have returned."""
        return self._children.find(directory)

    def sweep(self, directory: Path, *, through: int) -> int:
        """Kill what is left of the run's processes, the program's among them."""
        return self._children.sweep(directory, through=through)


def _environment_problems(spec: Spec) -> list[Problem]:
    """What a child that makes the environment says against it."""
    command = [sys.executable, "-m", "rl_orch.worker.check_served"]
    try:
        reply = ask(command, spec.model_dump_json(), timeout_s=CHECK_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise BadInput(
            f"making {spec.env.id} took longer than {CHECK_TIMEOUT_S:.0f} s",
            hint="Make the environment by hand to see what it waits for.",
        ) from None
    try:
        document = json.loads(reply.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        last = reply.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        message = (
            f"env.id is {spec.env.id!r}; making it ended the process with exit code "
            f"{reply.returncode}: {last[0]}"
        )
        return [Problem("env.id", spec.env.id, message)]
    if "error" in document:
        raise BadInput(document["error"]["message"], hint=document["error"].get("hint"))
    return [Problem(**problem) for problem in document["problems"]]
