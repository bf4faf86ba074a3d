"""The external runner keeps the contract of every runner, and looks before it starts."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_orch.core.ports import Runner, Task
from rl_orch.errors import SpecInvalid
from rl_orch.io.processes import pids
from rl_orch.io.run.directory import RunDir
from rl_orch.orchestrator import to_spec
from rl_orch.runners.external import ExternalRunner
from rl_orch.spec.model import Spec
from rl_orch.testing import BackgroundRunnerContract

TRAIN = """
import json, os, time
step = 0
with open(os.environ["RLCTL_EVENTS"], "a", buffering=1) as events:
    while step < int(os.environ["RLCTL_TOTAL_TIMESTEPS"]):
        step += 32
        events.write(json.dumps({"step": step, "key": "losses/td", "value": 0.5}) + "\\n")
        time.sleep(0.01)
    with open(os.path.join(os.environ["RLCTL_CHECKPOINTS"], "model"), "w") as file:
        file.write("weights")
    events.write(json.dumps({"step": step, "checkpoint": "model"}) + "\\n")
"""
ACT = """
import json, sys
for line in sys.stdin:
    print(json.dumps({"action": [0 for _ in json.loads(line)["obs"]]}), flush=True)
"""


def a_spec(*overrides: str, env_id: str = "CartPole-v1") -> Spec:
    """A spec of a program that learns nothing and of a policy that goes left."""
    python = [sys.executable, "-S", "-c"]
    runner = {"name": "external", "command": [*python, TRAIN], "policy": [*python, ACT]}
    return to_spec({"env": {"id": env_id}, "runner": runner}, overrides)


class TestExternalRunner(BackgroundRunnerContract):
    """Programs under a root of ours."""

    @pytest.fixture(autouse=True)
    def swept(self, tmp_path: Path) -> Iterator[None]:
        """A root that is killed leaves its program to whoever sweeps, as a supervisor does."""
        yield
        pids.sweep(tmp_path / "run", through=100)

    def make_runner(self) -> Runner:
        return ExternalRunner()

    def make_directory(self, folder: Path, *overrides: str) -> Path:
        directory = RunDir(folder / "run")
        small = ("train.total_timesteps=64", "eval.final_episodes=2", "env.num_envs=2")
        directory.create(a_spec(*small, *overrides), {"run_id": "run", "changes": []})
        return directory.path

    def test_a_sweep_ends_the_program_of_a_root_that_was_killed(self, tmp_path: Path) -> None:
        with self.living_process(tmp_path) as (runner, directory, handle):
            runner.stop(handle, force=True)
            self.wait(runner, handle)
            assert runner.sweep(directory, through=1) == 1
            assert list(pids.marked(directory, through=1)) == []

    def test_programs_and_the_environment_are_there_before_anything_starts(self) -> None:
        self.make_runner().check(a_spec())
        with pytest.raises(SpecInvalid, match="no such program on the path"):
            self.make_runner().check(a_spec("runner.command=[no-such-program]"))
        with pytest.raises(SpecInvalid, match=r"env.id is 'CartPole-v9'"):
            self.make_runner().check(a_spec(env_id="CartPole-v9"))

    def test_an_environment_that_nobody_of_us_plays_need_not_be_there(self) -> None:
        self.make_runner().check(a_spec("~runner.policy", env_id="TheirSimulator-v3"))

    def test_an_attempt_that_is_started_twice_runs_once(self, tmp_path: Path) -> None:
        with self.living_process(tmp_path) as (runner, directory, handle):
            late = runner.start(directory, Task(attempt=1))
            assert self.wait(runner, late).code == 2
            assert runner.poll(handle) is None
            assert len(list(pids.marked(directory, through=1))) == 2
