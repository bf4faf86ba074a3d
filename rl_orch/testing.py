"""For tests of the orchestrator and of plugins: a contract suite per protocol, and small fakes.

A plugin's test subclasses the suite of its protocol and says how one is made; pytest does the rest.
"""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rl_orch.core.ports import Exit, Runner, Sink, Task
from rl_orch.io.events import EventWriter
from rl_orch.io.rundir import RunDir
from rl_orch.records import EvalReport, Event, EventKind
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from rl_orch.stats import summarize

Script = Callable[[RunDir, Task], int]
"""What a fake root does in its directory; returns the exit code."""


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
            report = json.loads(a_report(returns).model_dump_json())
            tags = {"best": True, "evaluated": True, "removed": []}
            writer.emit(EventKind.EVAL, "eval/mean_return", step=100, tags={"report": report})
            writer.emit(EventKind.CHECKPOINT, "saved", checkpoint, step=100, tags=tags)
            writer.emit(EventKind.STATE, "ended", "trained", step=100, tags={"reason": "trained"})
        return 0

    return script


class RunnerContract(ABC):
    """What every runner does. `make_runner` and `make_directory` say what it is given."""

    @abstractmethod
    def make_runner(self) -> Runner:
        """The runner under test."""

    def make_directory(self, folder: Path) -> Path:
        """A run directory whose training ends well within seconds."""
        directory = RunDir(folder / "run")
        spec = a_spec(
            "env.num_envs=2",
            "rollout.steps=8",
            "train.batch_size=16",
            "train.update_epochs=1",
            "train.total_timesteps=64",
            "eval.episodes=1",
            "eval.final_episodes=2",
        )
        directory.create(spec, {"run_id": "run"})
        return directory.path

    def wait(self, runner: Runner, handle: str, *, timeout_s: float = 60.0) -> Exit:
        """How the root ends."""
        deadline = time.monotonic() + timeout_s
        while (ended := runner.poll(handle)) is None:
            assert time.monotonic() < deadline, f"{handle} still runs after {timeout_s} s"
            time.sleep(0.02)
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
        last = json.loads(RunDir(directory).events.read_text().splitlines()[-1])
        assert (last["kind"], last["key"], last["value"]) == ("state", "ended", "trained")

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


class SinkContract(ABC):
    """What every sink does."""

    @abstractmethod
    def make_sink(self, folder: Path) -> Sink:
        """The sink under test, keeping what it keeps in the folder."""

    def test_every_kind_of_event_is_taken(self, tmp_path: Path) -> None:
        """A sink may ignore an event, but never refuses one."""
        sink = self.make_sink(tmp_path)
        for number, kind in enumerate(EventKind, start=1):
            for value in (1.5, "text", None, {"nested": [1]}):
                sink.write(
                    Event(
                        seq=number,
                        attempt=1,
                        ts=1.0,
                        run="r",
                        step=1,
                        kind=kind,
                        key="k",
                        value=value,
                    )
                )
        sink.flush()
        sink.close()

    def test_flushing_and_closing_an_empty_sink_is_fine(self, tmp_path: Path) -> None:
        """A run may end before anything has happened."""
        sink = self.make_sink(tmp_path)
        sink.flush()
        sink.close()
