"""A contract suite of every runner."""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rl_orch.core.ports import Exit, Runner, Task
from rl_orch.io.run.directory import RunDir
from rl_orch.spec.runner_traits import RunnerTraits
from rl_orch.testing.fakes import a_spec

LONG = ("train.total_timesteps=1e9", "eval.every=1e9")
"""Overrides of a training that somebody else has to end."""

PATIENCE_S = 300.0
"""How long to wait for what must happen; no verdict on speed."""


class RunnerContract(ABC):
    """The contract of every runner. `make_runner` says what is tested, `make_directory` on what."""

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

    def wait_for(self, condition: Callable[[], bool], *, timeout_s: float = PATIENCE_S) -> None:
        """Return once the condition holds."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, f"it did not happen within {timeout_s} s"
            time.sleep(0.02)

    def wait(self, runner: Runner, handle: str, *, timeout_s: float = PATIENCE_S) -> Exit:
        """The way the run process ends."""
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

    def test_its_traits_are_known_before_it_is_made(self) -> None:
        """The class declares what every instance says."""
        runner = self.make_runner()
        assert isinstance(runner.traits, RunnerTraits)
        assert getattr(type(runner), "traits", None) == runner.traits

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
        """A run process that another process started, and that is gone, is gone."""
        assert self.make_runner().poll("999999999:0") == Exit(None)

    def test_stopping_what_has_ended_does_nothing(self, tmp_path: Path) -> None:
        """A late stop is no error."""
        runner, directory = self.make_runner(), self.make_directory(tmp_path)
        handle = runner.start(directory, Task(attempt=1))
        ended = self.wait(runner, handle)
        runner.stop(handle, force=False)
        assert runner.poll(handle) == ended

    def test_another_instance_sees_that_a_run_process_has_ended(self, tmp_path: Path) -> None:
        """It may not know the code."""
        runner, directory = self.make_runner(), self.make_directory(tmp_path)
        handle = runner.start(directory, Task(attempt=1))
        self.wait(runner, handle)
        assert self.make_runner().poll(handle) in (Exit(0), Exit(None))

    def test_there_is_nobody_to_adopt_where_nothing_lives(self, tmp_path: Path) -> None:
        """Neither before a run process starts nor after it has ended."""
        runner, directory = self.make_runner(), self.make_directory(tmp_path)
        assert runner.adopt(directory) is None
        self.wait(runner, runner.start(directory, Task(attempt=1)))
        assert runner.adopt(directory) is None


class BackgroundRunnerContract(RunnerContract):
    """The contract of every runner, and of those whose processes outlive `start`."""

    @contextmanager
    def living_process(self, folder: Path) -> Iterator[tuple[Runner, Path, str]]:
        """A runner, a directory and the handle of a run process that trains there for hours."""
        runner = self.make_runner()
        directory = self.make_directory(folder, *LONG)
        handle = runner.start(directory, Task(attempt=1))
        try:
            self.wait_for(lambda: b'"kind":"metric"' in RunDir(directory).events.read_bytes())
            yield runner, directory, handle
        finally:
            runner.stop(handle, force=True)
            self.wait(runner, handle)

    def test_a_run_process_lives_when_start_has_returned(self, tmp_path: Path) -> None:
        """`start` does not wait for it."""
        with self.living_process(tmp_path) as (runner, _, handle):
            assert runner.poll(handle) is None

    def test_a_living_process_that_is_asked_to_stop_ends_by_itself(self, tmp_path: Path) -> None:
        """It saves, says that it was stopped, and exits as it should."""
        with self.living_process(tmp_path) as (runner, directory, handle):
            runner.stop(handle, force=False)
            assert self.wait(runner, handle) == Exit(0)
            assert _last_words(directory) == ("state", "ended", "stopped")

    def test_a_further_attempt_goes_on_where_the_traits_say_so(self, tmp_path: Path) -> None:
        """From a checkpoint of the one that was stopped; else from the beginning."""
        with self.living_process(tmp_path) as (runner, directory, handle):
            runner.stop(handle, force=False)
            self.wait(runner, handle)
            again = runner.start(directory, Task(attempt=2))
            self.wait_for(lambda: len(_starts(directory)) == 2)
            runner.stop(again, force=True)
            self.wait(runner, again)
            goes_on = RunDir(directory).spec().runner.goes_on
            assert (_starts(directory)[-1]["after"] is not None) == goes_on

    def test_a_living_process_that_is_forced_to_stop_is_gone(self, tmp_path: Path) -> None:
        """It has no time for last words."""
        with self.living_process(tmp_path) as (runner, directory, handle):
            runner.stop(handle, force=True)
            assert self.wait(runner, handle) != Exit(0)
            assert _last_words(directory)[1] != "ended"

    def test_another_instance_sees_a_living_process_and_can_stop_it(self, tmp_path: Path) -> None:
        """A handle outlives the process that got it."""
        with self.living_process(tmp_path) as (runner, directory, handle):
            other = self.make_runner()
            assert other.poll(handle) is None
            other.stop(handle, force=False)
            self.wait(runner, handle)
            assert _last_words(directory) == ("state", "ended", "stopped")
            assert other.poll(handle) is not None

    def test_a_living_process_is_found_by_its_directory(self, tmp_path: Path) -> None:
        """The process that started it may have died before the handle was noted."""
        with self.living_process(tmp_path) as (_, directory, handle):
            assert self.make_runner().adopt(directory) == handle


def _starts(directory: Path) -> list[dict[str, Any]]:
    """The tags of the events by which attempts started."""
    whole = RunDir(directory).events.read_text().split("\n")[:-1]
    return [event["tags"] for event in map(json.loads, whole) if event["key"] == "started"]


def _last_words(directory: Path) -> tuple[str, str, Any]:
    """Kind, key and value of the newest event."""
    last = json.loads(RunDir(directory).events.read_text().splitlines()[-1])
    return last["kind"], last["key"], last["value"]
