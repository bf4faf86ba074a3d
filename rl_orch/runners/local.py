"""Training by this package, as child processes of this machine that outlive their starter."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from rl_orch.core.ports import Exit, Task
from rl_orch.errors import BadInput, Problem, SpecInvalid
from rl_orch.io.children import Children
from rl_orch.spec.model import Spec

CHECK_TIMEOUT_S = 120.0


class LocalRunner:
    """Starts workers with this interpreter; a handle is `pid:start`."""

    def __init__(self) -> None:
        self._children = Children()

    def check(self, spec: Spec) -> None:
        """Ask a child whether the environment exists and suits the algorithm."""
        reply = self._ask("check", input=spec.model_dump_json())
        try:
            document = json.loads(reply.stdout.splitlines()[-1])
        except (IndexError, ValueError):
            last = reply.stderr.strip().splitlines()[-1:] or ["it said nothing"]
            message = (
                f"env.id is {spec.env.id!r}; making it ended the process with exit code "
                f"{reply.returncode}: {last[0]}"
            )
            raise SpecInvalid([Problem("env.id", spec.env.id, message)]) from None
        if "error" in document:
            raise BadInput(document["error"]["message"], hint=document["error"].get("hint"))
        found = [Problem(**problem) for problem in document["problems"]]
        found += self._device_problems(spec.resources.device)
        if found:
            raise SpecInvalid(found)

    def start(self, directory: Path, task: Task) -> str:
        """Start a worker in a session of its own, its output appended to the run's log."""
        if task.checkpoint is None:
            words = ["rl_orch.worker.train", str(directory), str(task.attempt)]
        else:
            words = ["rl_orch.worker.evaluate", str(directory), task.checkpoint]
        command = [sys.executable, "-m", *words]
        return self._children.start(command, directory, attempt=task.attempt, gpus=task.gpus)

    def poll(self, handle: str) -> Exit | None:
        """None while the worker lives. Only its parent can see the exit code."""
        alive = self._children.lives(handle)
        return None if alive else Exit(self._children.exit_code(handle))

    def stop(self, handle: str, *, force: bool) -> None:
        """SIGTERM, which a worker takes as `stop`, or SIGKILL."""
        self._children.stop(handle, force=force)

    def adopt(self, directory: Path) -> str | None:
        """A worker of the directory: its identity is what `start` would have returned."""
        return self._children.find(directory)

    def sweep(self, directory: Path, *, through: int) -> int:
        """Kill what is left of the run's processes."""
        return self._children.sweep(directory, through=through)

    def _device_problems(self, device: str) -> list[Problem]:
        if device == "cpu":
            return []
        reply = self._ask("device", device)
        if reply.returncode == 0:
            return []
        hint = "Use cpu, or install a torch build for your device (see the README)."
        return [Problem("resources.device", device, reply.stderr.strip(), hint)]

    def _ask(
        self, program: str, *arguments: str, input: str = ""
    ) -> subprocess.CompletedProcess[str]:
        try:
            return _answer([sys.executable, "-m", f"rl_orch.worker.{program}", *arguments], input)
        except subprocess.TimeoutExpired:
            raise BadInput(
                f"the {program} of the spec took longer than {CHECK_TIMEOUT_S:.0f} s",
                hint="Make the environment by hand to see what it waits for.",
            ) from None


def _answer(command: list[str], input: str) -> subprocess.CompletedProcess[str]:
    """What a child says, in a session of its own: a Ctrl-C in the terminal is meant for us."""
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        try:
            out, err = child.communicate(input, timeout=CHECK_TIMEOUT_S)
        except BaseException:
            with suppress(ProcessLookupError):
                # The whole session: processes of an environment would keep the pipes open.
                os.killpg(child.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, child.returncode, out, err)
