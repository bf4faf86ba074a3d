"""The first run of its kind on a machine has kernels to compile. A child compiles what all updates
call while a spare loads torch; another, those of the run's updates, while the root is at those
of its rollouts.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from rl_orch import plugins
from rl_orch.io.machine import hardware
from rl_orch.io.processes.subreaper import end_with_parent
from rl_orch.spec.model import Spec


def begin_layers() -> None:
    """Let a child compile what all updates call, unless that is kept. Nobody waits for it: what is
    left of it goes with this process."""
    _begun("layers", compile_layers)


def compile_layers() -> None:
    """Compile the kernels that all updates call; without torch."""
    plugins.part("kernel layers").compile_layers()


@contextmanager
def rehearsed(spec: Spec, rehearse: Callable[[Spec], None]) -> Iterator[None]:
    """While this lasts, a child compiles, by rehearsing what is to be trained, where there is
    something to compile and a core for it."""
    child = None
    if spec.train.engine == "kernels":
        child = _begun(f"{spec.agent.algorithm} {spec.env.id}", partial(rehearse, spec))
    try:
        yield
    finally:
        if child is not None:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def _begun(what: str, work: Callable[[], None]) -> int | None:
    """The process id of a child that compiles, and then notes that all is there; None where
    nothing is to be compiled, or nobody can be started for it.

    It is a copy of this process, so there must be no other thread of Python's yet, and no lock
    held. Threads of BLAS do no harm: they wait, and what is done here is too little to share.
    """
    alone = hardware.cores() < 2 or threading.active_count() > 1 or sys.platform != "linux"
    note = None if alone else plugins.part("kernel compiler").note_of(what)
    if note is None or os.path.exists(note):
        return None
    root = os.getpid()
    try:
        child = os.fork()
    except OSError:
        return None
    if child:
        return child
    try:
        end_with_parent(root)
        _be_silent()
        work()
        Path(note).touch()
    finally:
        os._exit(0)  # Nothing that the root has begun is for the child to end.


def _be_silent() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
