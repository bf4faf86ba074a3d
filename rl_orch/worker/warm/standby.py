"""`python -m rl_orch.worker.warm.standby PARENT`: a process that has loaded what attempts need, and
waits to become the run process of one.

It talks with who started it over a socket that is its standard input, in JSON. It ends when that
process does, when it is old, or when what it has loaded is no longer what is on the disk. Until
it is given an order it has seen no spec, seeded nothing and computed nothing.
"""

import gc
import importlib
import json
import os
import runpy
import select
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_orch import plugins
from rl_orch.io.processes import run_process
from rl_orch.io.processes.pids import COOKIE
from rl_orch.io.processes.signals import hear_signals
from rl_orch.io.processes.subreaper import RunClaim, contain, set_name
from rl_orch.worker.warm.loaded import LoadedModules

READY, ACCEPTED = "ready", "accepted"
"""What it tells of: its pid, once it is ready, and that an order is being carried out."""

NAME = "rlctl-standby"
"""As the kernel shows it once it is ready."""

MESSAGE_BYTES = 1 << 16
MAX_AGE_S = 3600.0
LOOK_EVERY_S = 30.0
CLOCK_STEP_NS = 1_000_000_000
"""How much earlier than the clock a file system may date a change."""


@dataclass(frozen=True, slots=True)
class StandbyOrder:
    """An attempt to begin: program and arguments, the cookie for what it starts, the file for
    strays, and where its output goes."""

    words: Sequence[str]
    cookie: str
    strays: Path
    log: int


def main() -> None:
    """Load, wait, and carry out what is ordered."""
    claim = RunClaim()
    contain(int(sys.argv[1]), claim)
    hear_signals()
    line, began_ns = socket.socket(fileno=0), time.time_ns() - CLOCK_STEP_NS
    prepare()
    loaded = LoadedModules.now()
    if loaded.changed_since(began_ns):
        return
    set_name(NAME)
    line.send(json.dumps({READY: os.getpid()}).encode())
    order = _ordered(line, loaded)
    if order is not None:
        _accept(order, line, claim)
        runpy.run_module(plugins.PROGRAMS[order.words[0]], run_name="__main__", alter_sys=True)


def prepare() -> None:
    """Load what attempts need. What cannot be loaded is left to the attempt that needs it.

    Kernels come first, so that a child can compile what is not kept while torch is loaded here.
    """
    gc.disable()  # Hardly anything that is loaded is garbage, and looking for it takes time.
    with suppress(ImportError):
        plugins.part("kernel compiler").load()
        plugins.part("precompile").begin_layers()
    for name in plugins.PRELOADED:
        with suppress(ImportError):
            plugins.load_all(name)
    gc.enable()


def _ordered(line: socket.socket, loaded: LoadedModules) -> StandbyOrder | None:
    """The order that comes; None if the service is gone, or what was loaded is out of date."""
    deadline = time.monotonic() + MAX_AGE_S
    while not select.select([line], [], [], LOOK_EVERY_S)[0]:
        if time.monotonic() > deadline or not loaded.is_current:
            return None
    message, handed, _, _ = socket.recv_fds(line, MESSAGE_BYTES, 1)
    if not message or not loaded.is_current:
        return None
    importlib.invalidate_caches()
    document: dict[str, Any] = json.loads(message)
    words, strays = tuple(document["words"]), Path(document["strays"])
    return StandbyOrder(words, str(document["cookie"]), strays, handed[0])


def _accept(order: StandbyOrder, line: socket.socket, claim: RunClaim) -> None:
    """Be the process that a cold start would have made. If nobody hears of it, end instead."""
    claim.make(order.strays)
    set_name(run_process.NAME)
    os.environ[COOKIE] = order.cookie
    sys.argv = list(order.words)
    line.send(json.dumps({ACCEPTED: True}).encode())
    line.detach()
    nowhere = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nowhere, 0), (order.log, 1), (order.log, 2)):
        os.dup2(source, target)
    os.close(nowhere)
    os.close(order.log)


if __name__ == "__main__":
    main()
