"""For tests of the orchestrator and of plugins: a contract suite per protocol, and small fakes.

A plugin's test subclasses the suite of its protocol and says how one is made; pytest does the rest.
"""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_orch.core.ports import Exit, Runner, Sink, Task
from rl_orch.io.events import EventWriter
from rl_orch.io.rundir import RunDir
from rl_orch.records import EvalReport, Event, EventKind
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from rl_orch.stats import summarize

Script = Callable[[RunDir, Task], int]
"""What a fake root does in its directory; returns the exit code."""

LONG = ("train.total_timesteps=1e9", "eval.every=1e9")
"""Overrides of a training that somebody else has to end."""


class FakeClock:
    """A clock that moves when it is told to."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """The time."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


@dataclass(slots=True)
class FakeRunner:
    """A runner whose roots are functions. They end when `finish` is called, or at once."""

    script: Script
    at_once: bool = True
    started: list[Task] = field(default_factory=list)
    stopped: list[bool] = field(default_factory=list)
    _roots: dict[str, tuple[RunDir, Task]] = field(default_factory=dict)
    _exits: dict[str, Exit] = field(default_factory=dict)

    def check(self, spec: Spec) -> None:
        """Every spec will do."""

    def start(self, directory: Path, task: Task) -> str:
        """Note the task; its handle is its number."""
        handle = f"fake:{len(self.started)}"
        self.started.append(task)
        self._roots[handle] = (RunDir(directory), task)
        if self.at_once:
            self.finish()
        return handle

    def finish(self, code: int | None = None) -> None:
        """Let every root run its script and end; a given code ends it without."""
        for handle, (directory, task) in self._roots.items():
            if handle not in self._exits:
                ended = self.script(directory, task) if code is None else code
                self._exits[handle] = Exit(ended)

    def poll(self, handle: str) -> Exit | None:
        """How the root ended, once it has."""
        return self._exits.get(handle, None if handle in self._roots else Exit(None))

    def stop(self, handle: str, *, force: bool) -> None:
        """Note that it was asked; a forced root is gone."""
        self.stopped.append(force)
        if force:
            self._exits.setdefault(handle, Exit(-9))

    def adopt(self, directory: Path) -> str | None:
        """The root that was started in the directory and has not ended."""
        for handle, (run, _) in self._roots.items():
            if run.path == directory and handle not in self._exits:
                return handle
        return None


def a_spec(*overrides: str, env_id: str = "CartPole-v1") -> Spec:
    """A small valid spec."""
    return resolve({"env": {"id": env_id}}, overrides=overrides)


def a_report(
    returns: Sequence[float], *, step: int = 100, checkpoint: str | None = None
) -> EvalReport:
    """A report with the given returns, each from an episode of ten steps."""
    return EvalReport(
        env_id="CartPole-v1",
        step=step,
        checkpoint=checkpoint,
        seed=0,
        deterministic=True,
        returns=tuple(returns),
        lengths=(10,) * len(returns),
        summary=summarize(returns),
    )


def trains_to(returns: Sequence[float], *, checkpoint: str = "step_000000000100") -> Script:
    """A script that tells of a training to its end and evaluates to the given returns."""

    def script(directory: RunDir, task: Task) -> int:
        if task.checkpoint is not None:
            directory.write_report("final", a_report(returns, checkpoint=task.checkpoint))
            return 0
        with EventWriter(directory.events, run=directory.path.name, attempt=task.attempt) as writer:
            writer.emit(EventKind.STATE, "started", step=0, tags={"after": None})
            report = a_report(returns, checkpoint=checkpoint)
            directory.write_report(checkpoint, report)
            summary = report.summary.model_dump(mode="json")
            tags = {"summary": summary, "mean_length": report.mean_length}
            writer.emit(
                EventKind.EVAL, "eval/mean_return", report.summary.mean, step=100, tags=tags
            )
            tags = {"best": True, "evaluated": True, "removed": []}
            writer.emit(EventKind.CHECKPOINT, "saved", checkpoint, step=100, tags=tags)
            writer.emit(EventKind.STATE, "ended", "trained", step=100, tags={"reason": "trained"})
        return 0

    return script


class RunnerContract(ABC):
    """What every runner does. `make_runner` says what is tested, `make_directory` on what."""

    @abstractmethod
    def make_runner(self) -> Runner:
        """The runner under test; each call makes another instance."""

    def make_directory(self, folder: Path, *overrides: str) -> Path:
        """A run directory whose training ends well within seconds, unless overridden."""
        directory = RunDir(folder / "run")
        spec = a_spec(
            "env.num_envs=2",
            "rollout.steps=8",
            "train.batch_size=16",
            "train.update_epochs=1",
            "train.total_timesteps=64",
            "eval.episodes=1",
            "eval.final_episodes=2",
            *overrides,
        )
        directory.create(spec, {"run_id": "run"})
        return directory.path

    def wait_for(self, condition: Callable[[], bool], *, timeout_s: float = 60.0) -> None:
        """Return once the condition holds."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, f"it did not happen within {timeout_s} s"
            time.sleep(0.02)

    def wait(self, runner: Runner, handle: str, *, timeout_s: float = 60.0) -> Exit:
        """How the root ends."""
        self.wait_for(lambda: runner.poll(handle) is not None, timeout_s=timeout_s)
        ended = runner.poll(handle)
        assert ended is not None
        return ended

    def test_a_good_spec_passes_the_check(self) -> None:
        """`check` says nothing where there is nothing to say."""
        self.make_runner().check(a_spec())

    def test_training_ends_with_exit_code_zero_and_says_so_in_its_events(
        self, tmp_path: Path
    ) -> None:
        """The last event of an attempt is how it ended."""
        runner, directory = self.make_runner(), self.make_directory(tmp_path)
        handle = runner.start(directory, Task(attempt=1))
        assert self.wait(runner, handle) == Exit(0)
        assert _last_words(directory) == ("state", "ended", "trained")

    def test_an_evaluation_leaves_a_report_on_its_checkpoint(self, tmp_path: Path) -> None:
        """The report names the checkpoint that was judged."""
        runner, directory = self.make_runner(), self.make_directory(tmp_path)
        self.wait(runner, runner.start(directory, Task(attempt=1)))
        saved = [
            json.loads(line)
            for line in RunDir(directory).events.read_text().splitlines()
            if json.loads(line)["kind"] == "checkpoint"
        ]
        name = saved[-1]["value"]
        handle = runner.start(directory, Task(attempt=1, checkpoint=name))
        assert self.wait(runner, handle) == Exit(0)
        report = RunDir(directory).read_report("final")
        assert report is not None
        assert report.checkpoint == name

    def test_a_handle_of_nobody_has_ended_with_an_unknown_code(self) -> None:
        """A root that another process started, and that is gone, is gone."""
        assert self.make_runner().poll("999999999:0") == Exit(None)

    def test_stopping_what_has_ended_does_nothing(self, tmp_path: Path) -> None:
        """A late stop is no error."""
        runner, directory = self.make_runner(), self.make_directory(tmp_path)
        handle = runner.start(directory, Task(attempt=1))
        ended = self.wait(runner, handle)
        runner.stop(handle, force=False)
        assert runner.poll(handle) == ended

    def test_another_instance_sees_that_a_root_has_ended(self, tmp_path: Path) -> None:
        """It may not know the code."""
        runner, directory = self.make_runner(), self.make_directory(tmp_path)
        handle = runner.start(directory, Task(attempt=1))
        self.wait(runner, handle)
        assert self.make_runner().poll(handle) in (Exit(0), Exit(None))

    def test_there_is_nobody_to_adopt_where_nothing_lives(self, tmp_path: Path) -> None:
        """Neither before a root starts nor after it has ended."""
        runner, directory = self.make_runner(), self.make_directory(tmp_path)
        assert runner.adopt(directory) is None
        self.wait(runner, runner.start(directory, Task(attempt=1)))
        assert runner.adopt(directory) is None


class BackgroundRunnerContract(RunnerContract):
    """What every runner does, and what those do whose roots live on when `start` has returned."""

    @contextmanager
    def living_root(self, folder: Path) -> Iterator[tuple[Runner, Path, str]]:
        """A runner, a directory and the handle of a root that trains there for hours."""
        runner = self.make_runner()
        directory = self.make_directory(folder, *LONG)
        handle = runner.start(directory, Task(attempt=1))
        try:
            self.wait_for(lambda: b'"kind":"metric"' in RunDir(directory).events.read_bytes())
            yield runner, directory, handle
        finally:
            runner.stop(handle, force=True)
            self.wait(runner, handle)

    def test_a_root_lives_when_start_has_returned(self, tmp_path: Path) -> None:
        """`start` does not wait for it."""
        with self.living_root(tmp_path) as (runner, _, handle):
            assert runner.poll(handle) is None

    def test_a_living_root_that_is_asked_to_stop_ends_by_itself(self, tmp_path: Path) -> None:
        """It saves, says that it was stopped, and exits as it should."""
        with self.living_root(tmp_path) as (runner, directory, handle):
            runner.stop(handle, force=False)
            assert self.wait(runner, handle) == Exit(0)
            assert _last_words(directory) == ("state", "ended", "stopped")

    def test_a_living_root_that_is_forced_to_stop_is_gone(self, tmp_path: Path) -> None:
        """It has no time for last words."""
        with self.living_root(tmp_path) as (runner, directory, handle):
            runner.stop(handle, force=True)
            assert self.wait(runner, handle) != Exit(0)
            assert _last_words(directory)[1] != "ended"

    def test_another_instance_sees_a_living_root_and_can_stop_it(self, tmp_path: Path) -> None:
        """A handle outlives the process that got it."""
        with self.living_root(tmp_path) as (runner, directory, handle):
            other = self.make_runner()
            assert other.poll(handle) is None
            other.stop(handle, force=False)
            self.wait(runner, handle)
            assert _last_words(directory) == ("state", "ended", "stopped")
            assert other.poll(handle) is not None

    def test_a_living_root_is_found_by_its_directory(self, tmp_path: Path) -> None:
        """Whoever started it may have died before the handle was noted."""
        with self.living_root(tmp_path) as (_, directory, handle):
            assert self.make_runner().adopt(directory) == handle


def _last_words(directory: Path) -> tuple[str, str, Any]:
    """Kind, key and value of the newest event."""
    last = json.loads(RunDir(directory).events.read_text().splitlines()[-1])
    return last["kind"], last["key"], last["value"]


class SinkContract(ABC):
    """What every sink does."""

    @abstractmethod
    def make_sink(self, folder: Path) -> Sink:
        """The sink under test, keeping what it keeps in the folder."""

    @abstractmethod
    def read_back(self, folder: Path) -> dict[str, list[tuple[int, float]]]:
        """The numbers that the sink keeps in the folder: by key, (step, value), oldest first."""

    def test_numbers_come_back_once_they_are_flushed(self, tmp_path: Path) -> None:
        """Every metric that is a number, in order; binary fractions, so that none is rounded."""
        sink = self.make_sink(tmp_path)
        told = {"losses/value_loss": [(8, 1.5), (16, 0.25)], "charts/learning_rate": [(8, 2.0)]}
        for key, points in told.items():
            for step, value in points:
                sink.write(_event(EventKind.METRIC, key, value, step=step))
        sink.write(_event(EventKind.METRIC, "losses/value_loss", "text", step=24))
        sink.flush()
        kept = self.read_back(tmp_path)
        assert {key: kept.get(key) for key in told} == told
        sink.close()

    def test_every_kind_of_event_is_taken(self, tmp_path: Path) -> None:
        """A sink may ignore an event, but never refuses one."""
        sink = self.make_sink(tmp_path)
        for kind in EventKind:
            for value in (1.5, "text", None, {"nested": [1]}):
                sink.write(_event(kind, "k", value, step=1))
        sink.flush()
        sink.close()

    def test_flushing_and_closing_an_empty_sink_is_fine(self, tmp_path: Path) -> None:
        """A run may end before anything has happened."""
        sink = self.make_sink(tmp_path)
        sink.flush()
        sink.close()


def _event(kind: EventKind, key: str, value: Any, *, step: int) -> Event:
    return Event(seq=1, attempt=1, ts=1.0, run="r", step=step, kind=kind, key=key, value=value)
