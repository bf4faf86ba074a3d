"""Damaged checkpoints: refused by name, the one before is used, or the error says that none is."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rl_orch import orchestrator
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.errors import Conflict, Damaged, NotFound
from rl_orch.io.checkpoints import hash_chain
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import read
from rl_orch.records import State
from rl_orch.testing import a_spec

SPEC = (
    "env.num_envs=2",
    "env.max_episode_steps=30",
    "agent.network.hidden_sizes=[8]",
    "rollout.steps=16",
    "train.batch_size=16",
    "train.update_epochs=1",
    "train.total_timesteps=160",
    "checkpoint.every=32",
    "checkpoint.keep_last=100",
    "checkpoint.keep_training_state=always",
    "eval.every=64",
    "eval.episodes=2",
    "eval.final_episodes=10",
)
FILES = ("MANIFEST.json", "state.json", "tensors.safetensors")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    home = tmp_path_factory.mktemp("whole")
    result = orchestrator.connect(home, runner="inline").launch(a_spec(*SPEC))
    return RunDir(Path(result.run.path))


@pytest.fixture
def cut(tmp_path: Path, whole: RunDir) -> tuple[Orchestrator, RunDir]:
    """The run as it stood at its third checkpoint, in a home of its own."""
    copy = RunDir(tmp_path / "copy")
    shutil.copytree(whole.path, copy.path)
    for path in sorted(copy.checkpoints.iterdir())[3:]:
        shutil.rmtree(path)
    copy.report_file("final").unlink()
    lines = copy.events.read_text().splitlines(keepends=True)
    copy.events.write_text("".join(lines[:-1]))
    connected = orchestrator.connect(tmp_path / "home", runner="inline")
    run = connected.import_run(copy.path)
    assert run.state is State.LOST
    return connected, RunDir(Path(run.path))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", [flip, truncate, remove])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    whole: RunDir,
    cut: tuple[Orchestrator, RunDir],
    name: str,
    damage: Callable[[Path], None],
) -> None:
    connected, directory = cut
    damage(directory.checkpoints / "step_000000000096" / name)
    result = connected.resume("last")
    assert result.run.state is State.SUCCEEDED
    started = next(event for event in read(directory.events) if event.attempt == 2)
    (problem,) = started.tags["passed_over"]
    assert problem.startswith("checkpoint step_000000000096 ")
    assert name in problem
    assert (started.step, started.tags["checkpoint"]) == (64, "step_000000000064")
    assert hash_chain.compare(whole, directory).difference is None


@pytest.mark.parametrize("damage", [flip, truncate, remove])
def test_where_no_checkpoint_is_left_the_error_says_so_and_nothing_changes(
    cut: tuple[Orchestrator, RunDir], damage: Callable[[Path], None]
) -> None:
    connected, directory = cut
    for path in directory.checkpoints.iterdir():
        damage(path / "state.json")
    before = directory.events.read_bytes()
    with pytest.raises(Damaged, match="no intact checkpoint is left of run") as caught:
        connected.resume("last")
    for step in (32, 64, 96):
        assert f"step_{step:012d}" in caught.value.message
    assert caught.value.hint is not None
    assert "rlctl launch -f" in caught.value.hint
    run = connected.get("last")
    assert (run.state, run.attempt) == (State.LOST, 1)
    assert directory.events.read_bytes() == before


def test_checkpoints_that_are_gone_are_not_taken_for_none_yet(
    cut: tuple[Orchestrator, RunDir],
) -> None:
    connected, directory = cut
    shutil.rmtree(directory.checkpoints)
    with pytest.raises(Damaged, match="step_000000000160 and all before it are gone"):
        connected.resume("last")


def test_a_resumed_run_counts_no_step_twice(cut: tuple[Orchestrator, RunDir]) -> None:
    connected, _ = cut
    before = connected.get("last")
    assert before.env_steps == 160
    result = connected.resume("last")
    assert result.run.env_steps == 160
    assert result.run.attempt == 2
    (model,) = connected.registry.of_run(result.run.id)
    assert model.total_timesteps == 160


def test_a_spec_that_was_changed_by_hand_is_refused(cut: tuple[Orchestrator, RunDir]) -> None:
    connected, directory = cut
    text = directory.spec_file.read_text()
    directory.spec_file.write_text(text.replace("lr: 0.0003", "lr: 0.01"))
    assert directory.spec_file.read_text() != text
    with pytest.raises(Conflict, match=r"spec.yaml of run .* is not the one"):
        connected.resume("last")
    assert connected.get("last").state is State.LOST


@pytest.mark.parametrize("kept", [0, 10])
def test_a_run_that_has_lost_events_goes_on_and_says_so(
    cut: tuple[Orchestrator, RunDir], kept: int
) -> None:
    connected, directory = cut
    lines = directory.events.read_text().splitlines(keepends=True)
    directory.events.write_text("".join(lines[:kept]))
    run = connected.resume("last").run
    assert (run.state, run.resume) == (State.SUCCEEDED, "approximate")
    said = connected.show("last").exactness
    assert said is not None
    assert "the event file is not whole (event " in str(said.reason)


def test_a_run_whose_directory_is_gone_says_so(cut: tuple[Orchestrator, RunDir]) -> None:
    connected, directory = cut
    elsewhere = directory.path.with_name("elsewhere")
    directory.path.rename(elsewhere)
    for verb in (connected.show, connected.resume):
        with pytest.raises(NotFound, match=r"the directory of run .* is gone"):
            verb("last")
    assert connected.import_run(elsewhere, move=True).state is State.LOST
    assert connected.resume("last").succeeded


def test_the_damaged_checkpoint_is_still_told_of_afterwards(
    cut: tuple[Orchestrator, RunDir],
) -> None:
    connected, directory = cut
    truncate(directory.checkpoints / "step_000000000096" / "state.json")
    connected.resume("last")
    (problem,) = connected.show("last").passed_over
    assert problem.startswith("checkpoint step_000000000096 has a file of the wrong size")
