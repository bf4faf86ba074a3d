"""Run processes of this machine, which outlive whoever started them: no pipes, output to a file.

Which program trains is the runner's business, and what it checks before.
"""

import os
import select
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from rl_orch.core.ports import Exit, Task
from rl_orch.io.files import regular
from rl_orch.io.processes import import_path, pids
from rl_orch.io.processes.environment import program_variables
from rl_orch.io.run.directory import RunDir
from rl_orch.plugins import PROGRAMS

TELLS_WITHIN_S = 10.0
"""How long a process may take to tell its pid. An interpreter that takes longer hangs, and is known
by its own."""


class ProcessRunner:
    """Starts a run process for each task; a handle is `pid:start`.

    Above it is a subreaper, which ends with its exit code once nothing is left of it.
    """

    trainer: ClassVar[str]
    """The program that carries out an attempt, given its directory and number."""

    def __init__(self) -> None:
        self._subreapers: dict[str, subprocess.Popen[bytes]] = {}
        self._codes: dict[str, int] = {}

    def start(self, directory: Path, task: Task) -> str:
        """Start a program of ours in a session, its output appended to the run's log."""
        words = [self.trainer, str(directory), str(task.attempt)]
        if task.checkpoint is not None:
            words = ["evaluate", str(directory), task.checkpoint]
        told, line = os.pipe()
        with open(told, "rb", buffering=0) as pipe:
            try:
                child = _started(words, RunDir(directory, task.spec), task, line)
            finally:
                os.close(line)
            ready, _, _ = select.select([pipe], [], [], TELLS_WITHIN_S)
            pid = int(pipe.read(32) or child.pid) if ready else child.pid
        return self._watched(pid, child)

    def poll(self, handle: str) -> Exit | None:
        """None while the run process lives. Only who started it can see its exit code."""
        child = self._subreapers.get(handle)
        if child is None:
            lives = handle not in self._codes and pids.alive(handle)
            return None if lives else Exit(self._codes.get(handle))
        code = child.poll()
        if code is None:
            if not pids.alive(handle):
                child.send_signal(signal.SIGCONT)  # The environment may have halted it.
            return None
        self._codes[handle] = code
        del self._subreapers[handle]
        return Exit(code)

    def stop(self, handle: str, *, force: bool) -> None:
        """SIGTERM, which a run process takes as `stop`: it alone, since it needs its helpers until
        it has ended; or SIGKILL, for it and its group."""
        if force:
            pids.signal_group(handle, signal.SIGKILL)
        elif pids.alive(handle):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pids.pid_of(handle), signal.SIGTERM)

    def adopt(self, directory: Path) -> str | None:
        """A run process of the directory: its identity is what `start` would have returned.

        It holds the directory's lock, or is about to: then it is known by its cookie.
        """
        holder = RunDir(directory).lock_holder()
        if holder is not None and pids.pid_of(holder) != os.getpid():
            return holder
        newest = RunDir(directory).noted_attempt()
        marked = pids.marked(directory, through=newest, since=newest)
        return next((known for known in marked if _leads_session(known)), None)

    def sweep(self, directory: Path, *, through: int) -> int:
        """Kill what is left of attempts up to one, also what has left their session; returns how
        many processes were killed since the last sweep."""
        pids.end_subreapers(directory, through=through)
        for handle in list(self._subreapers):  # A run that was given up is polled no more.
            self.poll(handle)
        return pids.sweep(directory, through=through) + RunDir(directory).count_strays()

    def _watched(self, pid: int, subreaper: subprocess.Popen[bytes]) -> str:
        """The handle of a run process below a child of this process."""
        handle = pids.identity(pid) or f"{pid}:gone"
        self._subreapers[handle] = subreaper
        return handle


def _started(words: Sequence[str], run: RunDir, task: Task, line: int) -> subprocess.Popen[bytes]:
    """The child above a run process, which will tell its pid on the line."""
    module, arguments = PROGRAMS[words[0]], words[1:]
    with regular.appender(run.log) as log:
        return subprocess.Popen(
            import_path.program("run process", str(line), str(run.strays), module, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(line,),
            start_new_session=True,
            env=program_variables(threads=run.spec().resources.threads, gpus=task.gpus)
            | pids.cookie(run.path, task.attempt),
        )


def _leads_session(known: str) -> bool:
    try:
        return os.getsid(pids.pid_of(known)) == pids.pid_of(known)
    except OSError:
        return False
