"""The first run of its kind on a machine has kernels to compile. A child compiles what all updates
call while this process loads torch; another, those of the run's updates, while the root is at those
of its rollouts.
"""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from rl_orch.io import machine
from rl_orch.rl.kernels import compile_common, compiled_note
from rl_orch.spec.model import Spec

SET_DEATH_SIGNAL = 1
"""The number of this request to Linux's `prctl`."""


def begin_common() -> None:
    """Let a child compile what all updates call, unless that is kept; it ends with this process."""
    _begun("what all updates call", compile_common)


@contextmanager
def rehearsed(spec: Spec) -> Iterator[None]:
    """While this lasts, a child compiles, where there is something to compile and a core for it."""
    child = None
    if spec.train.engine == "kernels":
        child = _begun(f"{spec.agent.algorithm} {spec.env.id}", partial(_rehearse, spec))
    try:
        yield
    finally:
        if child is not None:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def _rehearse(spec: Spec) -> None:
    from rl_orch.rl.rehearsal import rehearse

    rehearse(spec)


def _begun(what: str, compile: Callable[[], None]) -> int | None:
    """The process id of a child that compiles, and then notes that all is there; None where
    nothing is to be compiled, or where it would be in the way.

    It is a copy of this process, so there must be no other thread yet, and no lock held.
    """
    alone = machine.cores() < 2 or threading.active_count() > 1 or sys.platform != "linux"
    note = None if alone else compiled_note(what)
    if note is None or Path(note).exists():
        return None
    root = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        _end_with(root)
        _be_silent()
        compile()
        Path(note).touch()
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
