"""QR-DQN: the quantile Huber loss and its targets, by hand and by naive loops."""

from copy import deepcopy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rl_orch.rl.algos.qrdqn import pairwise_errors, quantile_huber, quantile_targets
from rl_orch.rl.learn.q_learner import taken
from rl_orch.rl.policies.q_network import best_actions
from tests.unit.test_rl_dqn import EXACT, a_batch, a_learner, numbers


def naive_loss(quantiles: Tensor, targets: Tensor, kappa: float) -> list[float]:
    """Eq. 10 and algorithm 1 of Dabney et al. 2018, one pair at a time."""
    losses = []
    for predicted, wanted in zip(quantiles.tolist(), targets.tolist(), strict=True):
        total = 0.0
        for i, theta in enumerate(predicted):
            tau = (2 * (i + 1) - 1) / (2 * len(predicted))
            for goal in wanted:
                u = goal - theta
                huber = 0.5 * u * u if abs(u) <= kappa else kappa * (abs(u) - 0.5 * kappa)
                total += abs(tau - (1.0 if u < 0 else 0.0)) * huber / len(wanted)
        losses.append(total)
    return losses


def test_the_quantile_huber_loss_by_hand() -> None:
    quantiles = torch.tensor([[0.0, 2.0]], dtype=torch.float64)
    targets = torch.tensor([[0.5, 4.0]], dtype=torch.float64)
    # τ̂ = 1/4: u = 0.5 → 1/4 · 0.125, u = 4 → 1/4 · 3.5; their mean is 0.453125.
    # τ̂ = 3/4: u = -1.5 → 1/4 · 1, u = 2 → 3/4 · 1.5; their mean is 0.6875.
    loss = quantile_huber(pairwise_errors(quantiles, targets))
    assert loss.tolist() == pytest.approx([0.453125 + 0.6875], abs=EXACT)


def test_quantiles_too_high_and_too_low_cost_by_how_unlikely_that_should_be() -> None:
    errors = torch.tensor([[[2.0], [0.0]], [[-2.0], [0.0]]], dtype=torch.float64)
    # The lower of two quantiles: too low by 2 costs 1/4 of 1.5, too high by 2 costs 3/4 of it.
    assert quantile_huber(errors).tolist() == pytest.approx([0.375, 1.125], abs=EXACT)


@settings(deadline=None)
@given(
    rows=st.integers(1, 4),
    count=st.integers(1, 7),
    goals=st.integers(1, 7),
    seed=st.integers(0, 2**31),
    kappa=st.floats(0.1, 3.0),
)
def test_the_loss_is_that_of_a_naive_loop(
    rows: int, count: int, goals: int, seed: int, kappa: float
) -> None:
    quantiles, targets = 2.0 * numbers(seed, rows, count), 2.0 * numbers(seed + 1, rows, goals)
    errors = pairwise_errors(quantiles, targets)
    assert errors.shape == (rows, count, goals)
    loss = quantile_huber(errors, kappa)
    assert loss.tolist() == pytest.approx(naive_loss(quantiles, targets, kappa), abs=EXACT)


def test_the_loss_is_least_where_the_quantiles_are_those_of_the_targets() -> None:
    targets = numbers(0, 1, 2000) * 10.0
    quantiles = torch.zeros(1, 4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([quantiles], lr=20.0)
    for _ in range(1000):
        optimizer.zero_grad()
        quantile_huber(pairwise_errors(quantiles, targets), 0.1).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    midpoints = torch.tensor([0.125, 0.375, 0.625, 0.875], dtype=torch.float64)
    expected = targets.quantile(midpoints)
    torch.testing.assert_close(quantiles.detach()[0], expected, rtol=0, atol=0.1)


@settings(deadline=None)
@given(
    rows=st.integers(1, 5),
    choices=st.integers(1, 5),
    count=st.integers(1, 6),
    seed=st.integers(0, 2**31),
    double=st.booleans(),
    masked=st.booleans(),
)
def test_targets_are_those_of_a_naive_loop(
    rows: int, choices: int, count: int, seed: int, double: bool, masked: bool
) -> None:
    online, target = (numbers(seed + i, rows, choices, count) for i in range(2))
    rewards, discounts = numbers(seed + 2, rows), numbers(seed + 3, rows).sigmoid()
    allowed = numbers(seed + 4, rows, choices) > 0.0
    allowed[torch.arange(rows), torch.arange(rows) % choices] = True
    judged = online if double else target
    chosen = best_actions(judged.mean(-1), allowed if masked else None)
    targets = quantile_targets(rewards, discounts, target, chosen)
    for row in range(rows):
        means = {
            action: sum(judged[row, action].tolist()) / count
            for action in range(choices)
            if not masked or allowed[row, action]
        }
        best = max(means, key=lambda action: means[action])
        expected = [
            rewards[row].item() + discounts[row].item() * theta
            for theta in target[row, best].tolist()
        ]
        assert targets[row].tolist() == pytest.approx(expected, abs=EXACT)


@pytest.mark.parametrize("double", [False, True])
def test_an_update_descends_along_the_loss_of_the_sample_that_is_drawn(double: bool) -> None:
    options = {
        "train.double_q": double,
        "train.gradient_steps": 1,
        "train.target_update_interval": 10**6,
        "buffer.prioritized": True,
        "buffer.alpha": 1.0,
    }
    learner = a_learner("qrdqn", options)
    frozen = deepcopy(learner.policy.network)
    learner.update(a_batch(16))
    sampler = deepcopy(learner.replay)
    sampler.add(a_batch(16, 1))
    sample = sampler.sample(8, 0.032)
    drawn, online = learner.drawn(sample), deepcopy(learner.policy.network)
    with torch.no_grad():
        next_quantiles = frozen(drawn.next_inputs)
        judged = online(drawn.next_inputs) if double else next_quantiles
        following = taken(next_quantiles, judged.mean(-1).argmax(-1))
        targets = drawn.rewards[:, None] + drawn.discounts[:, None] * following
        quantiles = taken(online(drawn.inputs), drawn.actions)
    losses = torch.tensor(naive_loss(quantiles, targets, 1.0))

    metrics = learner.update(a_batch(16, 1))
    expected = (drawn.weights * losses).mean().item()
    assert metrics["losses/td_loss"] == pytest.approx(expected, rel=1e-4)
    assert metrics["losses/q_values"] == pytest.approx(quantiles.mean().item(), rel=1e-4)
    learner.replay.seal()
    kept = learner.replay.state().tensors["priorities"][sample.rows]
    errors = (targets[:, None, :] - quantiles[:, :, None]).abs().mean((1, 2)).numpy()
    assert kept == pytest.approx(errors + 1e-6, rel=1e-4)


def test_the_value_of_an_action_is_the_mean_of_its_quantiles() -> None:
    policy = a_learner("qrdqn").policy
    inputs = torch.ones(2, 3)
    expected = policy.network(inputs).sum(-1) / 5
    torch.testing.assert_close(policy.q_values(inputs), expected)
