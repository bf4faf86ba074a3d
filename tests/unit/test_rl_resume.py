"""A training that goes on from a checkpoint does, bit for bit, what it would have done anyway."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_orch.io.checkpoints import checkpoint_files
from rl_orch.records import EventKind
from rl_orch.rl.envs.state.probe import Proof, probe
from rl_orch.rl.snapshot import Resumption, TrainingSnapshot
from rl_orch.rl.train import train
from rl_orch.spec.model import Spec
from tests.learning.recorder import MemoryOutlet, Said

ENVIRONMENTS = (
    "CartPole-v1",
    "Acrobot-v1",
    "Pendulum-v1",
    "MountainCarContinuous-v0",
    "LunarLander-v3",
    "HalfCheetah-v5",
)


def a_spec(env_id: str, **groups: Any) -> Spec:
    """Four rollouts, each with a checkpoint, every other one with an evaluation."""
    document: dict[str, Any] = {
        "env": {"id": env_id, "num_envs": 3, "seed": 1, "max_episode_steps": 37},
        "agent": {"network": {"hidden_sizes": [8]}},
        "rollout": {"steps": 32},
        "train": {"total_timesteps": 384, "batch_size": 32, "update_epochs": 2},
        "eval": {"every": 192, "episodes": 3},
        "checkpoint": {"every": 96},
    }
    return Spec.model_validate(
        document | {name: document.get(name, {}) | options for name, options in groups.items()}
    )


def through_files(folder: Path, snapshot: TrainingSnapshot) -> TrainingSnapshot:
    """A snapshot as a checkpoint gives it back."""
    path = checkpoint_files.save(
        folder,
        step=snapshot.step,
        tensors=snapshot.tensors,
        document=snapshot.document,
        meta={"run_id": "r", "attempt": 1},
    )
    loaded = checkpoint_files.load(path)
    return TrainingSnapshot(loaded.tensors, loaded.document, step=loaded.step)


def trained(spec: Spec, proof: Proof, resumption: Resumption | None = None) -> MemoryOutlet:
    recorder = MemoryOutlet()
    how: dict[str, Any] = {"method": proof.method, "pure_reset": proof.pure_reset}
    train(spec, recorder, resumption=resumption, **how)
    return recorder


def told(events: list[Said]) -> list[Said]:
    """What was said but for readings of the clock."""
    return [event for event in events if event.kind is not EventKind.LOG]


def assert_same(one: TrainingSnapshot, other: TrainingSnapshot) -> None:
    assert (one.step, one.document) == (other.step, other.document)
    assert one.tensors.keys() == other.tensors.keys()
    for name, tensor in one.tensors.items():
        assert tensor.tobytes() == other.tensors[name].tobytes(), name


@pytest.mark.parametrize("stack", [None, 3])
@pytest.mark.parametrize("normalize", ["none", "running"])
@pytest.mark.parametrize("env_id", ENVIRONMENTS)
def test_going_on_from_any_checkpoint_repeats_the_rest_exactly(
    tmp_path: Path, env_id: str, normalize: str, stack: int | None
) -> None:
    spec = a_spec(env_id, obs={"normalize": normalize, "stack_frames": stack})
    proof = probe(spec)
    assert (proof.level, proof.reason) == ("bitwise", None)
    whole = trained(spec, proof)
    assert len(whole.saved) == 4
    for index, (snapshot, report) in enumerate(whole.saved[:-1]):
        resumption = Resumption(through_files(tmp_path, snapshot), report)
        rest = trained(spec, proof, resumption)
        assert told(rest.events) == told(whole.events[whole.said_before[index] :])
        assert [r for _, r in rest.saved] == [r for _, r in whole.saved[index + 1 :]]
        for (one, _), (other, _) in zip(rest.saved, whole.saved[index + 1 :], strict=True):
            assert_same(one, other)


def test_a_training_that_a_gate_has_ended_ends_again_when_it_is_resumed() -> None:
    spec = a_spec("CartPole-v1", gates={"min_return": 1.0, "stop_when_solved": True})
    first = MemoryOutlet()
    ended = train(spec, first)
    assert ended.reason == "solved"
    again = MemoryOutlet()
    assert train(spec, again, resumption=Resumption(*first.saved[-1])) == ended
    assert again.events == []


def test_failed_evaluations_in_a_row_are_counted_across_a_resume() -> None:
    spec = a_spec("CartPole-v1", gates={"min_return": 499.0, "patience": 2})
    first = MemoryOutlet()
    ended = train(spec, first)
    assert (ended.reason, ended.clock.value) == ("gate_failed", 384)
    for saved in first.saved:
        assert train(spec, MemoryOutlet(), resumption=Resumption(*saved)) == ended


def test_a_longer_budget_goes_on_where_the_shorter_one_ended() -> None:
    short, long = (
        a_spec("CartPole-v1", train={"total_timesteps": steps, "batch_size": 32})
        for steps in (192, 384)
    )
    first, whole = MemoryOutlet(), MemoryOutlet()
    train(short, first)
    train(long, whole)
    rest = MemoryOutlet()
    train(long, rest, resumption=Resumption(*first.saved[-1]))
    assert_same(rest.saved[-1][0], whole.saved[-1][0])


@pytest.mark.parametrize(
    "name",
    [
        "policies/default/pipeline.normalizer.mean",
        "optimizer/mean",
        "rng/actions",
        "rng/minibatches",
        "collector/returns",
    ],
)
def test_every_part_of_a_snapshot_is_needed_to_go_on(name: str) -> None:
    spec = a_spec("CartPole-v1", obs={"normalize": "running"})
    whole = MemoryOutlet()
    train(spec, whole)
    snapshot, report = whole.saved[0]
    other = snapshot.tensors[name].copy()
    flat = other.reshape(-1).view(np.uint8)
    flat[len(flat) // 4 : len(flat) // 2] ^= 1
    tampered = replace(snapshot, tensors=snapshot.tensors | {name: other})
    rest = MemoryOutlet()
    train(spec, rest, resumption=Resumption(tampered, report))
    assert told(rest.events) != told(whole.events[whole.said_before[0] :])
