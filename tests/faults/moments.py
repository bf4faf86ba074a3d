"""A service in this process whose life is a row of moments, at each of which it can be killed or
halted: every tick, transaction, start of a root, and note in a run's directory.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.ports import Exit, Task
from rl_orch.core.queue.scheduler import Capacity
from rl_orch.core.service import RunService
from rl_orch.core.store.runs import Store
from rl_orch.errors import Conflict
from rl_orch.io.processes import pids
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import EventWriter
from rl_orch.records import EventKind
from rl_orch.testing import FakeClock, FakeRunner, a_report
from rl_orch.worker.attempt.lifecycle import refuse_superseded
from tests.waiting import PATIENCE_S

CAPACITY = Capacity(cpus=2, memory_mb=4096)
TICKS = 40
CHECKPOINT = "step_000000000100"
REPORT = a_report([500.0] * 10, checkpoint=CHECKPOINT)
TOO_LATE = 4


class Killed(BaseException):
    """What ends a process at once: nothing catches it."""


@dataclass(slots=True)
class Fate:
    """Counts the moments of one thread; what happens to it before the `at`th is `strike`."""

    at: int
    strike: Callable[[], None]
    thread: threading.Thread = field(default_factory=threading.current_thread)
    count: int = 0

    @property
    def struck(self) -> bool:
        """Whether that moment has come."""
        return self.count >= self.at

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Something is done in here, all of it or nothing."""
        if threading.current_thread() is self.thread:
            self.count += 1
            if self.count == self.at:
                self.strike()
        yield

    @contextmanager
    def rules(self, patch: pytest.MonkeyPatch) -> Iterator[None]:
        """As long as this lasts, what the thread does is a row of moments."""
        with patch.context() as patched:
            for owner, name in ((RunDir, "note_attempt"), (Runner, "start"), (RunService, "tick")):
                patched.setattr(owner, name, self._watched(getattr(owner, name)))
            patched.setattr(Store, "writing", self._transactions(Store.writing))
            yield

    def _watched(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*given: Any, **named: Any) -> Any:
            with self.moment():
                return act(*given, **named)

        return watched

    def _transactions(self, writing: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def watched(*given: Any) -> Iterator[Any]:
            with self.moment(), writing(*given) as connection:
                yield connection

        return watched


class Runner(FakeRunner):
    """A runner whose roots outlive every service. They tell of a checkpoint as soon as they are
    started, and end when `finish` is called: so many times without a word, and then well."""

    def __init__(self, *, crashes: int = 0) -> None:
        super().__init__(self._finish, at_once=False)
        self._crashes = crashes
        self._writers: dict[tuple[RunDir, int], EventWriter] = {}

    def start(self, directory: Path, task: Task) -> str:
        """Start a root; one whose turn is over ends at once, and says nothing."""
        handle = super().start(directory, task)
        if task.checkpoint is None:
            try:
                refuse_superseded(RunDir(directory), task.attempt)
            except Conflict:
                self._exits[handle] = Exit(TOO_LATE)
            else:
                self._begin(RunDir(directory), task)
        return handle

    def _begin(self, directory: RunDir, task: Task) -> None:
        run = directory.path.name
        writer = EventWriter(directory.events, run=run, attempt=task.attempt)
        self._writers[directory, task.attempt] = writer
        directory.write_report(CHECKPOINT, REPORT)
        summary = REPORT.summary.model_dump(mode="json")
        tags = {"summary": summary, "mean_length": REPORT.mean_length}
        writer.emit(EventKind.STATE, "started", step=0, tags={"after": None})
        writer.emit(EventKind.EVAL, "eval/mean_return", REPORT.summary.mean, step=100, tags=tags)
        tags = {"best": True, "evaluated": True, "removed": []}
        writer.emit(EventKind.CHECKPOINT, "saved", CHECKPOINT, step=100, tags=tags)
        writer.flush()

    def _finish(self, directory: RunDir, task: Task) -> int:
        if task.checkpoint is not None:
            directory.write_report("final", REPORT)
            return 0
        if self._crashes > 0:
            self._crashes -= 1
            return -9
        with self._writers.pop((directory, task.attempt)) as writer:
            writer.emit(EventKind.STATE, "ended", "trained", step=100, tags={"reason": "trained"})
        return 0


@dataclass(slots=True)
class World:
    """A home with one run in it, roots, and a clock, for services that come and go."""

    home: Path
    runner: Runner
    clock: FakeClock = field(default_factory=FakeClock)
    services: int = 0

    def service(self, *, doomed: bool = False) -> RunService:
        """Another service; one that is doomed is one that others take for dead."""
        self.services += 1
        dead = f"{pids.host()}/{999_999_000 + self.services}:1/token"
        lease = dead if doomed else pids.lease()
        verbs = Orchestrator(self.home, self.runner, resident=True)
        return RunService(verbs, CAPACITY, "http://there", timer=self.clock, id=lease)

    def live(self, service: RunService, *, ticks: int = TICKS) -> bool:
        """Let time pass, roots do their work, and the service tick; whether the run has ended."""
        for number in range(ticks):
            self.clock.advance(1.0)
            service.beat()
            service.tick()
            if number % 2:  # So that a root is seen at work before it ends.
                self.runner.finish()
            if not service.verbs.store.active():
                return True
        return False

    @property
    def tasks(self) -> list[tuple[int, str]]:
        """What roots were started for: of which attempt, and to do what."""
        words = ("train", "evaluate")
        return [(task.attempt, words[task.checkpoint is not None]) for task in self.runner.started]


@dataclass(slots=True)
class Halted:
    """A service that lives in a thread of its own and is halted before its `at`th moment."""

    world: World
    at: int
    _reached: threading.Event = field(default_factory=threading.Event)
    _go_on: threading.Event = field(default_factory=threading.Event)
    _failure: BaseException | None = None

    def run(self, patch: pytest.MonkeyPatch, meanwhile: Callable[[], None]) -> bool:
        """Halt it, do something meanwhile, let it go on; False if it ended before that moment."""
        service = self.world.service(doomed=True)
        thread = threading.Thread(target=self._live, args=(service,), daemon=True)
        fate = Fate(self.at, self._halt, thread)
        with fate.rules(patch):
            thread.start()
            assert self._reached.wait(PATIENCE_S)
            if fate.struck:
                meanwhile()
            self._go_on.set()
            thread.join(PATIENCE_S)
        assert not thread.is_alive()
        if self._failure is not None:
            raise self._failure
        return fate.struck

    def _halt(self) -> None:
        self._reached.set()
        self._go_on.wait(PATIENCE_S)

    def _live(self, service: RunService) -> None:
        try:
            self.world.live(service)
            self._reached.set()
            for _ in range(3):
                service.tick()
        except BaseException as error:
            self._failure = error
            self._reached.set()
