"""Kernels of the first run of its kind on a machine, compiled by children: those that all updates
call, while a standby loads torch, and those of the run's updates, while the run process is at those
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
from rl_orch.spec.part_traits import engine_traits

_COMPILING: set[int] = set()
"""The children that have not been waited for."""


def begin_layers() -> None:
    """Let a child compile what all updates call, unless that is kept. What is left of it goes with
    this process."""
    _begin("layers", compile_layers)


def compile_layers() -> None:
    """Compile the kernels that all updates call; without torch."""
    plugins.part("kernel layers").compile_layers()


@contextmanager
def precompiling(spec: Spec, precompile: Callable[[Spec], None]) -> Iterator[None]:
    """The time in which a child compiles the kernels of a spec's updates."""
    if engine_traits(spec.train.engine).compiles:
        _begin(f"{spec.agent.algorithm} {spec.env.id}", partial(precompile, spec))
    try:
        yield
    finally:
        _end_all()


def _begin(what: str, work: Callable[[], None]) -> None:
    """Start a child that compiles what is not kept, and notes that it is.

    It is a copy of this process, so there must be no other thread of Python's yet, and no lock
    held. Threads of BLAS do no harm: they wait, and what is done here is too little to share.
    """
    alone = hardware.cores() < 2 or threading.active_count() > 1 or sys.platform != "linux"
    note = None if alone else plugins.part("kernel compiler").note_of(what)
    if note is None or os.path.exists(note):
        return
    parent = os.getpid()
    try:
        child = os.fork()
    except OSError:
        return
    if child:
        _COMPILING.add(child)
        signal.signal(signal.SIGCHLD, _reap)
        _reap()  # It may have ended before that.
        return
    try:
        end_with_parent(parent)
        _be_silent()
        work()
        Path(note).touch()
    finally:
        os._exit(0)  # Nothing that its parent has begun is for the child to end.


def _reap(*_signal: object) -> None:
    """Wait for children that have ended: as long as a training is, they would be zombies."""
    for child in list(_COMPILING):
        with suppress(ChildProcessError):
            if os.waitpid(child, os.WNOHANG) == (0, 0):
                continue
        _COMPILING.discard(child)
    if not _COMPILING:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _end_all() -> None:
    if _COMPILING:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # Then a pid is theirs until we wait here.
    while _COMPILING:
        child = _COMPILING.pop()
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _be_silent() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
