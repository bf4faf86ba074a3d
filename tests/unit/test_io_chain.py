"""The comparison behind a certificate: whatever was tampered with is noticed and named."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_orch.io.checkpoints import checkpoint_files, hash_chain
from rl_orch.io.run.directory import RunDir
from rl_orch.testing import a_spec
from rl_orch.worker.train import run_attempt

SPEC = (
    "env.num_envs=2",
    "env.max_episode_steps=30",
    "obs.normalize=running",
    "agent.network.hidden_sizes=[8]",
    "rollout.steps=16",
    "train.batch_size=16",
    "train.update_epochs=1",
    "train.total_timesteps=160",
    "checkpoint.every=32",
    "checkpoint.keep_last=100",
    "eval.every=64",
    "eval.episodes=2",
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A run that was trained without interruption."""
    return trained(RunDir(tmp_path_factory.mktemp("whole") / "run"))


def trained(directory: RunDir) -> RunDir:
    directory.create(a_spec(*SPEC), {"run_id": "run"})
    assert run_attempt(directory, 1) == 0
    return directory


@pytest.fixture
def cut(tmp_path: Path, whole: RunDir) -> RunDir:
    """The same run as it stood at its third checkpoint, as after a kill."""
    directory = RunDir(tmp_path / "run")
    shutil.copytree(whole.path, directory.path)
    for path in sorted(directory.checkpoints.iterdir())[3:]:
        shutil.rmtree(path)
    return directory


def tamper(
    directory: RunDir,
    change: Callable[[dict[str, np.ndarray[Any, Any]], dict[str, Any]], None],
) -> None:
    """Change the newest checkpoint and seal it again, so that no digest tells."""
    path = sorted(directory.checkpoints.iterdir())[-1]
    known = checkpoint_files.load(path)
    tensors = {name: tensor.copy() for name, tensor in known.tensors.items()}
    document = known.document
    change(tensors, document)
    checkpoint_files.save(
        directory.checkpoints,
        step=known.step,
        tensors=tensors,
        document={key: document[key] for key in ("trainer_state", "replay_meta", "rng_state")},
        meta=document["meta"],
    )


def flip(name: str) -> Callable[[dict[str, np.ndarray[Any, Any]], dict[str, Any]], None]:
    """The lowest bit of the first number of a tensor, the other way round."""

    def change(tensors: dict[str, np.ndarray[Any, Any]], _document: dict[str, Any]) -> None:
        tensors[name].reshape(-1).view(np.uint8)[0] ^= 1

    return change


def first_env_tensor(directory: RunDir) -> str:
    """The name of a tensor that holds the state of an environment."""
    path = sorted(directory.checkpoints.iterdir())[-1]
    return next(n for n in sorted(checkpoint_files.load(path).tensors) if n.startswith("envs/"))


def test_a_run_is_the_same_as_itself(whole: RunDir) -> None:
    found = hash_chain.compare(whole, whole)
    assert found.difference is None
    assert (found.checkpoints, len(found.chain)) == (5, 64)
    assert found.events > 20


def test_two_trainings_of_one_spec_are_the_same(whole: RunDir, tmp_path: Path) -> None:
    assert hash_chain.compare(whole, trained(RunDir(tmp_path / "run"))).difference is None


def test_a_run_that_was_killed_and_resumed_is_the_same(whole: RunDir, cut: RunDir) -> None:
    assert run_attempt(cut, 2) == 0
    assert hash_chain.compare(whole, cut).difference is None


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("rng/actions", "generators"),
        ("rng/minibatches", "generators"),
        ("rng/torch", "generators"),
        ("policies/default/pipeline.normalizer.mean", "normalisers"),
        ("policies/default/actor.layers.0.weight", "parameters"),
        ("optimizer/mean", "optimiser"),
        ("optimizer/square", "optimiser"),
        ("envs", "environments"),
        ("collector/returns", "accounting"),
    ],
)
def test_a_tampered_part_is_noticed_and_named_where_it_was_tampered_with(
    whole: RunDir, cut: RunDir, name: str, part: str
) -> None:
    name = first_env_tensor(cut) if name == "envs" else name
    tamper(cut, flip(name))
    found = hash_chain.compare(whole, cut).difference
    assert found is not None
    assert (found.at, found.part) == ("checkpoint step_000000000096", part)
    assert found.detail.startswith(name)


@pytest.mark.parametrize("name", ["rng/actions", "optimizer/mean", "envs", "normalizer"])
def test_a_run_that_went_on_from_a_tampered_checkpoint_is_another_one(
    whole: RunDir, cut: RunDir, name: str
) -> None:
    known = {
        "envs": first_env_tensor(cut),
        "normalizer": "policies/default/pipeline.normalizer.mean",
    }

    def change(tensors: dict[str, np.ndarray[Any, Any]], _document: dict[str, Any]) -> None:
        bits = tensors[known.get(name, name)].reshape(-1).view(np.uint8)
        bits[len(bits) // 4 : len(bits) // 2] ^= 1

    tamper(cut, change)
    assert run_attempt(cut, 2) == 0
    # Even where somebody puts the untampered checkpoint back afterwards.
    path = cut.checkpoints / "step_000000000096"
    shutil.rmtree(path)
    shutil.copytree(whole.checkpoints / path.name, path)
    found = hash_chain.compare(whole, cut).difference
    assert found is not None
    assert found.at == "checkpoint step_000000000128"


def test_a_tampered_generator_of_python_is_noticed(whole: RunDir, cut: RunDir) -> None:
    def change(_tensors: dict[str, np.ndarray[Any, Any]], document: dict[str, Any]) -> None:
        document["rng_state"]["python"][1][0] ^= 1

    tamper(cut, change)
    found = hash_chain.compare(whole, cut).difference
    assert found is not None
    assert found.part == "generators"
    assert found.detail.startswith("generators.python[1][0] is ")


def lines_of(directory: RunDir) -> list[str]:
    return directory.events.read_text().splitlines(keepends=True)


def index_of(lines: list[str], kind: str) -> int:
    """Where the last event of that kind is that no later attempt has superseded."""
    events = [json.loads(line) for line in lines]
    return max(i for i, e in enumerate(events) if e["kind"] == kind and e["step"] <= 64)


@pytest.mark.parametrize("kind", ["metric", "episode", "eval", "checkpoint", "log"])
@pytest.mark.parametrize("resumed", [False, True])
def test_one_lost_event_is_noticed(whole: RunDir, cut: RunDir, kind: str, resumed: bool) -> None:
    if resumed:
        assert run_attempt(cut, 2) == 0
    else:
        shutil.rmtree(cut.checkpoints)
        shutil.copytree(whole.checkpoints, cut.checkpoints)
    lines = lines_of(cut)
    del lines[index_of(lines, kind)]
    cut.events.write_text("".join(lines))
    found = hash_chain.compare(whole, cut).difference
    assert found is not None
    assert found.part == "events"


@pytest.mark.parametrize("kind", ["metric", "episode", "checkpoint", "log"])
def test_one_doubled_event_is_noticed(whole: RunDir, cut: RunDir, kind: str) -> None:
    assert run_attempt(cut, 2) == 0
    lines = lines_of(cut)
    at = index_of(lines, kind)
    lines.insert(at, lines[at])
    cut.events.write_text("".join(lines))
    found = hash_chain.compare(whole, cut).difference
    assert found is not None
    assert "is there twice" in found.detail


def test_the_last_event_before_a_resume_is_missed_too(whole: RunDir, cut: RunDir) -> None:
    assert run_attempt(cut, 2) == 0
    lines = lines_of(cut)
    started = next(json.loads(line) for line in lines if '"attempt":2' in line)
    seq = started["tags"]["after"]["seq"]
    kept = [line for line in lines if not _is(line, attempt=1, seq=seq)]
    assert len(kept) == len(lines) - 1
    cut.events.write_text("".join(kept))
    found = hash_chain.compare(whole, cut).difference
    assert found is not None
    assert found.detail == f"event {seq} of attempt 1 is missing"


def _is(line: str, *, attempt: int, seq: int) -> bool:
    event = json.loads(line)
    return (event["attempt"], event["seq"]) == (attempt, seq)


def test_an_event_with_another_value_is_noticed(whole: RunDir, cut: RunDir) -> None:
    shutil.rmtree(cut.checkpoints)
    shutil.copytree(whole.checkpoints, cut.checkpoints)
    lines = lines_of(cut)
    at = index_of(lines, "metric")
    lines[at] = json.dumps(json.loads(lines[at]) | {"value": 0.125}) + "\n"
    cut.events.write_text("".join(lines))
    found = hash_chain.compare(whole, cut).difference
    assert found is not None
    assert "0.125" in found.detail


def test_a_missing_checkpoint_is_noticed(whole: RunDir, cut: RunDir) -> None:
    found = hash_chain.compare(whole, cut).difference
    assert found is not None
    assert (found.at, found.part) == ("checkpoint step_000000000128", "presence")
