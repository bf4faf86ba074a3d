"""Runs as child processes of this machine. They outlive whoever started them: no pipes, a session
of their own, everything they say goes to files.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from rl_orch.core.ports import Exit, Task
from rl_orch.errors import BadInput, Problem, SpecInvalid
from rl_orch.io import processes
from rl_orch.io.rundir import RunDir
from rl_orch.spec.model import Spec

CHECK_TIMEOUT_S = 120.0
FIXED_VARIABLES = {"PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0"}
"""The order of a set of strings must be the same in every attempt."""

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class LocalRunner:
    """Starts workers with this interpreter; a handle is `pid:start`."""

    def __init__(self) -> None:
        self._children: dict[str, subprocess.Popen[bytes]] = {}

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
        run = RunDir(directory)
        if task.checkpoint is None:
            arguments = ["rl_orch.worker.train", str(directory), str(task.attempt)]
        else:
            arguments = ["rl_orch.worker.evaluate", str(directory), task.checkpoint]
        threads = dict.fromkeys(THREAD_VARIABLES, str(run.spec().resources.threads))
        with run.log.open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | threads | FIXED_VARIABLES,
            )
        handle = processes.identity(child.pid) or f"{child.pid}:gone"
        self._children[handle] = child
        return handle

    def poll(self, handle: str) -> Exit | None:
        """None while the worker lives. Only its parent can see the exit code."""
        child = self._children.get(handle)
        if child is not None:
            code = child.poll()
            return None if code is None else Exit(code)
        return None if processes.alive(handle) else Exit(None)

    def stop(self, handle: str, *, force: bool) -> None:
        """SIGTERM, which a worker takes as `stop`, or SIGKILL for it and its children."""
        processes.signal_group(handle, signal.SIGKILL if force else signal.SIGTERM)

    def adopt(self, directory: Path) -> str | None:
        """Whoever holds the directory's lock: its identity is what `start` would have returned."""
        return RunDir(directory).lock_holder()

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
