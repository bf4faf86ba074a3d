"""A run with a replay buffer: its checkpoints name segments, keep those they need, and are passed
over where one is damaged; whatever is tampered with is noticed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_orch.errors import Damaged
from rl_orch.io.checkpoints import (
    catalog,
    checkpoint_files,
    hash_chain,
    replay_files,
    replay_segments,
)
from rl_orch.io.checkpoints.checkpoint_retention import CheckpointRetention
from rl_orch.io.checkpoints.replay_segments import SegmentStore
from rl_orch.io.checkpoints.resumable import newest_checkpoint
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import EventWriter, read
from rl_orch.rl.replay.buffer import LogSegment
from rl_orch.rl.snapshot import TrainingSnapshot
from rl_orch.testing import a_report, a_spec
from rl_orch.worker.attempt import start
from rl_orch.worker.attempt.commands import PendingCommands
from rl_orch.worker.attempt.recorder import FileRecorder
from rl_orch.worker.train import run_attempt

SPEC = (
    "agent.algorithm=dqn",
    "env.max_episode_steps=20",
    "agent.network.hidden_sizes=[8]",
    "rollout.steps=8",
    "train.batch_size=8",
    "train.learning_starts=16",
    "train.total_timesteps=64",
    "buffer.size=40",
    "buffer.prioritized=true",
    "checkpoint.every=16",
    "checkpoint.keep_last=100",
    "eval.every=64",
    "eval.episodes=1",
)
LAST = "step_000000000048"


def name_of(number: int) -> str:
    return f"{10 * number:015d}-{10 * number + 9:015d}"


def a_segment(number: int) -> LogSegment:
    return LogSegment(name_of(number), {"rewards": np.full(10, float(number))})


@pytest.fixture
def directory(tmp_path: Path) -> RunDir:
    made = RunDir(tmp_path / "run")
    made.create(a_spec(), {"run_id": "run"})
    return made


def an_outlet(
    directory: RunDir, *, keep_last: int = 2, kept: CheckpointRetention | None = None
) -> FileRecorder:
    writer = EventWriter(directory.events, run="run", attempt=1)
    exact = {"level": "bitwise", "method": "captured", "reason": None, "pure_reset": True}
    meta = {"run_id": "run", "attempt": 1, "resume": exact, "fingerprint": {}}
    spec = a_spec(f"checkpoint.keep_last={keep_last}")
    return FileRecorder(
        directory, spec, writer, PendingCommands(), meta=meta, kept=kept or CheckpointRetention()
    )


def a_snapshot(step: int, *numbers: int) -> TrainingSnapshot:
    named = tuple(name_of(number) for number in numbers)
    replay = {"size": 10 * len(named), "segments": list(named)}
    document: dict[str, Any] = {"trainer_state": {}, "replay_meta": replay, "rng_state": {}}
    return TrainingSnapshot({"policy/w": np.zeros(1)}, document, step=step, segments=named)


def test_a_checkpoint_lists_its_segments_with_size_and_digest(directory: RunDir) -> None:
    recorder = an_outlet(directory)
    recorder.add_segment(a_segment(0))
    recorder.add_segment(a_segment(1))
    recorder.save(a_snapshot(20, 0, 1), None)
    recorder.close()
    path = directory.checkpoints / "step_000000000020"
    meta = checkpoint_files.load(path).document["replay_meta"]
    assert meta["size"] == 20
    listed = replay_files.entries(meta)
    assert [entry.name for entry in listed] == [name_of(0), name_of(1)]
    assert catalog.segments_of(path) == listed
    for number, entry in enumerate(listed):
        assert replay_segments.read(directory.replay, entry)["rewards"].tolist() == [number] * 10


def test_a_training_without_a_replay_buffer_has_no_folder_for_one(directory: RunDir) -> None:
    recorder = an_outlet(directory)
    recorder.save(a_snapshot(20), None)
    recorder.close()
    assert not directory.replay.exists()
    assert catalog.segments_of(directory.checkpoints / "step_000000000020") == ()


def test_segments_go_with_the_last_checkpoint_that_needs_them(directory: RunDir) -> None:
    """The best one is the first; of the others, two stay."""
    recorder = an_outlet(directory)
    needed = {10: (0,), 20: (0, 1), 30: (1, 2), 40: (2, 3), 50: (3, 4)}
    there = {}
    for step, numbers in needed.items():
        recorder.add_segment(a_segment(numbers[-1]))
        recorder.save(a_snapshot(step, *numbers), a_report([9.0 if step == 10 else 1.0]))
        there[step] = [int(name[:15]) // 10 for name in names(directory)]
    recorder.close()
    assert there == {
        10: [0],
        20: [0, 1],
        30: [0, 1, 2],
        40: [0, 1, 2, 3],
        50: [0, 2, 3, 4],
    }


def names(directory: RunDir) -> list[str]:
    return replay_files.names(directory.replay)


def test_a_segment_that_is_outdated_before_any_checkpoint_is_let_go_of(directory: RunDir) -> None:
    recorder = an_outlet(directory)
    for number in range(3):
        recorder.add_segment(a_segment(number))
    recorder.save(a_snapshot(30, 2), None)
    recorder.close()
    assert names(directory) == [name_of(2)]


def test_a_checkpoint_is_verified_by_sizes_in_a_listing_and_by_digests_when_gone_on_from(
    directory: RunDir,
) -> None:
    recorder = an_outlet(directory)
    for step, number in ((10, 0), (20, 1)):
        recorder.add_segment(a_segment(number))
        recorder.save(a_snapshot(step, *range(number + 1)), None)
    recorder.close()
    flip(replay_files.path_of(directory.replay, name_of(1)))
    assert [entry.intact for entry in catalog.listing(directory.checkpoints)] == [True, True]
    assert catalog.newest(directory.checkpoints).path == directory.checkpoints / "step_000000000020"
    newest = newest_checkpoint(directory, deep=True)
    assert newest.path == directory.checkpoints / "step_000000000010"
    assert newest.passed_over == (
        "checkpoint step_000000000020 needs a replay segment that fails its digest: " + name_of(1),
    )
    remove(replay_files.path_of(directory.replay, name_of(0)))
    problems = [entry.problem for entry in catalog.listing(directory.checkpoints)]
    assert problems == [
        f"checkpoint {name} needs a replay segment that is missing: {name_of(0)}"
        for name in ("step_000000000010", "step_000000000020")
    ]
    with pytest.raises(Damaged, match="no intact checkpoint is left"):
        start.find(directory, 2)
    assert names(directory) == [name_of(1)]


def test_a_policy_can_be_loaded_where_its_replay_buffer_is_gone(directory: RunDir) -> None:
    recorder = an_outlet(directory)
    recorder.add_segment(a_segment(0))
    recorder.save(a_snapshot(10, 0), None)
    recorder.close()
    shutil.rmtree(directory.replay)
    assert checkpoint_files.load(directory.checkpoints / "step_000000000010").step == 10


def test_an_attempt_that_begins_anew_keeps_nothing_of_the_one_before(directory: RunDir) -> None:
    replay_segments.write(directory.replay, a_segment(0))
    (directory.replay / f".tmp-{name_of(1)}-00").write_bytes(b"half")
    assert start.find(directory, 2).checkpoint is None
    assert list(directory.replay.iterdir()) == []


def test_an_attempt_that_goes_on_lets_go_of_what_no_checkpoint_names(directory: RunDir) -> None:
    recorder = an_outlet(directory)
    recorder.add_segment(a_segment(0))
    recorder.save(a_snapshot(10, 0), None)
    recorder.add_segment(a_segment(1))
    recorder.close()
    (directory.replay / f".tmp-{name_of(2)}-00").write_bytes(b"half")
    begun = start.find(directory, 2)
    assert sorted(path.name for path in directory.replay.iterdir()) == [
        f"{name_of(0)}.safetensors",
        f"{name_of(1)}.safetensors",
    ]
    assert begun.checkpoint is not None
    resumption = begun.resumption
    assert resumption is not None
    assert resumption.snapshot.segments == (name_of(0),)
    assert resumption.segments(name_of(0))["rewards"].tolist() == [0.0] * 10
    again = FileRecorder(
        directory,
        a_spec(),
        EventWriter(directory.events, run="run", attempt=2),
        PendingCommands(),
        meta={},
        kept=begun.kept,
        store=SegmentStore(directory.replay, begun.segments),
    )
    again.announce(begun.checkpoint.path.name, 10, begun.checkpoint.document["meta"])
    again.close()
    assert names(directory) == [name_of(0)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A run with a replay buffer that was trained without interruption."""
    directory = RunDir(tmp_path_factory.mktemp("whole") / "run")
    directory.create(a_spec(*SPEC), {"run_id": "run"})
    assert run_attempt(directory, 1) == 0
    return directory


def test_a_buffer_that_is_mapped_to_a_file_learns_the_same(whole: RunDir, tmp_path: Path) -> None:
    mapped = RunDir(tmp_path / "run")
    mapped.create(a_spec(*SPEC, "buffer.memory_share=1e-12"), {"run_id": "run"})
    assert run_attempt(mapped, 1) == 0
    assert hash_chain.compare(whole, mapped).difference is None
    assert sorted(mapped.replay.iterdir()) == [
        replay_files.path_of(mapped.replay, name) for name in names(whole)
    ]


@pytest.fixture
def cut(tmp_path: Path, whole: RunDir) -> RunDir:
    """The same run as it stood at its third checkpoint, but with what was stashed after it."""
    directory = RunDir(tmp_path / "run")
    shutil.copytree(whole.path, directory.path)
    for path in sorted(directory.checkpoints.iterdir())[3:]:
        shutil.rmtree(path)
    assert catalog.all_names(directory.checkpoints)[-1] == LAST
    return directory


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("damage", [flip, truncate, remove])
def test_a_checkpoint_whose_segment_is_damaged_is_named_and_the_one_before_is_used(
    whole: RunDir, cut: RunDir, damage: Callable[[Path], None]
) -> None:
    newest = catalog.segments_of(cut.checkpoints / LAST)[-1].name
    damage(replay_files.path_of(cut.replay, newest))
    assert run_attempt(cut, 2) == 0
    started = next(event for event in read(cut.events) if event.attempt == 2)
    (problem,) = started.tags["passed_over"]
    assert problem.startswith(f"checkpoint {LAST} needs a replay segment that ")
    assert newest in problem
    assert started.tags["checkpoint"] == "step_000000000032"
    assert hash_chain.compare(whole, cut).difference is None
    assert names(cut) == names(whole)


def tamper(directory: RunDir, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    """Change the newest checkpoint and seal it again, so that no digest tells."""
    known = checkpoint_files.load(directory.checkpoints / LAST)
    tensors = {name: tensor.copy() for name, tensor in known.tensors.items()}
    document = json.loads(json.dumps(known.document))
    change(tensors, document)
    checkpoint_files.save(
        directory.checkpoints,
        step=known.step,
        tensors=tensors,
        document={key: document[key] for key in ("trainer_state", "replay_meta", "rng_state")},
        meta=document["meta"],
    )


def another_priority(tensors: dict[str, Any], _document: dict[str, Any]) -> None:
    tensors["replay/priorities"][3] += 1.0


def another_generator(_tensors: dict[str, Any], document: dict[str, Any]) -> None:
    document["replay_meta"]["rng"]["state"]["state"] ^= 1


@pytest.mark.parametrize(
    ("change", "said"),
    [(another_priority, "replay/priorities[3]"), (another_generator, "replay.rng.state.state")],
)
def test_a_tampered_buffer_is_noticed_and_named(
    whole: RunDir, cut: RunDir, change: Callable[[dict[str, Any], dict[str, Any]], None], said: str
) -> None:
    tamper(cut, change)
    found = hash_chain.compare(whole, cut).difference
    assert found is not None
    assert (found.at, found.part) == (f"checkpoint {LAST}", "replay")
    assert found.detail.startswith(said)


def test_a_tampered_segment_is_noticed_whatever_the_checkpoint_says_of_it(
    whole: RunDir, cut: RunDir
) -> None:
    newest = catalog.segments_of(cut.checkpoints / LAST)[-1]
    flip(replay_files.path_of(cut.replay, newest.name))
    found = hash_chain.compare(whole, cut).difference
    assert found is not None
    assert (found.at, found.part) == (f"checkpoint {LAST}", "replay")
    assert newest.sha256 in found.detail
