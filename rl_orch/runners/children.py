"""Processes that outlive whoever started them: no pipes, a session of their own, output to a file.

What runners that use this machine have in common. What a process is for is the runner's business.
"""

import os
import select
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rl_orch.io.files import regular
from rl_orch.io.processes import import_path, pids
from rl_orch.io.processes.environment import program_variables
from rl_orch.io.run.directory import RunDir
from rl_orch.plugins import PROGRAMS

TELLS_WITHIN_S = 10.0
"""How long a process may take to tell its pid. The interpreter that takes longer hangs, and is
known by its own."""


@dataclass(frozen=True, slots=True)
class RunProcesses:
    """The run processes of this machine: started, looked at and ended, whoever started them.

    A handle is `pid:start`. Above a run process is a subreaper, which ends with its exit code once
    nothing is left of it; only the parent of that can see the code.
    """

    _subreapers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _codes: dict[str, int] = field(default_factory=dict)

    def start(
        self,
        words: Sequence[str],
        directory: Path,
        *,
        attempt: int,
        gpus: tuple[str, ...] | None = None,
    ) -> str:
        """Start a program of ours with its arguments, its output appended to the run's log."""
        run, (told, line) = RunDir(directory), os.pipe()
        module, arguments = PROGRAMS[words[0]], words[1:]
        with open(told, "rb", buffering=0) as pipe:
            try:
                with regular.appender(run.log) as log:
                    child = subprocess.Popen(
                        import_path.program(
                            "run process", str(line), str(run.strays), module, *arguments
                        ),
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        pass_fds=(line,),
                        start_new_session=True,
                        env=program_variables(threads=run.spec().resources.threads, gpus=gpus)
                        | pids.cookie(run.path, attempt),
                    )
            finally:
                os.close(line)
            ready, _, _ = select.select([pipe], [], [], TELLS_WITHIN_S)
            pid = int(pipe.read(32) or child.pid) if ready else child.pid
        return self.watch(pid, child)

    def watch(self, pid: int, subreaper: subprocess.Popen[bytes]) -> str:
        """The handle of a run process below a child of this process."""
        handle = pids.identity(pid) or f"{pid}:gone"
        self._subreapers[handle] = subreaper
        return handle

    def lives(self, handle: str) -> bool:
        """Whether the run process still runs, whoever started it."""
        child = self._subreapers.get(handle)
        if child is None:
            return handle not in self._codes and pids.alive(handle)
        code = child.poll()
        if code is not None:
            self._codes[handle] = code
            del self._subreapers[handle]
        elif not pids.alive(handle):
            child.send_signal(signal.SIGCONT)  # The environment may have halted it.
        return code is None

    def exit_code(self, handle: str) -> int | None:
        """The exit code of a run process that is gone; None where another process started it."""
        return self._codes.get(handle)

    def stop(self, handle: str, *, force: bool) -> None:
        """SIGTERM, which a run process takes as `stop`, or SIGKILL, for it and its group."""
        pids.signal_group(handle, signal.SIGKILL if force else signal.SIGTERM)

    def find(self, directory: Path) -> str | None:
        """A run process that works in the directory, though nobody noted its handle.

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
        many processes were, by now, since the last sweep."""
        pids.end_subreapers(directory, through=through)
        return pids.sweep(directory, through=through) + RunDir(directory).count_strays()


def _leads_session(known: str) -> bool:
    try:
        return os.getsid(pids.pid_of(known)) == pids.pid_of(known)
    except OSError:
        return False
