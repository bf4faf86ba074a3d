"""Rewards as learners see them, against a plain loop over every copy."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_orch.rl.data.batch import Batch, on_host
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.learn.reward_scale import RewardScale
from rl_orch.spec.model import Spec


def a_scale(copies: int = 2, **train: Any) -> RewardScale:
    spec = Spec.model_validate({"env": {"id": "Any-v0", "num_envs": copies}, "train": train})
    return RewardScale(spec)


def a_batch(copies: int = 2, steps: int = 6, seed: int = 0) -> Batch:
    """Rows by copy, then time; some end their episodes, some only reset a copy and pay nothing."""
    rng = np.random.default_rng(seed)
    rows = copies * steps
    ends, valid = rng.random(rows), rng.random(rows) > 0.2
    return Batch(
        observations=np.zeros((rows, 1)),
        rewards=np.where(valid, rng.normal(2.0, 5.0, rows), 0.0),
        terminated=ends < 0.15,
        truncated=ends > 0.85,
        extras={"valid": valid},
    )


def sums_of(batches: list[Batch], copies: int, gamma: float) -> list[float]:
    """The discounted sums so far at each transition, by a loop over copies and steps."""
    found: list[float] = []
    running = [0.0] * copies
    for batch in batches:
        steps = len(batch) // copies
        for copy in range(copies):
            for t in range(steps):
                row = copy * steps + t
                running[copy] = gamma * running[copy] + on_host(batch.column("rewards"))[row]
                if on_host(batch.column("valid"))[row]:
                    found.append(running[copy])
                if on_host(batch.dones)[row]:
                    running[copy] = 0.0
    return found


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 4), st.lists(st.integers(1, 7), min_size=1, max_size=4), st.integers(0, 99))
def test_rewards_are_divided_by_the_deviation_of_the_discounted_sums(
    copies: int, sizes: list[int], seed: int
) -> None:
    scale = a_scale(copies, normalize_reward=True, gamma=0.9)
    batches = [a_batch(copies, steps, seed + i) for i, steps in enumerate(sizes)]
    for batch in batches:
        scale.observe(batch)
    sums = np.array(sums_of(batches, copies, 0.9))
    deviation = np.sqrt(sums.var() + 1e-8) if len(sums) else np.sqrt(1e-8)
    rewards = np.array([-3.0, 0.0, 0.5, 40.0])
    expected = np.clip(rewards / deviation, -10.0, 10.0)
    if len(sums) > 1:
        assert scale.transform(rewards) == pytest.approx(expected, rel=1e-6)


def test_a_sum_begins_anew_where_an_episode_ends_in_either_way() -> None:
    row: dict[str, Any] = {
        "observations": np.zeros((3, 1)),
        "extras": {"valid": np.ones(3, np.bool_)},
    }
    never, middle = np.zeros(3, np.bool_), np.array([False, True, False])
    rewards, found = np.array([1.0, 1.0, 1.0]), []
    for terminated, truncated in ((never, never), (middle, never), (never, middle)):
        scale = a_scale(1, normalize_reward=True, gamma=1.0)
        scale.observe(Batch(rewards=rewards, terminated=terminated, truncated=truncated, **row))
        found.append(float(1.0 / scale.transform(np.ones(1))[0]))
    # The sums are 1, 2, 3 without an end, and 1, 2, 1 with one.
    assert found == pytest.approx([np.std([1, 2, 3]), np.std([1, 2, 1]), np.std([1, 2, 1])])


def test_normalised_rewards_are_at_most_ten_deviations() -> None:
    scale = a_scale(normalize_reward=True)
    scale.observe(a_batch())
    assert scale.transform(np.array([-1e9, 1e9])).tolist() == [-10.0, 10.0]


def test_rewards_are_clipped_after_they_are_normalised() -> None:
    assert a_scale(clip_reward=[-1, 2]).transform(np.array([-9.0, 0.5, 9.0])).tolist() == [
        -1.0,
        0.5,
        2.0,
    ]
    both = a_scale(normalize_reward=True, clip_reward=[-0.01, 0.01])
    both.observe(a_batch())
    assert both.transform(np.array([-9.0, 9.0])).tolist() == [-0.01, 0.01]


def test_rewards_are_left_alone_unless_something_is_asked_for() -> None:
    scale, rewards = a_scale(), np.array([[1e9, -3.0]])
    scale.observe(a_batch())
    assert np.array_equal(scale.transform(rewards), rewards)
    assert scale.state() == StateTree()
    scale.load_state(StateTree())


def test_a_scale_goes_on_from_its_tensors() -> None:
    whole, resumed = (a_scale(normalize_reward=True) for _ in range(2))
    whole.observe(a_batch())
    state = whole.state()
    saved = state.tensors
    copies = {name: tensor.copy() for name, tensor in saved.items()}
    whole.observe(a_batch(seed=1))
    assert all(np.array_equal(saved[name], copies[name]) for name in saved)
    resumed.load_state(state)
    resumed.observe(a_batch(seed=1))
    assert {*saved} == {"count", "mean", "m2", "sums"}
    for name, tensor in whole.state().tensors.items():
        assert tensor.tobytes() == resumed.state().tensors[name].tobytes(), name
