"""Processes that outlive whoever started them: no pipes, a session of their own, output to a file.

What runners that use this machine have in common. What a process is for is the runner's business.
"""

import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rl_orch.io.files import regular
from rl_orch.io.processes import pids
from rl_orch.io.processes.environment import program_variables
from rl_orch.io.run.directory import RunDir
from rl_orch.spec.model import Spec


@dataclass(frozen=True, slots=True)
class RunProcesses:
    """The roots that this process has started, and how any root is looked at and ended.

    A handle is `pid:start`. Only a root's parent can see its exit code.
    """

    _started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _codes: dict[str, int] = field(default_factory=dict)

    def start(
        self,
        arguments: Sequence[str],
        directory: Path,
        *,
        attempt: int,
        gpus: tuple[str, ...] | None = None,
        spec: Spec | None = None,
    ) -> str:
        """Start a root in a session of its own, its output appended to the run's log."""
        run = RunDir(directory, spec)
        with regular.appender(run.log) as log:
            child = subprocess.Popen(
                list(arguments),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=program_variables(threads=run.spec().resources.threads, gpus=gpus)
                | pids.cookie(run.path, attempt),
            )
        handle = pids.identity(child.pid) or f"{child.pid}:gone"
        self._started[handle] = child
        return handle

    def lives(self, handle: str) -> bool:
        """Whether the root still runs, whoever started it."""
        child = self._started.get(handle)
        if child is None:
            return handle not in self._codes and pids.alive(handle)
        code = child.poll()
        if code is not None:
            self._codes[handle] = code
            del self._started[handle]
        return code is None

    def exit_code(self, handle: str) -> int | None:
        """How a root that is gone ended; None where another process was its parent."""
        return self._codes.get(handle)

    def stop(self, handle: str, *, force: bool) -> None:
        """SIGTERM, which a root takes as `stop`, or SIGKILL, for it and its group."""
        pids.signal_group(handle, signal.SIGKILL if force else signal.SIGTERM)

    def find(self, directory: Path) -> str | None:
        """A root that works in the directory, though nobody noted its handle.

        It holds the directory's lock, or is about to: then it is known by its cookie.
        """
        holder = RunDir(directory).lock_holder()
        if holder is not None and pids.pid_of(holder) != os.getpid():
            return holder
        newest = RunDir(directory).noted_attempt()
        found = pids.marked(directory, through=newest, since=newest)
        return next((known for known in found if _leads_session(known)), None)

    def sweep(self, directory: Path, *, through: int) -> int:
        """Kill whatever is left of attempts up to one, also what has left their session."""
        return pids.sweep(directory, through=through)


def _leads_session(known: str) -> bool:
    try:
        return os.getsid(pids.pid_of(known)) == pids.pid_of(known)
    except OSError:
        return False
