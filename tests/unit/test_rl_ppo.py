"""PPO: its loss by hand, its optimiser against torch's, and what an update may depend on."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rl_orch.errors import Damaged, Diverged
from rl_orch.rl.algos.ppo import (
    PPO,
    approximate_kl,
    clipped_surrogate,
    value_error,
)
from rl_orch.rl.data.batch import Batch, on_host
from rl_orch.rl.data.schedules import scheduled
from rl_orch.rl.finite_numbers import FiniteNumbers
from rl_orch.rl.learn.learner import Learner, build_learner
from rl_orch.rl.learn.on_policy import standardized
from rl_orch.rl.learn.optimizer import Adam
from rl_orch.rl.policies.actor_critic import ActorCritic
from rl_orch.rl.policies.policy import Setup, policy_tensors
from rl_orch.spec.model import Spec

BOX = spaces.Box(-10.0, 10.0, (3,))


def a_spec(**train: Any) -> Spec:
    return Spec.model_validate(
        {
            "env": {"id": "Any-v0", "seed": 1},
            "rollout": {"steps": 16},
            "train": {"batch_size": 32, "total_timesteps": 640, "update_epochs": 3} | train,
        }
    )


def a_learner(**train: Any) -> PPO:
    setup = a_setup(**train)
    return PPO(ActorCritic.build(setup), setup)


def a_setup(**train: Any) -> Setup:
    return Setup(a_spec(**train), BOX, spaces.Discrete(2))


def a_rollout(rows: int = 64, seed: int = 0) -> Batch:
    """Random transitions."""
    rng = np.random.default_rng(seed)
    observations = rng.normal(size=(rows, 3)).astype(np.float32)
    actions = rng.integers(2, size=rows)
    return Batch(
        observations=observations,
        actions=actions,
        rewards=rng.normal(size=rows),
        terminated=rng.random(rows) < 0.1,
        truncated=np.zeros(rows, np.bool_),
        next_observations=rng.normal(size=(rows, 3)).astype(np.float32),
        extras={"valid": np.ones(rows, np.bool_), "first": np.zeros(rows, np.bool_)},
    )


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(
        np.array_equal(first[name], second[name]) for name in first
    )


def test_the_clipped_surrogate_by_hand() -> None:
    ratio = torch.tensor([1.5, 1.5, 0.5, 0.5, 1.1])
    advantages = torch.tensor([2.0, -2.0, 2.0, -2.0, 1.0])
    # min(3, 2.4), min(-3, -2.4), min(1, 1.6), min(-1, -1.6), 1.1
    assert clipped_surrogate(ratio, advantages, 0.2).item() == pytest.approx(
        (2.4 - 3 + 1 - 1.6 + 1.1) / 5
    )


def test_beyond_the_clip_range_the_gradient_vanishes_only_where_moving_on_would_pay() -> None:
    ratio = torch.tensor([1.5, 1.5, 0.5, 0.5], requires_grad=True)
    clipped_surrogate(ratio, torch.tensor([1.0, -1.0, 1.0, -1.0]), 0.2).backward()  # type: ignore[no-untyped-call]
    assert ratio.grad is not None
    assert ratio.grad.tolist() == [0.0, -0.25, 0.25, 0.0]


def test_the_value_error_by_hand_free_and_clipped() -> None:
    values, old, returns = (
        torch.tensor([3.0, 0.0]),
        torch.tensor([1.0, 0.0]),
        torch.tensor([4.0, 1.0]),
    )
    assert value_error(values, old, returns, None).item() == pytest.approx((1 + 1) / 2)
    assert value_error(values, old, returns, 0.5).item() == pytest.approx((2.5**2 + 1) / 2)


def test_the_kl_estimate_is_zero_for_no_change_and_never_negative() -> None:
    assert approximate_kl(torch.zeros(5)).item() == 0.0
    assert approximate_kl(torch.tensor([math.log(2.0)])).item() == pytest.approx(1 - math.log(2.0))
    assert approximate_kl(torch.randn(1000)).item() > 0.0


def test_advantages_are_standardised_and_one_alone_is_left() -> None:
    result = standardized(torch.tensor([1.0, 2.0, 3.0]))
    assert result.tolist() == pytest.approx([-1.0, 0.0, 1.0])
    assert standardized(torch.tensor([5.0])).tolist() == [5.0]


@pytest.mark.parametrize(
    ("schedule", "halfway", "end"),
    [("constant", 2.0, 2.0), ("linear", 1.0, 0.0), ("cosine", 1.0, 0.0)],
)
def test_schedules_start_full_and_end_where_they_should(
    schedule: str, halfway: float, end: float
) -> None:
    assert scheduled(schedule, 2.0, 0.0) == 2.0
    assert scheduled(schedule, 2.0, 0.5) == pytest.approx(halfway)
    assert scheduled(schedule, 2.0, 1.0) == scheduled(schedule, 2.0, 1.7) == pytest.approx(end)


@pytest.mark.parametrize("limit", [None, 0.5])
def test_our_adam_takes_the_steps_that_torchs_takes(limit: float | None) -> None:
    def a_net() -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))

    ours, theirs = a_net(), a_net()
    optimizer = Adam(ours, eps=1e-5, max_grad_norm=limit)
    reference = torch.optim.Adam(theirs.parameters(), lr=1e-2, eps=1e-5)
    inputs = torch.randn(20, 3, generator=torch.Generator().manual_seed(1))
    for _ in range(20):
        norm = optimizer.step(ours(inputs).square().sum(), 1e-2)
        reference.zero_grad()
        theirs(inputs).square().sum().backward()
        bound = math.inf if limit is None else limit
        expected = nn.utils.clip_grad_norm_(theirs.parameters(), bound)
        reference.step()
        assert norm.item() == pytest.approx(expected.item(), rel=1e-4)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other)


def test_an_optimisers_memory_of_another_size_is_refused() -> None:
    small, large = nn.Linear(1, 1), nn.Linear(2, 2)
    state = Adam(small, eps=1e-5, max_grad_norm=None).state()
    with pytest.raises(Damaged, match="remembers 2 parameters, the policy has 6"):
        Adam(large, eps=1e-5, max_grad_norm=None).load_state(state)


def test_the_spec_names_the_learner() -> None:
    learner: Learner = build_learner(a_setup())
    assert isinstance(learner, PPO)
    assert learner.behaviour.to_env == learner.policy.to_env
    assert learner.replay is None


def test_an_update_reports_finite_metrics_under_the_names_people_know() -> None:
    learner = a_learner()
    metrics = learner.update(a_rollout())
    assert set(metrics) == {
        *(f"losses/{name}" for name in ("policy_loss", "value_loss", "entropy", "approx_kl")),
        *(f"losses/{name}" for name in ("clipfrac", "explained_variance", "grad_norm")),
        "charts/learning_rate",
    }
    assert all(isinstance(value, float) and math.isfinite(value) for value in metrics.values())


def test_an_update_makes_what_paid_more_likely() -> None:
    learner = a_learner(lr=1e-2, gamma=0.5)
    batch = a_rollout()
    paid = replace(batch, rewards=np.where(on_host(batch.column("actions")) == 1, 1.0, -1.0))
    learner.update(paid)
    after, _ = learner.policy.assess(on_host(batch.column("observations")), np.ones(64, np.int64))
    assert np.exp(after).mean() > 0.6


def test_the_learning_rate_follows_its_schedule_by_steps_learned_from() -> None:
    learner = a_learner(lr=1.0, lr_schedule="linear", max_grad_norm=1e-9)
    rates = [learner.update(a_rollout())["charts/learning_rate"] for _ in range(3)]
    assert rates == pytest.approx([1.0, 0.9, 0.8])


def test_passes_stop_once_the_policy_has_moved_far_enough() -> None:
    free, held = a_learner(lr=1e-2), a_learner(lr=1e-2, target_kl=1e-6)
    for learner in (free, held):
        learner.update(a_rollout())
    assert free.state().tensors["optimizer/steps"] == 6
    assert held.state().tensors["optimizer/steps"] == 2


def test_rows_that_only_reset_an_environment_change_nothing() -> None:
    results = []
    for garbage in (0.0, 1e9):
        learner = a_learner()
        batch = a_rollout()
        valid, observations = np.ones(64, np.bool_), on_host(batch.column("observations")).copy()
        terminated = on_host(batch.column("terminated")).copy()
        for row in (5, 20):
            terminated[row - 1], valid[row], observations[row] = True, False, garbage
        learner.update(
            replace(batch, observations=observations, terminated=terminated).with_extras(
                valid=valid
            )
        )
        results.append(policy_tensors(learner.policy) | learner.state().tensors)
        assert learner.state().document == {"env_steps": 62}
    assert same(*results)


def test_an_update_depends_on_nothing_but_batch_and_state() -> None:
    first, second = a_learner(), a_learner()
    first.update(a_rollout())
    torch.manual_seed(99)
    second.update(a_rollout())
    assert same(policy_tensors(first.policy), policy_tensors(second.policy))


def test_a_learner_goes_on_from_its_state_as_if_it_had_never_stopped() -> None:
    whole = a_learner(lr_schedule="linear")
    whole.update(a_rollout())
    saved, state = policy_tensors(whole.policy), whole.state()
    whole.update(a_rollout(seed=2))

    resumed = a_learner(lr_schedule="linear")
    weights = {
        name.removeprefix("policies/default/"): torch.from_numpy(t) for name, t in saved.items()
    }
    resumed.policy.load_state_dict(weights)
    resumed.load_state(state)
    resumed.update(a_rollout(seed=2))
    assert same(policy_tensors(whole.policy), policy_tensors(resumed.policy))
    assert same(whole.state().tensors, resumed.state().tensors)


def test_a_loss_that_is_not_finite_is_named_with_the_step() -> None:
    learner = a_learner()
    with torch.no_grad():
        next(learner.policy.actor.parameters()).fill_(math.nan)
    with pytest.raises(
        Diverged, match=r"losses/policy_loss became -?(nan|inf) in the update at step 64"
    ):
        FiniteNumbers(1).updated(learner.update(a_rollout()), learner.env_steps)


def test_rows_that_are_not_whole_rollouts_are_refused() -> None:
    learner = a_learner()
    with pytest.raises(ValueError, match="60 rows are not whole rollouts of 16 steps"):
        learner.update(a_rollout().select(slice(0, 60)))
