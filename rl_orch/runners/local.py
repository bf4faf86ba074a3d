"""Training by this package, as child processes of this machine that outlive their starter.

A service keeps standby processes, which have loaded torch and wait to become the run process of an
attempt, and one that waits for a spec to check. Who will start a run as soon as its spec is checked
can have one load meanwhile. Where none is ready, or none is what is needed, a run starts cold.
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

from rl_orch.core.ports import Task
from rl_orch.errors import Problem, Warn, unheard
from rl_orch.io.files import regular
from rl_orch.io.processes import import_path, pids
from rl_orch.io.processes.environment import program_variables
from rl_orch.io.processes.subreaper import DIES_WITHIN_S, END_RUN, ENDS_WITHIN_S
from rl_orch.io.processes.task_worker import TaskEnded, TaskWorker
from rl_orch.io.run.directory import RunDir
from rl_orch.records.tasks import CheckAnswer, DeviceAnswer, DeviceTask
from rl_orch.runners.process_runner import ProcessRunner
from rl_orch.runners.spec_check import check_task, checked, checker, deadly, heed
from rl_orch.spec.engine import assign
from rl_orch.spec.model import Spec
from rl_orch.spec.operations import ResourcesGroup
from rl_orch.spec.runner_traits import BUILT_IN
from rl_orch.worker.warm.loaded import OUTDATED
from rl_orch.worker.warm.standby import ACCEPTED, MESSAGE_BYTES, READY

LOG = logging.getLogger(__name__)
CHECK, DEVICE = "check environment", "check device"
LOOK_EVERY_S = 0.25
REST_S = 2.0
"""How long after a start nothing is prepared: loading torch would take the cores from it."""

PAUSE_S = 30.0
"""How long to wait after a standby that was not prepared: something is amiss, or files changed."""

ANSWERS_WITHIN_S = 2.0
LOADS_WITHIN_S = 30.0


class LocalRunner(ProcessRunner):
    """Trains with this package, in this interpreter, with as many standbys ready as asked for."""

    traits = BUILT_IN["local"]
    trainer = "train"

    def __init__(self, *, standbys: int = 0) -> None:
        super().__init__()
        self._possible = sys.platform == "linux"
        self.standbys = StandbyPool(standbys if self._possible else 0)

    def prestart(self, spec: Spec) -> None:
        """Let a standby get ready for a run that is about to be checked. If that does not come,
        the pool has to be closed."""
        if self._possible:
            self.standbys.prestart(variables(spec.resources.threads))

    def start(self, directory: Path, task: Task) -> str:
        """Let a standby begin the attempt, or start a run process."""
        # Only training is worth one.
        warm = task.checkpoint is None and self.standbys.enabled
        return (self._warm(directory, task) if warm else None) or super().start(directory, task)

    def _warm(self, directory: Path, task: Task) -> str | None:
        """The handle of a standby that has begun the task; None if none could."""
        run = RunDir(directory, task.spec)
        order = {
            "words": [self.trainer, str(directory), str(task.attempt)],
            "cookie": pids.cookie(directory, task.attempt)[pids.COOKIE],
            "strays": str(run.strays),
        }
        wanted = variables(run.spec().resources.threads, task.gpus)
        with regular.appender(run.log) as log:
            standby = self.standbys.acquire(
                json.dumps(order).encode(),
                log.fileno(),
                wanted,
                note=lambda cookie: run.note_standby(task.attempt, cookie),
            )
        return None if standby is None else self._watched(standby.pid, standby.child)

    def check(self, spec: Spec, module_path: Sequence[str] = (), warn: Warn = unheard) -> Spec:
        """Ask a child whether the environment exists and suits the algorithm, and what trains."""
        answer = self._checked(spec, module_path, self.standbys.acquire_check())
        problems = [*answer.problems, *self._device_problems(spec.resources.device)]
        heed(problems, answer.warnings, warn)
        return assign(spec, answer.settled)

    def _checked(
        self, spec: Spec, module_path: Sequence[str], prepared: TaskWorker[CheckAnswer] | None
    ) -> CheckAnswer:
        """The answer of a child that was prepared, or of a new one if that cannot tell any more."""
        task = check_task(spec, module_path)
        try:
            return checked(prepared or checker(CHECK), task, doing="the check of the spec")
        except TaskEnded as error:
            if prepared is not None and error.exit_status == OUTDATED:
                return self._checked(spec, module_path, None)
            return deadly(spec.env.id, error)

    def _device_problems(self, device: str) -> list[Problem]:
        if device == "cpu":
            return []
        doing = "the device of the spec"
        try:
            worker = TaskWorker(DeviceAnswer, (DEVICE,), doing=doing)
            problem = checked(worker, DeviceTask(name=device), doing=doing).problem
        except TaskEnded as error:
            problem = error.last_line
        if problem is None:
            return []
        hint = "Use cpu, or install a torch build for your device (see the README)."
        return [Problem("resources.device", device, problem, hint)]


def variables(threads: int, gpus: tuple[str, ...] | None = None) -> dict[str, str]:
    """The environment of a run process, but for its cookie."""
    whole = program_variables(threads=threads, gpus=gpus)
    return {name: value for name, value in whole.items() if name != pids.COOKIE}


@dataclass(slots=True)
class Standby:
    """A process that prepares itself, its subreaper, our child, and the line to it.

    Its pid is 0 until it is ready.
    """

    child: subprocess.Popen[bytes]
    line: socket.socket
    variables: Mapping[str, str]
    cookie: str
    pid: int = 0

    @classmethod
    def start(cls, variables: Mapping[str, str]) -> "Standby":
        """Start one in a session of its own. It ends when this process does: the line is cut."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        mark = pids.standby_cookie()
        with theirs:
            child = subprocess.Popen(
                import_path.program("standby", str(os.getpid())),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={**variables, **mark},
            )
        return cls(child, ours, variables, mark[pids.COOKIE])

    @property
    def lives(self) -> bool:
        """Whether it has not ended; notes on the way whether it has said that it is ready."""
        self.is_ready()
        return self.child.poll() is None

    def is_ready(self, *, within_s: float = 0.0) -> bool:
        """Whether it lives and is ready, after waiting for that if need be."""
        if not self.pid:
            self.pid = self._received(within_s).get(READY, 0)
        return self.pid > 0 and self.child.poll() is None

    def begin(self, order: bytes, log: int) -> bool:
        """Whether it carries the order out, its output to that file. If not, it is gone."""
        with suppress(OSError):
            socket.send_fds(self.line, [order], [log])
        accepted = ACCEPTED in self._received(ANSWERS_WITHIN_S)
        if not accepted:
            return self.end()
        self.line.close()
        return True

    def end(self) -> bool:
        """End it; whether it had begun what was ordered by then, and was killed at that."""
        self.child.send_signal(END_RUN)
        try:
            self.child.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.child.kill()  # With which the kernel kills what is below.
            self.child.wait()
        accepted = False
        while message := self._received(DIES_WITHIN_S):  # The line is cut when it is gone.
            accepted = accepted or ACCEPTED in message
        self.line.close()
        return accepted

    def _received(self, within_s: float) -> dict[str, int]:
        """The next message within the time; an empty one if there is none to come."""
        self.line.settimeout(within_s)
        try:
            message: dict[str, int] = json.loads(self.line.recv(MESSAGE_BYTES) or b"{}")
        except OSError:
            return {}
        return message


@dataclass(slots=True)
class StandbyPool:
    """Processes that are ready to become run processes; and one, to check a spec.

    Each is replaced once it is acquired or ends.

    They are prepared for runs that need the environment of the last one; a thread looks after them.
    """

    count: int
    timer: Callable[[], float] = time.monotonic
    _variables: Mapping[str, str] = field(init=False)
    _standbys: list[Standby] = field(default_factory=list)
    _check: TaskWorker[CheckAnswer] | None = None
    _patience_s: float = 0.0
    _prepare_at: float = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _closed: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._variables = variables(ResourcesGroup().threads)
        self._prepare_at = self.timer() + REST_S
        if self.count:
            threading.Thread(target=self._look_after, name="standbys", daemon=True).start()

    @property
    def ready(self) -> list[int]:
        """The pids of those that are ready."""
        with self._lock:
            return [standby.pid for standby in self._standbys if standby.is_ready()]

    @property
    def enabled(self) -> bool:
        """Whether an attempt may get one."""
        return self.count > 0 or bool(self._standbys)

    def prestart(self, variables: Mapping[str, str]) -> None:
        """Start one for an attempt that comes soon, and that will wait for it."""
        with self._lock:
            self._variables, self._patience_s = variables, LOADS_WITHIN_S
            if not self._standbys:
                self._standbys.append(Standby.start(variables))

    def acquire(
        self,
        order: bytes,
        log: int,
        variables: Mapping[str, str],
        *,
        note: Callable[[str], None],
    ) -> Standby | None:
        """A standby that carries the order out; None where a cold start is needed.

        Its cookie is noted before, so that it is found whatever happens then.
        """
        with self._lock:
            self._variables, self._prepare_at = variables, self.timer() + REST_S
            for standby in [standby for standby in self._standbys if self._suits(standby)]:
                note(standby.cookie)
                self._standbys.remove(standby)
                if standby.begin(order, log):
                    return standby
            if not self.count:
                self._end_all()  # What was begun for this attempt is of no use to it.
        return None

    def acquire_check(self) -> TaskWorker[CheckAnswer] | None:
        """A process that can check a spec; None where a cold start is needed."""
        with self._lock:
            self._drop_ended_check()
            check, self._check = self._check, None
            self._prepare_at = self.timer() + REST_S
            return check

    def close(self) -> None:
        """End those that wait."""
        self._closed.set()
        with self._lock:
            if self._check is not None:
                self._check.close()
            self._end_all()

    def _end_all(self) -> None:
        while self._standbys:
            self._standbys.pop().end()

    def _suits(self, standby: Standby) -> bool:
        """Whether a cold start would differ from it in nothing but what it has loaded."""
        if standby.variables != self._variables:
            return False
        if not standby.is_ready(within_s=self._patience_s):
            return False
        return _inherited(standby.pid) == _inherited(os.getpid())

    def _look_after(self) -> None:
        while not self._closed.wait(LOOK_EVERY_S):
            with self._lock:
                try:
                    self._look()
                except OSError as error:  # No room for another process, for one.
                    LOG.warning("no standby process was started: %s", error)
                    self._prepare_at = self.timer() + PAUSE_S

    def _look(self) -> None:
        """Let go of those that have ended or that nobody needs; start one, one at a time."""
        for standby in list(self._standbys):
            if standby.lives and standby.variables == self._variables:
                continue
            self._standbys.remove(standby)
            if not standby.pid and not standby.lives:
                code = standby.child.returncode
                LOG.warning("a standby process was not prepared: exit code %s", code)
                self._prepare_at = self.timer() + PAUSE_S
            standby.end()
        self._drop_ended_check()
        preparing = any(not standby.pid for standby in self._standbys)
        if preparing or self.timer() < self._prepare_at:
            return
        if len(self._standbys) < self.count:
            self._standbys.append(Standby.start(self._variables))
        elif self._check is None:
            self._check = checker(CHECK)

    def _drop_ended_check(self) -> None:
        if self._check is not None and not self._check.lives:
            self._check.close()
            self._check = None


def _inherited(pid: int) -> tuple[str, ...] | None:
    """Traits that a process has from its parent, besides its environment; None if it is gone."""
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
