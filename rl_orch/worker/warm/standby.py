"""`python -m rl_orch.worker.warm.standby PARENT ROOM`: a process that has loaded what attempts
need, and waits to become the root of one.

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
from rl_orch.io.processes import import_path
from rl_orch.io.processes.pids import COOKIE
from rl_orch.io.processes.signals import hear_signals
from rl_orch.io.processes.subreaper import end_with_parent
from rl_orch.worker.warm.loaded import LoadedModules

READY, TAKEN = {"ready": True}, {"taken": True}
ROOM = 4352
"""How long a cookie, or the words after `-m`, can be: a path of the longest kind and a number."""

MESSAGE_BYTES = 1 << 16
MAX_AGE_S = 3600.0
LOOK_EVERY_S = 30.0
CLOCK_STEP_NS = 1_000_000_000
"""How much earlier than the clock a file system may date a change."""


@dataclass(frozen=True, slots=True)
class StandbyOrder:
    """What a spare is to become: the words after `-m`, its cookie, and where its output goes."""

    words: Sequence[str]
    cookie: str
    log: int


def main() -> None:
    """Load, wait, and become what is ordered."""
    hear_signals()
    end_with_parent(int(sys.argv[1]))
    line, began_ns = socket.socket(fileno=0), time.time_ns() - CLOCK_STEP_NS
    name_process(sys.orig_argv, os.environ[COOKIE])  # If that fails, it fails before the work.
    prepare()
    loaded = LoadedModules.now()
    if loaded.changed_since(began_ns):
        return
    name_process([*sys.orig_argv[:4], "ready"], os.environ[COOKIE])
    line.send(json.dumps(READY).encode())
    order = _ordered(line, loaded)
    if order is not None:
        _become(order, line)
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


def name_process(command: Sequence[str], cookie: str) -> None:
    """Let the process be seen with that command line and that cookie, as if started with them.

    Others see both in memory that the kernel filled when the program was started; what does not
    fit there is refused.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    words_at, words_end, variables_at = (int(field) for field in fields[45:48])
    block = b"\0" + Path("/proc/self/environ").read_bytes()
    begin = block.index(b"\0" + COOKIE.encode() + b"=")
    room = block.index(b"\0", begin + 1) - begin - 1
    parts = (
        (words_at, words_end - words_at - 1, b"\0".join(map(os.fsencode, command))),
        (variables_at + begin, room, os.fsencode(f"{COOKIE}={cookie}")),
    )
    if any(len(text) > size for _, size, text in parts):
        raise ValueError(f"the command line or the cookie is longer than {ROOM} bytes")
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        for at, size, text in parts:
            memory.seek(at)
            memory.write(text.ljust(size, b"\0"))


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
    return StandbyOrder(tuple(document["words"]), str(document["cookie"]), handed[0])


def _become(order: StandbyOrder, line: socket.socket) -> None:
    """Be the process that a cold start would have made. If nobody hears of it, end instead."""
    command = import_path.program(*order.words)
    end_with_parent(None)
    name_process(command, order.cookie)
    os.environ[COOKIE] = order.cookie
    sys.argv, sys.orig_argv = list(order.words), command
    line.send(json.dumps(TAKEN).encode())
    line.detach()
    nowhere = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nowhere, 0), (order.log, 1), (order.log, 2)):
        os.dup2(source, target)
    os.close(nowhere)
    os.close(order.log)


if __name__ == "__main__":
    main()
