"""From the same weights, experience and noise, updates are those of Stable-Baselines3."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from rl_orch.rl.data.batch import Batch
from rl_orch.rl.learn.learner import build_learner
from rl_orch.rl.policies.batch_renorm import EPS, MOMENTUM, BatchRenorm
from rl_orch.rl.replay.buffer import Sample
from rl_orch.testing.algorithms import setup_of
from tests.sb3_updates import CASES, Recorded, spec_of

ATOL = 1e-6
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": ATOL}
ENGINES = ("torch", "kernels")
ON_POLICY = [case for case, (algorithm, *_) in CASES.items() if algorithm in ("ppo", "a2c")]
OFF_POLICY = [case for case in CASES if case not in ON_POLICY]
CONTINUOUS = ("sac", "tqc", "crossq", "td3")
IN_ENGINES = [(case, engine) for case in OFF_POLICY for engine in ENGINES if case != "crossq"]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", ON_POLICY)
def test_a_rollout_is_assessed_and_learned_from_as_by_sb3(
    case: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = Recorded(case)
    learner: Any = build_learner(setup_of(spec_of(case, engine)))
    load(learner.policy, recorded.weights("before", "policy"))
    batch = rollout(recorded)
    assert batch.column("truncated").any()
    assert batch.column("terminated").any() or case == "ppo-continuous"
    prepared = learner.rollouts.prepare(batch)
    for name in ("advantages", "values", "log_probs"):
        expected = recorded[name].reshape(-1)
        np.testing.assert_allclose(getattr(prepared, name), expected, err_msg=name, **CLOSE)
    monkeypatch.setattr(torch, "randperm", lambda count, **_: torch.arange(count))
    learner.update(batch)
    assert_close(learner.policy, recorded.weights("after", "policy"))


@pytest.mark.parametrize(("case", "engine"), [*IN_ENGINES, ("crossq", "torch")])
def test_samples_are_learned_from_as_by_sb3(
    case: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BatchRenorm, "forward", normalized_as_sb3)
    recorded = Recorded(case)
    learner: Any = build_learner(setup_of(spec_of(case, engine)))
    load(learner.policy, recorded.weights("before", "policy"))
    if case in CONTINUOUS:
        load(learner.critics, recorded.weights("before", "critics"))
    learner.sync_targets()
    noise = iter(torch.from_numpy(recorded["noise"]))
    learner.normal = lambda count: torch.cat([next(noise) for _ in range(count // 32)])
    if case == "crossq":
        learner.normal = lambda _: next_before_own(learner, noise)
    for sample in samples(recorded, case):
        learner.improve(sample)
        learner.updates += 1
    # What normalising rounds, Adam makes much of where gradients are next to nothing.
    atol = 1e-5 if case == "crossq" else ATOL
    assert_close(learner.policy, recorded.weights("after", "policy"), atol)
    for name, module in learner.remembered.items():
        if case in CONTINUOUS:
            assert_close(module, recorded.weights("after", name), atol)


@pytest.mark.parametrize("case", CASES)
def test_networks_start_as_those_of_sb3_do(case: str) -> None:
    learner: Any = build_learner(setup_of(spec_of(case)))
    theirs = Recorded(case).weights("before", "policy")
    for parameter, array in zip(learner.policy.parameters(), theirs, strict=True):
        ours = parameter.detach().numpy()
        if case in ON_POLICY:  # Orthogonal, with the same gains; biases and deviations alike.
            first, second = (spread(weights) for weights in (ours, array))
            np.testing.assert_allclose(first, second, **CLOSE)
        elif array.ndim == 2:  # Uniform within the same bounds.
            bound = 1.0 / np.sqrt(array.shape[1])
            assert all(0.7 * bound < np.abs(w).max() <= 1.001 * bound for w in (ours, array))


def normalized_as_sb3(layer: BatchRenorm, x: torch.Tensor) -> torch.Tensor:
    """As our layers do, but for variances: sb3-contrib divides by B - 1."""
    variance, mean = layer.variance, layer.mean
    if layer.by_batch:
        variance, mean = torch.var_mean(x, 0, correction=1)
        layer.mean.lerp_(mean.detach(), MOMENTUM)
        layer.variance.lerp_(variance.detach(), MOMENTUM)
    return (x - mean) / (variance + EPS).sqrt() * layer.weight + layer.bias


def next_before_own(learner: Any, noise: Iterator[torch.Tensor]) -> torch.Tensor:
    """Noise as CrossQ's peer draws it: for next actions, then for the policy's, if that moves."""
    following = next(noise)
    moves = (learner.updates + 1) % learner.options.policy_delay == 0
    return torch.cat([next(noise) if moves else torch.zeros_like(following), following])


def spread(weights: NDArray[Any]) -> NDArray[Any]:
    """What an orthogonal matrix has in common with all others of its gain."""
    return np.linalg.svd(weights, compute_uv=False) if weights.ndim == 2 else weights


def rollout(recorded: Recorded) -> Batch:
    """The experience of a rollout, by copy, then time."""
    dones, truncated = recorded["dones"], recorded["truncated"]
    first = np.append(True, dones[:-1])
    first[len(dones) // 2] = True
    return Batch(
        observations=recorded["observations"],
        actions=recorded["actions"],
        rewards=recorded["rewards"],
        terminated=dones & ~truncated,
        truncated=truncated,
        next_observations=recorded["next_observations"].astype(np.float32),
        extras={"valid": np.ones(len(dones), np.bool_), "first": first},
    )


def samples(recorded: Recorded, case: str) -> Iterator[Sample]:
    """The transitions of each update."""
    gamma = spec_of(case).train.gamma
    for k, actions in enumerate(recorded["actions"]):
        size = len(actions)
        ended = recorded["dones"][k].reshape(-1)
        yield Sample(
            observations=recorded["observations"][k].astype(np.float32),
            actions=actions if case in CONTINUOUS else actions.reshape(-1),
            rewards=recorded["rewards"][k].reshape(-1),
            next_observations=recorded["next_observations"][k].astype(np.float32),
            discounts=(gamma * (1.0 - ended)).astype(np.float32),
            next_masks=None,
            weights=np.ones(size, np.float32),
            rows=np.arange(size),
        )


def load(module: nn.Module, arrays: list[NDArray[Any]]) -> None:
    with torch.no_grad():
        for parameter, array in zip(module.parameters(), arrays, strict=True):
            parameter.copy_(torch.from_numpy(array))


def assert_close(module: nn.Module, arrays: list[NDArray[Any]], atol: float = ATOL) -> None:
    for parameter, array in zip(module.parameters(), arrays, strict=True):
        found = parameter.detach().numpy().reshape(array.shape)
        np.testing.assert_allclose(found, array, rtol=1e-5, atol=atol)
