"""`python -m rl_orch.io.processes.subreaper ASKER MODULE ARGUMENTS`: a program of ours that runs
the code of others, and a process above it that outlives it and ends all that it started.

On Linux that process is a subreaper: whoever loses its parent below it becomes its child, also
daemons that left their session and cleared their environment. It ends what is below it when the
program has ended, however it did, when it is asked to by SIGTERM, and when the asker is gone. It
loads next to nothing and forks before the program is loaded. Elsewhere there is only the program.
Run processes are below one as well (`run_process.py`), which outlives its starter as they do.
"""

import ctypes
import mmap
import os
import resource
import runpy
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from rl_orch.io.processes.signals import hear_signals

SET_DEATH_SIGNAL = 1
SET_CHILD_SUBREAPER = 36
"""The numbers of these requests to Linux's `prctl`."""

DIES_WITHIN_S = 5.0
"""After SIGKILL. What has not died by then cannot: it is in the kernel, or somebody else's."""

ENDS_WITHIN_S = DIES_WITHIN_S + 1.0
"""A subreaper that is asked to, with all below it."""

LOOK_AGAIN_S = 0.01
ASKED_TO_END = 128 + signal.SIGTERM
"""The exit code where nobody waited for the program's."""

PARENT_CHANGED = signal.SIGHUP
END_RUN = signal.SIGUSR1
"""Ends all, also of a run, whose subreaper leaves other signals to the run process."""

HEEDED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, PARENT_CHANGED, END_RUN}
NAME = "rlctl-subreaper"
"""As the kernel shows it: the command line is the same as that of the program."""


class RunClaim:
    """Memory that a subreaper shares with its program: the program is a run process by now.

    From then on both outlive whoever started them. Until then they end with it.
    """

    BYTES = 1 << 13
    """More than the longest path."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, self.BYTES)

    def make(self, strays: Path) -> None:
        """Claim the program for a run. The number of processes that it leaves behind and that are
        killed will be noted in the file."""
        text = os.fsencode(strays)
        self._page[1 : 1 + len(text)] = text
        self._page[0] = 1  # Last: the subreaper may look at any moment.

    @property
    def strays(self) -> Path | None:
        """The file for the number of processes that were left; None before there is a run."""
        if not self._page[0]:
            return None
        return Path(os.fsdecode(self._page[1:].rstrip(b"\0")))


def main() -> None:
    """Be the program, with a subreaper above it where there are such."""
    asker, module, *arguments = sys.argv[1:]
    if sys.platform == "linux":
        contain(int(asker))
    hear_signals()
    keep_answers_apart()
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def contain(asker: int, claim: RunClaim | None = None) -> None:
    """Return in a child of this process, which itself never does: it watches over the child.

    With a claim, the child leads a session: it is a run process, or may become one.
    """
    # No signal that the program sends up ends us, but for one that cannot be blocked.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    prctl(SET_CHILD_SUBREAPER, 1)
    prctl(SET_DEATH_SIGNAL, PARENT_CHANGED)
    claimed = claim is not None and claim.strays is not None
    if os.getppid() != asker and not claimed:
        os._exit(ASKED_TO_END)
    subreaper = os.getpid()
    program = os.fork()
    if program:
        _watch_over(program, asker, claim or RunClaim())
    if claim is None:
        os.setpgid(0, 0)  # Then a signal that the program sends to its group does not end us.
    else:
        os.setsid()
    end_with_parent(subreaper)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def set_name(name: str) -> None:
    """Let the kernel show this process by a name of at most 15 characters."""
    with suppress(OSError):
        Path("/proc/self/comm").write_text(name)


def end_with_parent(parent: int) -> None:
    """Be killed when the parent ends, however it does, also if it has by now."""
    prctl(SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def prctl(request: int, value: int) -> None:
    """Ask Linux to change something about this process."""
    if ctypes.CDLL(None, use_errno=True).prctl(request, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl {request} was refused")


def keep_answers_apart() -> None:
    """Let only what is written to `sys.stdout` go where standard output went. What others write to
    the descriptor, programs that they start too, goes to standard error."""
    known = sys.stdout
    answers = os.dup(1)  # Programs that are started do not inherit it.
    os.dup2(2, 1)
    sys.stdout = os.fdopen(answers, "w", encoding=known.encoding, errors=known.errors)


def _watch_over(program: int, asker: int, claim: RunClaim) -> None:
    """Wait for the program, end what is left, and end as the program did."""
    set_name(NAME)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)  # The questions are the program's.
    status = _awaited(program, asker, claim)
    killed = _sweep()
    if killed and claim.strays is not None:
        _note(killed, claim.strays)
    _end_as(status)


def _awaited(program: int, asker: int, claim: RunClaim) -> int | None:
    """The way the program ended; None as soon as it is to be ended."""
    while True:
        number = signal.sigwaitinfo(HEEDED).si_signo
        if number == signal.SIGCHLD:
            ended, _ = _reaped()
            if program in ended:
                return ended[program]
        elif claim.strays is not None:
            if number == END_RUN:
                return signal.SIGKILL  # As it will.
        # It also comes when only the thread has ended that started us.
        elif number != PARENT_CHANGED or os.getppid() != asker:
            return None


def _sweep() -> int:
    """Kill all below this process; returns how many that were, once nobody is left.

    Children are killed; theirs become ours, however deep they were. Nobody else can wait for a
    child of ours, so its pid is its own until we have. A process may fork while it is looked for,
    so we look until there is none.
    """
    deadline = time.monotonic() + DIES_WITHIN_S
    killed, (_, left) = 0, _reaped()
    while left and time.monotonic() < deadline:
        for pid in _children():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        signal.sigtimedwait({signal.SIGCHLD}, LOOK_AGAIN_S)
        ended, left = _reaped()
        killed += sum(status == signal.SIGKILL for status in ended.values())
    return killed


def _note(killed: int, file: Path) -> None:
    """Add a line to a file; nobody reads it where it cannot be written."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
    with suppress(OSError), open(os.open(file, flags, 0o600), "w") as note:
        note.write(f"{killed}\n")


def _reaped() -> tuple[dict[int, int], bool]:
    """The children that have ended, pid → status, and whether there are others."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, False
        if pid == 0:
            return ended, True
        ended[pid] = status


def _children() -> list[int]:
    """The pids of this process's children, as far as they can be seen at once."""
    me = os.getpid()
    try:
        return [int(pid) for pid in Path(f"/proc/{me}/task/{me}/children").read_text().split()]
    except OSError:  # A kernel that was built without such a file.
        return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _parent(pid) == me]


def _parent(pid: str) -> int | None:
    try:
        return int(
            Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1]
        )
    except (OSError, IndexError):
        return None


def _end_as(status: int | None) -> None:
    """End with the program's exit code, or by the signal that it ended by."""
    code = ASKED_TO_END if status is None else os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # The program has left one, if anybody.
        with suppress(OSError):
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os.kill(os.getpid(), -code)
        code = 128 - code
    os._exit(code)


if __name__ == "__main__":
    main()
