"""A2C: its gradient by hand, one update against plain torch, and what an update may depend on."""

import math
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rl_orch.errors import Diverged
from rl_orch.rl.algos.a2c import A2C, policy_gradient
from rl_orch.rl.data.batch import Batch, on_host
from rl_orch.rl.finite_numbers import FiniteNumbers
from rl_orch.rl.learn.learner import Learner, build_learner
from rl_orch.rl.policies.actor_critic import ActorCritic
from rl_orch.rl.policies.policy import Setup, load_weights, policy_tensors
from rl_orch.spec.resolve import resolve

BOX = spaces.Box(-10.0, 10.0, (3,))
STEPS, COPIES = 8, 4


def a_learner(**train: Any) -> A2C:
    setup = a_setup(**train)
    return A2C(A2C.build_policy(setup), setup)


def a_setup(feature: str = "auto", **train: Any) -> Setup:
    spec = resolve(
        {
            "env": {"id": "Any-v0", "seed": 1, "num_envs": COPIES},
            "agent": {"algorithm": "a2c", "network": {"hidden_sizes": [16]}},
            "feature": {"encoder": feature},
            "rollout": {"steps": STEPS},
            "train": {"total_timesteps": 10 * STEPS * COPIES} | train,
        }
    )
    return Setup(spec, BOX, spaces.Discrete(2))


def a_rollout(seed: int = 0) -> Batch:
    """Random transitions, of which a few end their episodes in either way."""
    rng = np.random.default_rng(seed)
    rows = STEPS * COPIES
    ends = rng.random(rows)
    return Batch(
        observations=rng.normal(size=(rows, 3)).astype(np.float32),
        actions=rng.integers(2, size=rows),
        rewards=rng.normal(size=rows),
        terminated=ends < 0.1,
        truncated=ends > 0.9,
        next_observations=rng.normal(size=(rows, 3)).astype(np.float32),
        extras={"valid": np.ones(rows, np.bool_), "first": np.zeros(rows, np.bool_)},
    )


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(
        np.array_equal(first[name], second[name]) for name in first
    )


def by_hand(policy: ActorCritic, batch: Batch, options: Any) -> dict[str, float]:
    """One update of a policy by a loop over copies and torch's RMSprop; the terms of its loss."""
    seen, following = on_host(batch.column("observations")), host(batch.next_observations)
    rewards = on_host(batch.column("rewards"))
    terminated, truncated = (on_host(batch.column(n)) for n in ("terminated", "truncated"))
    with torch.no_grad():
        values = policy.values(seen).astype(np.float64)
        finals = policy.values(following).astype(np.float64)
    targets = np.zeros(len(batch))
    for copy in range(COPIES):
        last = (copy + 1) * STEPS - 1
        ahead = finals[last]
        for row in range(last, copy * STEPS - 1, -1):
            if terminated[row]:
                ahead = 0.0
            elif truncated[row]:
                ahead = finals[row]
            ahead = targets[row] = rewards[row] + options.gamma * ahead
    returns = torch.from_numpy(targets).float()
    advantages = returns - torch.from_numpy(values).float()
    distribution, now = policy(torch.from_numpy(seen))
    chosen = torch.distributions.Categorical(logits=distribution.logits)
    actions = torch.from_numpy(on_host(batch.column("actions")))
    log_prob = chosen.log_prob(actions)  # type: ignore[no-untyped-call]
    entropy = chosen.entropy().mean()  # type: ignore[no-untyped-call]
    policy_loss = -(log_prob * advantages).mean()
    value_loss = (now - returns).square().mean()
    loss = policy_loss + options.vf_coef * value_loss - options.ent_coef * entropy
    optimizer = torch.optim.RMSprop(policy.parameters(), lr=options.lr, alpha=0.99, eps=1e-5)
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(policy.parameters(), options.max_grad_norm)
    optimizer.step()
    terms = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
    return {f"losses/{name}": term.item() for name, term in (terms | {"grad_norm": norm}).items()}


def host(column: Any) -> Any:
    return np.asarray(column)


def test_the_policy_gradient_by_hand() -> None:
    log_prob = torch.tensor([-1.0, -2.0], requires_grad=True)
    loss = policy_gradient(log_prob, torch.tensor([3.0, -0.5]))
    assert loss.item() == pytest.approx((3.0 - 1.0) / 2)
    loss.backward()  # type: ignore[no-untyped-call]
    assert log_prob.grad is not None
    assert log_prob.grad.tolist() == [-1.5, 0.25]


@pytest.mark.parametrize("ent_coef", [0.0, 0.02])
def test_an_update_is_the_one_that_plain_torch_makes(ent_coef: float) -> None:
    learner = a_learner(ent_coef=ent_coef, gamma=0.9)
    reference, batch = deepcopy(learner.policy), a_rollout()
    expected = by_hand(reference, batch, learner_options(ent_coef=ent_coef, gamma=0.9))
    metrics = learner.update(batch)
    for name, value in expected.items():
        assert metrics[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name
    for mine, theirs in zip(learner.policy.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def learner_options(**train: Any) -> Any:
    return a_setup(**train).spec.train


def test_the_spec_names_the_learner_and_its_own_defaults() -> None:
    learner: Learner = build_learner(a_setup())
    assert isinstance(learner, A2C)
    assert learner.replay is None
    options = learner_options()
    assert (options.optimizer, options.gae_lambda, options.lr) == ("rmsprop", 1.0, 7e-4)


def test_an_update_reports_finite_metrics_under_the_names_people_know() -> None:
    metrics = a_learner().update(a_rollout())
    losses = ("policy_loss", "value_loss", "entropy", "grad_norm", "explained_variance")
    assert set(metrics) == {*(f"losses/{name}" for name in losses), "charts/learning_rate"}
    assert all(isinstance(value, float) and math.isfinite(value) for value in metrics.values())


def test_updates_make_what_paid_more_likely() -> None:
    learner = a_learner(lr=1e-2, gamma=0.5)
    batch = a_rollout()
    paid = replace(batch, rewards=np.where(on_host(batch.column("actions")) == 1, 1.0, -1.0))
    for _ in range(10):
        learner.update(paid)
    ones = np.ones(len(batch), np.int64)
    after, _ = learner.policy.assess(on_host(batch.column("observations")), ones)
    assert np.exp(after).mean() > 0.6


def test_the_learning_rate_follows_its_schedule_by_steps_learned_from() -> None:
    learner = a_learner(lr=1.0, lr_schedule="linear", max_grad_norm=1e-9)
    rates = [learner.update(a_rollout())["charts/learning_rate"] for _ in range(3)]
    assert rates == pytest.approx([1.0, 0.9, 0.8])


def test_rows_that_only_reset_an_environment_change_nothing() -> None:
    results = []
    for garbage in (0.0, 1e9):
        learner, batch = a_learner(), a_rollout()
        valid, observations = np.ones(32, np.bool_), on_host(batch.column("observations")).copy()
        terminated = on_host(batch.column("terminated")).copy()
        for row in (5, 20):
            terminated[row - 1], valid[row], observations[row] = True, False, garbage
        changed = replace(batch, observations=observations, terminated=terminated)
        learner.update(changed.with_extras(valid=valid))
        results.append(policy_tensors(learner.policy) | learner.state().tensors)
        assert learner.state().document == {"env_steps": 30}
    assert same(*results)


@pytest.mark.parametrize("normalize_reward", [False, True])
def test_a_learner_goes_on_from_its_state_as_if_it_had_never_stopped(
    normalize_reward: bool,
) -> None:
    options: dict[str, Any] = {"lr_schedule": "linear", "normalize_reward": normalize_reward}
    whole = a_learner(**options)
    whole.update(a_rollout())
    saved, state = policy_tensors(whole.policy), whole.state()
    whole.update(a_rollout(seed=2))
    resumed = a_learner(**options)
    load_weights(resumed.policy, saved)
    resumed.load_state(state)
    torch.manual_seed(99)
    resumed.update(a_rollout(seed=2))
    assert same(policy_tensors(whole.policy), policy_tensors(resumed.policy))
    assert same(whole.state().tensors, resumed.state().tensors)
    assert ("rewards/sums" in state.tensors) is normalize_reward


def test_advantages_are_standardised_where_that_is_asked_for() -> None:
    terms = []
    for scale in (1.0, 1000.0):
        learner, batch = a_learner(normalize_advantage=True), a_rollout()
        with torch.no_grad():
            for parameter in learner.policy.critic.parameters():
                parameter.zero_()
        scaled = replace(batch, rewards=scale * on_host(batch.column("rewards")))
        terms.append(learner.update(scaled)["losses/policy_loss"])
    assert terms[0] == pytest.approx(terms[1], rel=1e-3, abs=1e-6)


def test_a_loss_that_is_not_finite_is_named_with_the_step() -> None:
    learner = a_learner()
    with torch.no_grad():
        next(learner.policy.actor.parameters()).fill_(math.nan)
    with pytest.raises(Diverged, match="losses/policy_loss became nan in the update at step 32"):
        FiniteNumbers(1).updated(learner.update(a_rollout()), learner.env_steps)
