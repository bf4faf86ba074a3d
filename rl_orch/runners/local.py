"""Training by this package, as child processes of this machine that outlive their starter.

A service keeps spares: processes that have loaded torch and wait to become the root of an attempt,
and one that waits for a spec to check. Who will start a run as soon as its spec is checked can have
one spare load meanwhile. Where none is ready, or none is what is needed, it starts cold.
"""

import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rl_orch.core.ports import Exit, Task
from rl_orch.errors import BadInput, Problem, SpecInvalid
from rl_orch.io.files import regular
from rl_orch.io.processes import import_path, pids
from rl_orch.io.processes.environment import program_variables
from rl_orch.io.processes.one_shot import OneShotWorker, answer_in, check_question, problems_in
from rl_orch.io.run.directory import RunDir
from rl_orch.runners.processes import ProcessRunner
from rl_orch.spec.engine import assign
from rl_orch.spec.model import Spec
from rl_orch.spec.operations import ResourcesGroup
from rl_orch.worker.warm.loaded import OUTDATED
from rl_orch.worker.warm.standby import MESSAGE_BYTES, READY, ROOM, TAKEN

LOG = logging.getLogger(__name__)
CHECK, DEVICE = ("check environment",), ("check device",)
CHECK_TIMEOUT_S = 120.0
LOOK_EVERY_S = 0.25
REST_S = 2.0
"""How long after a start nothing is prepared: loading torch would take the cores from it."""

PAUSE_S = 30.0
"""How long to wait after a spare that was not prepared: something is amiss, or files changed."""

ANSWERS_WITHIN_S = 2.0
LOADS_WITHIN_S = 30.0


class LocalRunner(ProcessRunner):
    """Trains with this package, in this interpreter, with as many spares ready as asked for."""

    trainer = "train"

    def __init__(self, *, spares: int = 0) -> None:
        super().__init__()
        self._possible = sys.platform == "linux"
        self.spares = StandbyPool(spares if self._possible else 0)
        self._warm: dict[str, subprocess.Popen[bytes]] = {}

    def prestart(self, spec: Spec) -> None:
        """Let a spare get ready for a run that is about to be checked and started; who expects one
        closes the spares if it does not come."""
        if self._possible:
            self.spares.begin(variables(spec.resources.threads))

    def start(self, directory: Path, task: Task) -> str:
        """Let a spare begin the attempt, or start a worker in a session of its own."""
        child = self._taken(directory, task) if self.spares.expected else None
        if child is None:
            return super().start(directory, task)
        handle = pids.identity(child.pid) or f"{child.pid}:gone"
        self._warm[handle] = child
        return handle

    def poll(self, handle: str) -> Exit | None:
        """None while the worker lives. Only its parent can see the exit code."""
        child = self._warm.get(handle)
        if child is None:
            return super().poll(handle)
        code = child.poll()
        return None if code is None else Exit(code)

    def _taken(self, directory: Path, task: Task) -> subprocess.Popen[bytes] | None:
        """A spare that has become the root of the task; only training is worth one."""
        if task.checkpoint is not None:
            return None
        run = RunDir(directory, task.spec)
        order = {
            "words": [self.trainer, str(directory), str(task.attempt)],
            "cookie": pids.cookie(directory, task.attempt)[pids.COOKIE],
        }
        wanted = variables(run.spec().resources.threads, task.gpus)
        with regular.appender(run.log) as log:
            return self.spares.take(json.dumps(order).encode(), log.fileno(), wanted)

    def check(self, spec: Spec, module_path: Sequence[str] = ()) -> Spec:
        """Ask a child whether the environment exists and suits the algorithm, and what trains."""
        question, prepared = check_question(spec, module_path), self.spares.take_check()
        reply = None if prepared is None else _answer(prepared, "check", question)
        if reply is None or reply.returncode == OUTDATED:
            reply = _answer(OneShotWorker(CHECK), "check", question)
        found = problems_in(reply, spec.env.id)
        found += self._device_problems(spec.resources.device)
        if found:
            raise SpecInvalid(found)
        return assign(spec, answer_in(reply)["settled"])

    def _device_problems(self, device: str) -> list[Problem]:
        if device == "cpu":
            return []
        reply = _answer(OneShotWorker((*DEVICE, device)), "device", "")
        if reply.returncode == 0:
            return []
        hint = "Use cpu, or install a torch build for your device (see the README)."
        return [Problem("resources.device", device, reply.stderr.strip(), hint)]


def _answer(listener: OneShotWorker, name: str, question: str) -> subprocess.CompletedProcess[str]:
    try:
        return listener.ask(question, timeout_s=CHECK_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise BadInput(
            f"the {name} of the spec took longer than {CHECK_TIMEOUT_S:.0f} s",
            hint="Make the environment by hand to see what it waits for.",
        ) from None


def variables(threads: int, gpus: tuple[str, ...] | None = None) -> dict[str, str]:
    """The environment of a root, but for its cookie."""
    known = program_variables(threads=threads, gpus=gpus)
    return {name: value for name, value in known.items() if name != pids.COOKIE}


@dataclass(slots=True)
class Standby:
    """A child that prepares itself, and the line to it."""

    child: subprocess.Popen[bytes]
    line: socket.socket
    variables: Mapping[str, str]
    ready: bool = False

    @classmethod
    def start(cls, variables: Mapping[str, str]) -> "Standby":
        """Start one in a session of its own. It ends when this process does: the line is cut."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            child = subprocess.Popen(
                import_path.program("standby", str(os.getpid()), " " * ROOM),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={**variables, pids.COOKIE: " " * ROOM},
            )
        return cls(child, ours, variables)

    @property
    def lives(self) -> bool:
        """Whether it has not ended; notes on the way whether it has said that it is ready."""
        self.is_ready()
        return self.child.poll() is None

    def is_ready(self, *, within_s: float = 0.0) -> bool:
        """Whether it lives and has said that it is ready, after waiting for that if need be."""
        self.ready = self.ready or self._hears(READY, within_s=within_s)
        return self.ready and self.child.poll() is None

    def becomes(self, order: bytes, log: int) -> bool:
        """Whether it has become what was ordered, its output to that file. If not, it is gone."""
        with suppress(OSError):
            socket.send_fds(self.line, [order], [log])
        taken = self._hears(TAKEN, within_s=ANSWERS_WITHIN_S)
        if not taken:
            self.child.kill()
            self.child.wait()
            taken = self._hears(TAKEN, within_s=0.0)  # Then the attempt has begun, and was killed.
        self.line.close()
        return taken

    def end(self) -> None:
        """End it."""
        self.line.close()
        self.child.kill()
        self.child.wait()

    def _hears(self, message: Mapping[str, bool], *, within_s: float) -> bool:
        """Whether it says that within the time."""
        self.line.settimeout(within_s)
        try:
            return self.line.recv(MESSAGE_BYTES) == json.dumps(message).encode()
        except OSError:
            return False


@dataclass(slots=True)
class StandbyPool:
    """A few processes that are ready to become roots, each replaced once it is taken or ends; and
    one that is ready to check a spec.

    They are prepared for runs that need the environment of the last one; a thread looks after them.
    """

    count: int
    timer: Callable[[], float] = time.monotonic
    _wanted: Mapping[str, str] = field(init=False)
    _spares: list[Standby] = field(default_factory=list)
    _check: OneShotWorker | None = None
    _patience_s: float = 0.0
    _prepare_at: float = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _closed: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._wanted = variables(ResourcesGroup().threads)
        self._prepare_at = self.timer() + REST_S
        if self.count:
            threading.Thread(target=self._look_after, name="spares", daemon=True).start()

    @property
    def ready(self) -> list[int]:
        """The pids of those that are ready."""
        with self._lock:
            return [spare.child.pid for spare in self._spares if spare.lives and spare.ready]

    @property
    def expected(self) -> bool:
        """Whether an attempt may find one."""
        return self.count > 0 or bool(self._spares)

    def begin(self, variables: Mapping[str, str]) -> None:
        """Start one for an attempt that comes soon, and that will wait for it."""
        with self._lock:
            self._wanted, self._patience_s = variables, LOADS_WITHIN_S
            if not self._spares:
                self._spares.append(Standby.start(variables))

    def take(
        self, order: bytes, log: int, variables: Mapping[str, str]
    ) -> subprocess.Popen[bytes] | None:
        """A spare that has become what was ordered; None where a cold start is needed."""
        with self._lock:
            self._wanted, self._prepare_at = variables, self.timer() + REST_S
            for spare in [spare for spare in self._spares if self._suits(spare)]:
                self._spares.remove(spare)
                if spare.becomes(order, log):
                    return spare.child
            if not self.count:
                self._end_all()  # What was begun for this attempt is of no use to it.
        return None

    def take_check(self) -> OneShotWorker | None:
        """A process that can check a spec; None where a cold start is needed."""
        with self._lock:
            self._let_go_of_check()
            taken, self._check = self._check, None
            self._prepare_at = self.timer() + REST_S
            return taken

    def close(self) -> None:
        """End those that wait."""
        self._closed.set()
        with self._lock:
            if self._check is not None:
                self._check.end()
            self._end_all()

    def _end_all(self) -> None:
        while self._spares:
            self._spares.pop().end()

    def _suits(self, spare: Standby) -> bool:
        """Whether a cold start would differ from it in nothing but what it has loaded."""
        if spare.variables != self._wanted or not spare.is_ready(within_s=self._patience_s):
            return False
        return _inherited(spare.child.pid) == _inherited(os.getpid())

    def _look_after(self) -> None:
        while not self._closed.wait(LOOK_EVERY_S):
            with self._lock:
                try:
                    self._look()
                except OSError as error:  # No room for another process, for one.
                    LOG.warning("no spare was started: %s", error)
                    self._prepare_at = self.timer() + PAUSE_S

    def _look(self) -> None:
        """Let go of those that have ended or that nobody needs; start one, one at a time."""
        for spare in list(self._spares):
            if spare.lives and spare.variables == self._wanted:
                continue
            self._spares.remove(spare)
            if not spare.ready and not spare.lives:
                LOG.warning("a spare was not prepared: exit code %s", spare.child.returncode)
                self._prepare_at = self.timer() + PAUSE_S
            spare.end()
        self._let_go_of_check()
        preparing = any(not spare.ready for spare in self._spares)
        if preparing or self.timer() < self._prepare_at:
            return
        if len(self._spares) < self.count:
            self._spares.append(Standby.start(self._wanted))
        elif self._check is None:
            self._check = OneShotWorker(CHECK)

    def _let_go_of_check(self) -> None:
        """Let go of a process that was to check a spec, if it has ended."""
        if self._check is not None and not self._check.lives:
            self._check.end()
            self._check = None


def _inherited(pid: int) -> tuple[str, ...] | None:
    """What a process has from its parent, besides its environment; None if it is gone."""
    about = Path(f"/proc/{pid}")
    try:
        status = [
            line
            for line in (about / "status").read_text().splitlines()
            if line.startswith(("Uid", "Gid", "Groups", "Umask", "Cpus_allowed:", "Mems_allowed:"))
        ]
        limits, group = (about / "limits").read_text(), (about / "cgroup").read_text()
        return (os.readlink(about / "cwd"), limits, group, *status)
    except OSError:
        return None
