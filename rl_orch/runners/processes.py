"""The part of runners whose run processes are programs of ours on this machine.

Which program trains is the runner's business, and what it checks before.
"""

from pathlib import Path
from typing import ClassVar

from rl_orch.core.ports import Exit, Task
from rl_orch.runners.children import RunProcesses


class ProcessRunner:
    """Starts a worker for each task; a handle is `pid:start`."""

    trainer: ClassVar[str]
    """The program that carries out an attempt, given its directory and number."""

    def __init__(self) -> None:
        self._children = RunProcesses()

    def start(self, directory: Path, task: Task) -> str:
        """Start a worker, its output appended to the run's log."""
        if task.checkpoint is None:
            words = [self.trainer, str(directory), str(task.attempt)]
        else:
            words = ["evaluate", str(directory), task.checkpoint]
        return self._children.start(words, directory, attempt=task.attempt, gpus=task.gpus)

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
