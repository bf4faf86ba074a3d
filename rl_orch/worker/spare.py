"""`python -m rl_orch.worker.spare ROOM`: a process that has loaded what attempts need, and waits
to become the root of one.

It talks with the service over a socket that is its standard input, in JSON. It ends when the
service does, when it is old, or when what it has loaded is no longer what is on the disk. Until
it is given an order it has seen no spec, seeded nothing and computed nothing.
"""

import importlib
import json
import os
import pkgutil
import runpy
import select
import site
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from rl_orch.io.processes import COOKIE

ALL_OF = "rl_orch.rl"
BESIDES = (
    "rl_orch.worker.attempt",
    "rl_orch.worker.beginning",
    "rl_orch.worker.orders",
    "rl_orch.worker.outlet",
    "gymnasium.envs.classic_control",
    "torch.fx.experimental.symbolic_shapes",
)
"""What `worker.train` loads, but not itself: it is run as the main module, as in a cold start.
The last one torch loads when the first network is made, which takes a third of all the time.
"""

READY, TAKEN = {"ready": True}, {"taken": True}
ROOM = 4352
"""How long a cookie, or the words after `-m`, can be: a path of the longest kind and a number."""

MESSAGE_BYTES = 1 << 16
MAX_AGE_S = 3600.0
LOOK_EVERY_S = 30.0
CLOCK_STEP_NS = 1_000_000_000
"""How much earlier than the clock a file system may date a change."""

Stamp = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a process has loaded, and from where.

    `files` are those of all loaded modules, the interpreter, and the site directories with their
    `.pth` files; `places` are where each loaded top-level module is found on the path.
    """

    files: Mapping[str, Stamp | None]
    places: Mapping[str, str | None]

    @classmethod
    def now(cls) -> "Loaded":
        """What this process has loaded."""
        named = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        files = {file for file in named if file is not None and os.path.isabs(file)}
        files |= {sys.executable, *_site_files()}
        names = {name.partition(".")[0] for name in sys.modules} | {"sitecustomize"}
        return cls({file: _stamp(file) for file in files}, _places(names))

    @property
    def is_current(self) -> bool:
        """Whether a process that started now would load the same."""
        if any(_stamp(file) != seen for file, seen in self.files.items()):
            return False
        return set(_site_files()) <= set(self.files) and _places(self.places) == self.places

    def changed_since(self, began_ns: int) -> bool:
        """Whether a file may have changed while it was being loaded."""
        return any(seen is None or seen[1] >= began_ns for seen in self.files.values())


@dataclass(frozen=True, slots=True)
class Order:
    """What a spare is to become: the words after `-m`, its cookie, and where its output goes."""

    words: Sequence[str]
    cookie: str
    log: int


def main() -> None:
    """Load, wait, and become what is ordered."""
    line, began_ns = socket.socket(fileno=0), time.time_ns() - CLOCK_STEP_NS
    name_process(sys.orig_argv, os.environ[COOKIE])  # If that fails, it fails before the work.
    prepare()
    loaded = Loaded.now()
    if loaded.changed_since(began_ns):
        return
    name_process([*sys.orig_argv[:3], "ready"], os.environ[COOKIE])
    line.send(json.dumps(READY).encode())
    order = _ordered(line, loaded)
    if order is not None:
        _become(order, line)
        runpy.run_module(order.words[0], run_name="__main__", alter_sys=True)


def prepare() -> None:
    """Load what attempts need. What cannot be loaded is left to the attempt that needs it."""
    package = importlib.import_module(ALL_OF)
    parts = [part.name for part in pkgutil.walk_packages(package.__path__, f"{ALL_OF}.", _pass)]
    for module in (*parts, *BESIDES):
        with suppress(ImportError):
            importlib.import_module(module)


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


def _ordered(line: socket.socket, loaded: Loaded) -> Order | None:
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
    return Order(tuple(document["words"]), str(document["cookie"]), handed[0])


def _become(order: Order, line: socket.socket) -> None:
    """Be the process that a cold start would have made. If nobody hears of it, end instead."""
    command = [sys.executable, "-m", *order.words]
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


def _pass(_name: str) -> None:
    """A package that cannot be loaded is passed over."""


def _site_files() -> list[str]:
    """Where packages are installed, and the files there that add to the path."""
    known = [*site.getsitepackages(), site.getusersitepackages()]
    folders = [folder for folder in known if os.path.isdir(folder)]
    return folders + [str(file) for folder in folders for file in Path(folder).glob("*.pth")]


def _stamp(path: str) -> Stamp | None:
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_ctime_ns, seen.st_size, seen.st_ino


def _places(names: Mapping[str, str | None] | set[str]) -> dict[str, str | None]:
    """Where each top-level module is found on the path, by who looks for it now."""
    importlib.invalidate_caches()
    found = {name: PathFinder.find_spec(name) for name in names}
    return {name: None if spec is None else spec.origin for name, spec in found.items()}


if __name__ == "__main__":
    main()
