"""A worker that dies at any step of saving a checkpoint or a part of its replay buffer leaves a run
that goes on bit for bit."""

import os
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rl_orch.io.checkpoints import catalog, hash_chain, replay_files, replay_segments
from rl_orch.io.run.directory import RunDir
from rl_orch.records import EvalReport
from rl_orch.rl import train
from rl_orch.rl.snapshot import TrainingSnapshot
from rl_orch.testing import a_spec
from rl_orch.worker.attempt.recorder import FileRecorder
from rl_orch.worker.train import run_attempt

SPEC = (
    "env.num_envs=2",
    "env.max_episode_steps=30",
    "agent.network.hidden_sizes=[8]",
    "rollout.steps=16",
    "train.batch_size=16",
    "train.update_epochs=1",
    "train.total_timesteps=192",
    "checkpoint.every=32",
    "checkpoint.keep_last=1",
    "eval.every=64",
    "eval.episodes=2",
)
REPLAYED = (
    "agent.algorithm=dqn",
    "env.max_episode_steps=20",
    "obs.stack_frames=2",
    "agent.network.hidden_sizes=[8]",
    "rollout.steps=8",
    "train.batch_size=8",
    "train.learning_starts=16",
    "train.total_timesteps=64",
    "buffer.size=40",
    "buffer.n_step=2",
    "buffer.prioritized=true",
    "checkpoint.every=32",
    "checkpoint.keep_last=1",
    "eval.every=64",
    "eval.episodes=1",
)
SEGMENT_BYTES = 800
"""Some twenty rows: segments are written between checkpoints too, and some are outdated."""

DISK = ("mkdir", "open", "write", "fsync", "replace", "rename", "unlink", "rmdir")


def in_a_child(action: Callable[[], int]) -> int:
    """The exit code of a process of its own that does it."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(action())
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def dying_at(number: int, save_number: int) -> None:
    """Let this process die at a call to the disk, counted from the beginning of a save."""
    save, saves, calls = FileRecorder.save, count(1), count(1)

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if next(calls) == number:
                os._exit(9)
            return real(*arguments, **options)

        return call

    def saved(self: FileRecorder, snapshot: TrainingSnapshot, report: EvalReport | None) -> None:
        originals = {name: getattr(os, name) for name in DISK}
        if next(saves) == save_number:
            for name, real in originals.items():
                setattr(os, name, dying(real))
        save(self, snapshot, report)
        for name, real in originals.items():
            setattr(os, name, real)

    FileRecorder.save = saved  # type: ignore[method-assign]


def a_run(folder: Path, spec: tuple[str, ...] = SPEC) -> RunDir:
    directory = RunDir(folder / "run")
    directory.create(a_spec(*spec), {"run_id": "run"})
    return directory


@pytest.mark.parametrize("save_number", [1, 4], ids=["the first", "an evaluated one"])
def test_a_crash_at_any_step_of_saving_is_resumed_bit_for_bit(
    tmp_path: Path, save_number: int
) -> None:
    whole = a_run(tmp_path / "whole")
    assert run_attempt(whole, 1) == 0
    for number in count(1):
        killed = a_run(tmp_path / "killed")

        def attempt(directory: RunDir = killed, number: int = number) -> int:
            dying_at(number, save_number)
            return run_attempt(directory, 1)

        code = in_a_child(attempt)
        if code == 0:
            break
        assert code == 9
        assert in_a_child(lambda: run_attempt(killed, 2)) == 0  # noqa: B023
        assert hash_chain.compare(whole, killed).difference is None
        assert names(killed) == names(whole)
        shutil.rmtree(killed.path)
    assert number > 8


def names(directory: RunDir) -> list[str]:
    """Everything in the folder of checkpoints, hidden things included; all of it intact."""
    assert all(entry.intact for entry in catalog.listing(directory.checkpoints))
    return sorted(path.name for path in directory.checkpoints.iterdir())


def test_a_crash_before_the_first_checkpoint_begins_anew(tmp_path: Path) -> None:
    whole, killed = a_run(tmp_path / "whole"), a_run(tmp_path / "killed")
    assert in_a_child(lambda: run_attempt(whole, 1)) == 0

    def attempt() -> int:
        dying_at(1, 1)
        return run_attempt(killed, 1)

    assert in_a_child(attempt) == 9
    assert names(killed) == []
    assert in_a_child(lambda: run_attempt(killed, 2)) == 0
    assert hash_chain.compare(whole, killed).difference is None


def dying_with_a_segment_at(number: int) -> None:
    """Let this process die at a call to the disk, of those that write or remove segments."""
    calls = count(1)

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if next(calls) == number:
                os._exit(9)
            return real(*arguments, **options)

        return call

    for module in (replay_segments, replay_files):
        deadly = {name: dying(getattr(os, name)) for name in DISK if name != "open"}
        module.os = SimpleNamespace(**vars(os) | deadly)  # type: ignore[attr-defined]


def test_a_crash_at_any_step_of_keeping_a_replay_buffer_is_resumed_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "SEGMENT_BYTES", SEGMENT_BYTES)
    whole = a_run(tmp_path / "whole", REPLAYED)
    assert run_attempt(whole, 1) == 0
    (newest,) = catalog.listing(whole.checkpoints)
    needed = [entry.name for entry in catalog.segments_of(newest.path)]
    assert len(needed) > 1
    assert replay_files.names(whole.replay) == needed
    for number in count(1):
        killed = a_run(tmp_path / "killed", REPLAYED)

        def attempt(directory: RunDir = killed, number: int = number) -> int:
            dying_with_a_segment_at(number)
            return run_attempt(directory, 1)

        code = in_a_child(attempt)
        if code == 0:
            break
        assert code == 9
        assert in_a_child(lambda: run_attempt(killed, 2)) == 0  # noqa: B023
        assert hash_chain.compare(whole, killed).difference is None
        assert names(killed) == names(whole)
        assert sorted(os.listdir(killed.replay)) == sorted(os.listdir(whole.replay))
        shutil.rmtree(killed.path)
    assert number > 8
