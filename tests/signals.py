"""Signals as tests and the processes that they start have them, whoever has started the tests.

What is ignored stays so in every process that one starts. A shell lets what it runs in the
background ignore Ctrl-C, and `nohup` a hangup; the programs that are tested must hear both.
"""

import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rl_orch.io.processes.signals import OF_PYTHON

VARIABLE = "TESTS_UNHEEDED_SIGNALS"
SPARED = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT})
"""What whoever starts tests in the background wants them to outlive."""

IGNORANT = """
import os, signal, sys
for name in sys.argv[1].split():
    signal.signal(signal.Signals[name], signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.Signals[name] for name in sys.argv[2].split()])
os.execv(sys.argv[3], sys.argv[3:])
"""


def hear_signals() -> None:
    """Let no signal be ignored or blocked in processes that this one starts.

    One that was to spare this process is caught and left at that, here and in the processes among
    which tests are shared out: what is caught is not passed on.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    ignored = {
        number
        for number in signal.valid_signals()
        if signal.getsignal(number) is signal.SIG_IGN and number not in OF_PYTHON
    }
    unheeded = (ignored & SPARED) | unheeded_signals()
    for number in ignored | unheeded:
        signal.signal(number, _leave if number in unheeded else signal.SIG_DFL)
    os.environ[VARIABLE] = " ".join(signal.Signals(number).name for number in unheeded)


def unheeded_signals() -> set[signal.Signals]:
    """The signals that these tests are to outlive."""
    return {signal.Signals[name] for name in os.environ.get(VARIABLE, "").split()}


def ignoring(command: Sequence[str], ignored: str, *, blocked: str = "") -> list[str]:
    """A command that ignores and blocks signals from its beginning, as `nohup` and shells do it."""
    return [sys.executable, "-c", IGNORANT, ignored, blocked, *command]


def signals_in(mask: str, status: str) -> set[int]:
    """The signals in a mask of a process, such as `SigIgn`, as its status in `/proc` has it."""
    (digits,) = re.findall(rf"^{mask}:\s*([0-9a-f]+)$", status, re.MULTILINE)
    # Numbers that the C library keeps to itself are nobody's to change.
    return {number for number in signal.valid_signals() if int(digits, 16) >> (number - 1) & 1}


def ignored_by(pid: int) -> set[int]:
    """The signals that a process ignores."""
    return signals_in("SigIgn", Path(f"/proc/{pid}/status").read_text())


def _leave(_number: int, _frame: object) -> None:
    """Take a signal, and do nothing."""
