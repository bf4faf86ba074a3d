"""What a learner takes over of another one: all that goes together, and nothing where it cannot."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from rl_orch.errors import BadInput, Damaged
from rl_orch.records import Clock
from rl_orch.rl.data.batch import Batch
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.learn.learner import build_learner
from rl_orch.rl.policies.policy import Setup, module_state, policy_tensors
from rl_orch.rl.snapshot import assemble
from rl_orch.rl.warm_start import WarmStart, fit, take
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve

ACTIONS = spaces.Box(-1.0, 1.0, (2,))
EVERYTHING = ("policy", "optimizer", "replay")


def a_learner(algorithm: str, seed: int, size: int = 3) -> tuple[Spec, Any]:
    network = {"hidden_sizes": [8], "critic_hidden_sizes": [8]}
    document = {
        "agent": {"algorithm": algorithm, "network": network},
        "env": {"id": "Any-v0", "seed": seed},
        "train": {"batch_size": 16, "total_timesteps": 1000, "engine": "torch"},
        "buffer": {"size": 500},
    }
    spec = resolve(document)
    return spec, build_learner(Setup(spec, spaces.Box(-10.0, 10.0, (size,)), ACTIONS))


def experience(size: int, rows: int = 64) -> Batch:
    rng = np.random.default_rng(0)
    shown, following = rng.normal(size=(2, rows, size)).astype(np.float32)
    return Batch(
        observations=shown,
        actions=rng.uniform(-1, 1, (rows, 2)).astype(np.float32),
        rewards=rng.normal(size=rows),
        terminated=np.zeros(rows, np.bool_),
        truncated=np.zeros(rows, np.bool_),
        next_observations=following,
        extras={"valid": np.ones(rows, np.bool_), "first": np.arange(rows) == 0},
    )


def with_replay(spec: Spec, learner: Any, size: int) -> WarmStart:
    learner.replay.add(experience(size))
    segment = learner.replay.seal()
    parts = {
        "policy": module_state(learner.policy),
        "learner": learner.state(),
        "collector": StateTree(),
        "replay": learner.replay.state(),
        "rng": StateTree(),
        "loop": StateTree(),
    }
    snapshot = assemble(parts, clock=Clock("env_steps", 1), segments=())
    return WarmStart(snapshot, spec, EVERYTHING, True, lambda _name: segment.arrays)


def weights(learner: Any) -> dict[str, bytes]:
    tensors = policy_tensors(learner.policy) | learner.state().tensors
    return {name: tensor.tobytes() for name, tensor in tensors.items()}


def of(learner: Any, part: str) -> dict[str, bytes]:
    prefix = f"learner/{part}/"
    return {n.removeprefix(prefix): t for n, t in weights(learner).items() if n.startswith(prefix)}


def test_experience_of_another_shape_does_not_fit_and_is_left() -> None:
    (theirs, source), (spec, learner) = a_learner("sac", 1), a_learner("sac", 2, size=4)
    start = with_replay(theirs, source, 3)
    fitted = fit(learner, start, spec)
    assert fitted.replay is None
    assert "replay" in fitted.kept
    misfit = "replay: observations is float32[4] here and float32[3] in the source"
    assert misfit in fitted.misfits
    take(learner, start, spec)
    assert len(learner.replay) == 0
    with pytest.raises(BadInput):
        take(learner, WarmStart(start.snapshot, theirs, EVERYTHING, False, start.segments), spec)


def test_experience_that_cannot_be_read_leaves_the_weights_as_they_were() -> None:
    (theirs, source), (spec, learner) = a_learner("sac", 1), a_learner("sac", 2)
    start, before = with_replay(theirs, source, 3), weights(learner)
    read, asked = start.segments, []

    def first_only(name: str) -> Any:
        asked.append(name)
        if len(asked) > 1:
            raise Damaged(f"{name} fails its digest")
        assert read is not None
        return read(name)

    with pytest.raises(Damaged):
        take(learner, WarmStart(start.snapshot, theirs, EVERYTHING, True, first_only), spec)
    assert weights(learner) == before


def begun(source: str, target: str) -> tuple[Any, Any, Any]:
    (theirs, giving), (spec, learner) = a_learner(source, 1), a_learner(target, 2)
    tensors = policy_tensors(giving.policy) | giving.state().tensors
    start = WarmStart(StateTree(tensors), theirs, ("policy",), partial=True)
    return giving, learner, take(learner, start, spec)


@pytest.mark.parametrize("source", ["crossq", "tqc"])
def test_slow_copies_that_the_source_has_none_of_begin_as_copies_of_the_critics(
    source: str,
) -> None:
    _, learner, fitted = begun(source, "sac")
    assert of(learner, "target_critics") == of(learner, "critics")
    assert {f"learner/target_critics/{name}" for name in of(learner, "critics")} <= {*fitted.kept}


def test_slow_copies_of_the_source_are_taken_as_they_are() -> None:
    (theirs, giving), (spec, learner) = a_learner("sac", 1), a_learner("td3", 2)
    giving.target_critics.vector.add_(1.0)
    tensors = policy_tensors(giving.policy) | giving.state().tensors
    take(learner, WarmStart(StateTree(tensors), theirs, ("policy",), partial=True), spec)
    for part in ("critics", "target_critics"):
        assert of(learner, part) == of(giving, part)
    own = policy_tensors(learner.policy)
    for name, tensor in of(learner, "target_policy").items():
        assert tensor == own[f"policies/default/actor.{name}"].tobytes()


def test_norms_that_only_one_of_two_critics_has_are_misfits() -> None:
    for pair, here, there in (
        (("crossq", "sac"), "not there", "float32[5]"),
        (("sac", "crossq"), "float32[5]", "not there"),
    ):
        _, _, fitted = begun(*pair)
        name = "learner/critics/first.norms.0.weight"
        assert f"{name} is {here} here and {there} in the source" in fitted.misfits
