"""Asking a child process something before a run is made: a question in, its whole answer out."""

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress


def ask(
    command: Sequence[str], question: str, *, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """What a child says, in a session of its own: a Ctrl-C in the terminal is meant for us.

    When the time is over, or this is interrupted, its whole session is ended.
    """
    with subprocess.Popen(
        list(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        try:
            out, err = child.communicate(question, timeout=timeout_s)
        except BaseException:
            with suppress(ProcessLookupError):
                # Processes that an environment started would keep the pipes open.
                os.killpg(child.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(list(command), child.returncode, out, err)
