"""The first run of its kind on a machine has kernels to compile. A child of the root compiles those
of its updates, while the root itself is at those of its rollouts.
"""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rl_orch.io import machine
from rl_orch.rl.kernels import compiled_note
from rl_orch.rl.rehearsal import rehearse
from rl_orch.spec.model import Spec

SET_DEATH_SIGNAL = 1
"""The number of this request to Linux's `prctl`."""


@contextmanager
def rehearsed(spec: Spec) -> Iterator[None]:
    """While this lasts, a child compiles, where there is something to compile and a core for it.

    It is a copy of this process, so there must be no other thread yet, and no lock held.
    """
    note = _note(spec)
    child = None if note is None or note.exists() else _started(spec, note)
    try:
        yield
    finally:
        if child is not None:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def _note(spec: Spec) -> Path | None:
    """What is there once all has been compiled; None where nothing is to be."""
    alone = machine.cores() < 2 or threading.active_count() > 1 or sys.platform != "linux"
    if alone or spec.train.engine != "kernels":
        return None
    note = compiled_note(f"{spec.agent.algorithm} {spec.env.id}")
    return None if note is None else Path(note)


def _started(spec: Spec, note: Path) -> int:
    """The process id of the child."""
    root = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        _end_with(root)
        _be_silent()
        rehearse(spec)
        note.touch()
    finally:
        os._exit(0)  # Nothing that the root has begun is for the child to end.


def _end_with(root: int) -> None:
    """Be killed when the root ends, however it does."""
    ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != root:
        os._exit(0)


def _be_silent() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
