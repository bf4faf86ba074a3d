"""Who a process is: pid and start time together, so that a reused pid is never taken for it."""

import os
import re
import signal
from pathlib import Path

import psutil


def identity(pid: int) -> str | None:
    """`pid:start`, or None if there is no such process or it is a zombie.

    On Linux the start is in clock ticks since boot, which a change of the clock does not move.
    """
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return f"{pid}:{_start(process)}"
    except (psutil.Error, OSError, IndexError):
        return None


def alive(known: str) -> bool:
    """Whether the very process that had this identity still runs."""
    return identity(pid_of(known)) == known


def is_identity(text: str) -> bool:
    """Whether a text has the form of an identity."""
    return re.fullmatch(r"[0-9]{1,10}:[0-9.]+", text) is not None


def pid_of(known: str) -> int:
    """The pid in an identity."""
    return int(known.split(":", 1)[0])


def signal_group(known: str, number: signal.Signals) -> bool:
    """Send a signal to the process and its group; False if it is gone. Strangers are never hit."""
    if not alive(known):
        return False
    try:
        os.killpg(os.getpgid(pid_of(known)), number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _start(process: psutil.Process) -> str:
    stat = Path(f"/proc/{process.pid}/stat")
    if stat.exists():
        return stat.read_text().rpartition(")")[2].split()[19]
    return repr(process.create_time())
