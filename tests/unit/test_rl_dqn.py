"""DQN: its targets and losses by hand and by naive loops, and what an update may depend on."""

import math
from collections.abc import Mapping
from contextlib import closing
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from rl_orch.errors import Diverged
from rl_orch.rl.algos.dqn import DQN, huber, td_targets
from rl_orch.rl.algos.qrdqn import QRDQN
from rl_orch.rl.data.batch import Batch
from rl_orch.rl.evaluate import evaluate
from rl_orch.rl.finite_numbers import FiniteNumbers
from rl_orch.rl.learn.q_learner import QLearner, taken
from rl_orch.rl.policies.policy import PolicyInput, Setup, load_weights, policy_tensors
from rl_orch.rl.policies.q_network import QNetwork, best_actions, dueling
from rl_orch.rl.replay.buffer import LogSegment
from rl_orch.rl.train import Training
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from tests.learning import known_envs
from tests.learning.recorder import MemoryOutlet

BOX = spaces.Box(-10.0, 10.0, (3,))
EXACT = 1e-10

ALGORITHMS: dict[str, type[DQN] | type[QRDQN]] = {"dqn": DQN, "qrdqn": QRDQN}
both = pytest.mark.parametrize("algo", ["dqn", "qrdqn"])

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "double": {"train.double_q": True},
    "dueling": {"agent.network.dueling": True},
    "n-step": {"buffer.n_step": 3},
    "prioritised": {"buffer.prioritized": True},
    "soft target": {"train.tau": 0.3, "train.target_update_interval": 3},
    "scaled rewards": {"train.normalize_reward": True, "train.lr_schedule": "linear"},
    "masked": {"agent.action_masks": True},
}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Results depend on the number of threads."""
    torch.set_num_threads(1)


def a_spec(algo: str = "dqn", options: Mapping[str, Any] | None = None) -> Spec:
    """Small and quick; options are given by path."""
    chosen: dict[str, Any] = {
        "env.id": "Any-v0",
        "env.seed": 1,
        "agent.algorithm": algo,
        "agent.network.hidden_sizes": [16],
        "buffer.size": 256,
        "train.total_timesteps": 1000,
        "train.learning_starts": 0,
        "train.batch_size": 8,
        "train.gradient_steps": 2,
        "train.target_update_interval": 8,
        "train.lr": 1e-2,
        "train.n_quantiles": 5,
    } | dict(options or {})
    document: dict[str, Any] = {}
    for path, value in chosen.items():
        *groups, name = path.split(".")
        node = document
        for group in groups:
            node = node.setdefault(group, {})
        node[name] = value
    return resolve(document)


def a_learner(
    algo: str = "dqn", options: Mapping[str, Any] | None = None, *, choices: int = 3
) -> QLearner:
    setup = Setup(a_spec(algo, options), BOX, spaces.Discrete(choices))
    kind = ALGORITHMS[algo]
    return kind(kind.build_policy(setup), setup)


def a_batch(rows: int = 8, seed: int = 0, choices: int = 3, *, end: float = 0.2) -> Batch:
    """Random transitions of one copy; each state follows from the one before."""
    rng = np.random.default_rng(seed)
    seen = rng.normal(size=(rows + 1, 3)).astype(np.float32)
    terminated = rng.random(rows) < end
    first = np.concatenate([[True], terminated[:-1]])
    masks = rng.random((rows + 1, choices)) < 0.7
    masks[:, 0] = True
    return Batch(
        observations=seen[:-1],
        actions=rng.integers(choices, size=rows),
        rewards=rng.normal(size=rows),
        terminated=terminated,
        truncated=np.zeros(rows, np.bool_),
        next_observations=seen[1:],
        extras={
            "valid": np.ones(rows, np.bool_),
            "first": first,
            "masks": masks[:-1],
            "next_masks": masks[1:],
        },
    )


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(
        np.array_equal(first[name], second[name]) for name in first
    )


def target_of(learner: QLearner) -> dict[str, Any]:
    """The weights of the target network, named as those of the policy."""
    known = learner.state().tensors
    prefix = "learner/target/"
    return {
        f"policies/default/network.{name.removeprefix(prefix)}": tensor
        for name, tensor in known.items()
        if name.startswith(prefix)
    }


def numbers(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_target_by_hand() -> None:
    next_values = torch.tensor([[1.0, 3.0], [5.0, 2.0], [7.0, 8.0]], dtype=torch.float64)
    targets = td_targets(
        torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64),
        torch.tensor([0.9, 0.81, 0.0], dtype=torch.float64),
        next_values,
        best_actions(next_values, None),
    )
    # 1 + 0.9 · 3,  2 + 0.81 · 5,  and 3 where the episode is over
    assert targets.tolist() == pytest.approx([3.7, 6.05, 3.0], abs=EXACT)


def test_double_q_learning_takes_the_targets_value_of_the_online_networks_choice() -> None:
    online = torch.tensor([[2.0, 1.0]], dtype=torch.float64)
    target = torch.tensor([[-4.0, 9.0]], dtype=torch.float64)
    one = torch.ones(1, dtype=torch.float64)
    assert td_targets(one, 0.5 * one, target, best_actions(online, None)).tolist() == [-1.0]


def test_the_huber_loss_by_hand() -> None:
    errors = torch.tensor([0.0, 0.5, -0.5, 1.0, -3.0, 10.0], dtype=torch.float64)
    expected = [0.0, 0.125, 0.125, 0.5, 2.5, 9.5]
    assert huber(errors).tolist() == pytest.approx(expected, abs=EXACT)


def test_the_gradient_of_the_loss_is_the_error_clipped_to_one() -> None:
    errors = torch.tensor([0.25, -0.5, 3.0, -7.0], dtype=torch.float64, requires_grad=True)
    huber(errors).sum().backward()  # type: ignore[no-untyped-call]
    assert errors.grad is not None
    assert errors.grad.tolist() == [0.25, -0.5, 1.0, -1.0]


@settings(deadline=None)
@given(
    rows=st.integers(1, 9),
    choices=st.integers(1, 6),
    seed=st.integers(0, 2**31),
    double=st.booleans(),
    masked=st.booleans(),
)
def test_targets_are_those_of_a_naive_loop(
    rows: int, choices: int, seed: int, double: bool, masked: bool
) -> None:
    online, target = numbers(seed, rows, choices), numbers(seed + 1, rows, choices)
    rewards, discounts = numbers(seed + 2, rows), numbers(seed + 3, rows).sigmoid()
    allowed = numbers(seed + 4, rows, choices) > 0.0
    allowed[torch.arange(rows), torch.arange(rows) % choices] = True
    discounts[0] = 0.0
    expected = []
    for row in range(rows):
        judged = online[row] if double else target[row]
        best, found = -math.inf, -1
        for action in range(choices):
            if (not masked or allowed[row, action]) and judged[action].item() > best:
                best, found = judged[action].item(), action
        worth = target[row, found].item()
        expected.append(rewards[row].item() + discounts[row].item() * worth)

    chosen = best_actions(online if double else target, allowed if masked else None)
    targets = td_targets(rewards, discounts, target, chosen)
    assert targets.tolist() == pytest.approx(expected, abs=EXACT)


def test_where_nothing_is_allowed_any_more_the_target_is_still_a_number() -> None:
    values, one = torch.tensor([[1.0, 2.0]]), torch.ones(1)
    chosen = best_actions(values, torch.zeros(1, 2, dtype=torch.bool))
    assert td_targets(one, 0.0 * one, values, chosen).tolist() == [1.0]


@settings(deadline=None)
@given(
    rows=st.integers(1, 5),
    choices=st.integers(1, 5),
    rest=st.sampled_from([(), (1,), (4,)]),
    seed=st.integers(0, 2**31),
)
def test_dueling_streams_add_up_to_the_state_value_and_keep_the_order_of_advantages(
    rows: int, choices: int, rest: tuple[int, ...], seed: int
) -> None:
    value, advantages = numbers(seed, rows, 1, *rest), numbers(seed + 1, rows, choices, *rest)
    combined = dueling(value, advantages)
    assert combined.shape == advantages.shape
    torch.testing.assert_close(combined.mean(1, keepdim=True), value, rtol=0, atol=EXACT)
    assert torch.equal(combined.argmax(1), advantages.argmax(1))
    for row in range(rows):
        expected = value[row, 0] + advantages[row] - sum(advantages[row]) / choices
        torch.testing.assert_close(combined[row], expected, rtol=0, atol=EXACT)
    shifted = dueling(value, advantages + 3.0)
    torch.testing.assert_close(shifted, combined, rtol=0, atol=EXACT)


@both
def test_the_layers_of_a_dueling_network_are_shared_but_for_the_last(algo: str) -> None:
    options = {"agent.network.dueling": True, "agent.network.hidden_sizes": [16, 8]}
    network = a_learner(algo, options).policy.network
    shapes = {name: tuple(tensor.shape) for name, tensor in network.named_parameters()}
    outputs = 1 if algo == "dqn" else 5
    assert shapes["body.layers.0.weight"] == (16, 3)
    assert shapes["state_value.layers.0.weight"] == shapes["head.layers.0.weight"] == (8, 16)
    assert shapes["state_value.layers.1.weight"] == (outputs, 8)
    assert shapes["head.layers.1.weight"] == (3 * outputs, 8)
    assert len(shapes) == 10


@pytest.mark.parametrize("hidden", [[], [16], [16, 8]])
@pytest.mark.parametrize("dueling", [False, True])
@both
def test_networks_of_every_depth_give_a_value_for_each_action(
    algo: str, dueling: bool, hidden: list[int]
) -> None:
    options = {"agent.network.dueling": dueling, "agent.network.hidden_sizes": hidden}
    policy = a_learner(algo, options, choices=4).policy
    inputs = policy.to_inputs(np.ones((2, 3), np.float32))
    assert policy.network(inputs).shape == ((2, 4) if algo == "dqn" else (2, 4, 5))
    assert policy.q_values(inputs).shape == (2, 4)


@both
def test_the_policy_takes_the_best_action_that_is_allowed(algo: str) -> None:
    policy = a_learner(algo, choices=4).policy
    observations = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    values = policy.q_values(policy.to_inputs(observations)).detach().numpy()
    first = np.ones(50, np.bool_)
    free = policy.decide(PolicyInput(observations, first), None).actions
    assert free.tolist() == values.argmax(1).tolist()
    masks = np.ones((50, 4), np.bool_)
    masks[np.arange(50), free] = False
    held = policy.decide(PolicyInput(observations, first, masks=masks), None).actions
    assert held.tolist() == np.argsort(values, axis=1)[:, -2].tolist()


def test_actions_are_counted_from_where_the_space_counts_from() -> None:
    policy = QNetwork(Setup(a_spec(), BOX, spaces.Discrete(3, start=5)))
    assert policy.to_env(np.array([0, 2])).tolist() == [5, 7]


@both
def test_weights_follow_from_the_seed_alone_and_torchs_generator_is_left_alone(algo: str) -> None:
    before = torch.get_rng_state()
    first = policy_tensors(a_learner(algo).policy)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    assert same(first, policy_tensors(a_learner(algo).policy))
    assert not same(first, policy_tensors(a_learner(algo, {"env.seed": 2}).policy))


def test_an_update_is_the_one_that_torchs_own_functions_give() -> None:
    learner = a_learner("dqn", {"train.gradient_steps": 1, "train.max_grad_norm": 0.1})
    reference = deepcopy(learner.policy.network)
    frozen = deepcopy(reference)
    optimizer = torch.optim.Adam(reference.parameters(), lr=1e-2, eps=1e-8)
    for seed in range(5):
        sampler = deepcopy(learner.replay)
        sampler.add(a_batch(8, seed))
        sample = sampler.sample(8)
        if seed:
            frozen.load_state_dict(reference.state_dict())
        metrics = learner.update(a_batch(8, seed))

        observations, following = sample.observations, sample.next_observations
        assert isinstance(observations, np.ndarray)
        assert isinstance(following, np.ndarray)
        with torch.no_grad():
            best = frozen(torch.from_numpy(following)).max(1).values
        targets = torch.from_numpy(sample.rewards) + torch.from_numpy(sample.discounts) * best
        values = reference(torch.from_numpy(observations))
        chosen = values.gather(1, torch.from_numpy(sample.actions)[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(chosen, targets)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.1)
        optimizer.step()
        assert metrics["losses/td_loss"] == pytest.approx(loss.item(), rel=1e-5)
        assert metrics["losses/q_values"] == pytest.approx(chosen.mean().item(), rel=1e-4)
        assert metrics["losses/grad_norm"] == pytest.approx(norm.item(), rel=1e-4)
    for mine, other in zip(
        learner.policy.network.parameters(), reference.parameters(), strict=True
    ):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 5), seed=st.integers(0, 2**31), end=st.floats(0.0, 0.6))
def test_n_step_targets_are_those_of_a_walk_through_the_episode(
    n: int, seed: int, end: float
) -> None:
    options = {"buffer.n_step": n, "train.gamma": 0.5, "train.learning_starts": 999}
    learner = a_learner("dqn", options)
    rows, rng = 24, np.random.default_rng(seed)
    terminated = rng.random(rows) < end
    truncated = ~terminated & (rng.random(rows) < end / 2)
    dones = terminated | truncated
    # A state is its number; the one after an end begins a new episode.
    seen = np.repeat(np.arange(rows, dtype=np.float32)[:, None], 3, axis=1)
    rewards = rng.integers(-4, 5, rows).astype(np.float64)
    learner.update(
        Batch(
            observations=seen,
            actions=np.zeros(rows, np.int64),
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            next_observations=seen + 1.0,
            extras={
                "valid": np.ones(rows, np.bool_),
                "first": np.concatenate([[True], dones[:-1]]),
            },
        )
    )
    if len(learner.replay) == 0:
        assert n > 1
        return
    drawn = learner.drawn(learner.replay.sample(64))
    assert isinstance(drawn.inputs, Tensor)
    assert isinstance(drawn.next_inputs, Tensor)
    worth = drawn.next_inputs[:, :1] * 2.0  # V(s) = 2 s
    targets = td_targets(
        drawn.rewards, drawn.discounts, worth, torch.zeros(len(worth), dtype=torch.int64)
    )
    for row, target in zip(drawn.inputs[:, 0].long().tolist(), targets.tolist(), strict=True):
        expected, factor = 0.0, 1.0
        for step in range(row, row + n):
            expected += factor * rewards[step]
            factor *= 0.5
            if dones[step]:
                break
        expected += 0.0 if terminated[step] else factor * 2.0 * (step + 1)
        assert target == expected


@both
def test_the_target_network_follows_at_every_multiple_of_its_interval(algo: str) -> None:
    learner = a_learner(algo, {"train.target_update_interval": 10})
    previous, moved = policy_tensors(learner.policy), []
    for seed in range(10):
        before = target_of(learner)
        learner.update(a_batch(4, seed))
        after = target_of(learner)
        if not same(before, after):
            assert same(after, previous)
            moved.append(learner.env_steps)
        previous = policy_tensors(learner.policy)
    # 10 is passed at 12, 20 and 40 are met; the first samples are learned from at 4.
    assert moved == [12, 20, 32, 40]


def test_several_multiples_at_once_move_the_target_as_far_as_one_after_the_other() -> None:
    learner = a_learner("dqn", {"train.tau": 0.25, "train.target_update_interval": 2})
    learner.update(a_batch(8))
    before, online = target_of(learner), policy_tensors(learner.policy)
    learner.update(a_batch(6, 1))
    for name, tensor in target_of(learner).items():
        expected = before[name]
        for _ in range(3):
            expected = expected + 0.25 * (online[name] - expected)
        np.testing.assert_allclose(tensor, expected, rtol=1e-5, atol=1e-7)


@both
def test_nothing_is_learned_and_all_is_random_until_learning_starts(algo: str) -> None:
    options = {"train.learning_starts": 16, "train.exploration_initial_eps": 0.5}
    learner = a_learner(algo, options)
    before = policy_tensors(learner.policy)
    assert learner.update(a_batch(8)) == {}
    assert learner.behaviour.epsilon == 1.0
    assert same(before, policy_tensors(learner.policy))
    metrics = learner.update(a_batch(8, 1))
    assert metrics["charts/epsilon"] == 1.0
    assert learner.behaviour.epsilon < 0.5
    assert not same(before, policy_tensors(learner.policy))


def test_the_share_of_random_actions_falls_with_the_budget() -> None:
    options = {"train.exploration_fraction": 0.04, "train.exploration_final_eps": 0.2}
    learner = a_learner("dqn", options)
    shares = [learner.update(a_batch(8, seed))["charts/epsilon"] for seed in range(7)]
    assert shares == pytest.approx([1.0, 0.84, 0.68, 0.52, 0.36, 0.2, 0.2])


@both
def test_an_update_reports_finite_metrics_under_the_names_people_know(algo: str) -> None:
    metrics = a_learner(algo).update(a_batch())
    assert set(metrics) == {
        *("losses/td_loss", "losses/q_values", "losses/grad_norm"),
        *("charts/learning_rate", "charts/epsilon"),
    }
    assert all(isinstance(value, float) and math.isfinite(value) for value in metrics.values())


def test_priorities_are_the_errors_and_their_weights_count_in_the_loss() -> None:
    options = {"buffer.prioritized": True, "buffer.alpha": 1.0, "train.gradient_steps": 1}
    learner = a_learner("dqn", options)
    learner.update(a_batch(16))
    sampler = deepcopy(learner.replay)
    sampler.add(a_batch(16, 1))
    sample = sampler.sample(8, 0.032)
    assert sample.weights.min() < 1.0
    drawn = learner.drawn(sample)
    online = deepcopy(learner.policy.network)  # the target follows it before the sample is learned
    with torch.no_grad():
        best = online(drawn.next_inputs).max(1).values
        errors = drawn.rewards + drawn.discounts * best - taken(online(drawn.inputs), drawn.actions)
    metrics = learner.update(a_batch(16, 1))
    expected = (drawn.weights * huber(errors)).mean().item()
    assert metrics["losses/td_loss"] == pytest.approx(expected, rel=1e-5)
    learner.replay.seal()
    state = learner.replay.state()
    numbers = sample.rows - state.document["oldest"]
    kept = state.tensors["priorities"][numbers]
    assert kept == pytest.approx(errors.abs().numpy() + 1e-6, rel=1e-4)


@pytest.mark.parametrize("variant", VARIANTS)
@both
def test_a_learner_goes_on_from_its_state_as_if_it_had_never_stopped(
    algo: str, variant: str
) -> None:
    whole, segments = a_learner(algo, VARIANTS[variant]), {}
    for seed in range(5):
        whole.update(a_batch(6, seed))
    segment = whole.replay.seal()
    assert isinstance(segment, LogSegment)
    segments[segment.name] = segment.arrays
    saved, state, replay = policy_tensors(whole.policy), whole.state(), whole.replay.state()

    resumed = a_learner(algo, VARIANTS[variant])
    load_weights(resumed.policy, saved)
    resumed.replay.load(replay, segments.__getitem__)
    resumed.load_state(state)
    assert resumed.behaviour.epsilon == whole.behaviour.epsilon
    for seed in range(5, 9):
        assert whole.update(a_batch(6, seed)) == resumed.update(a_batch(6, seed))
        assert same(policy_tensors(whole.policy), policy_tensors(resumed.policy))
        assert same(whole.state().tensors, resumed.state().tensors)
        assert whole.state().document == resumed.state().document


@pytest.mark.parametrize("variant", VARIANTS)
@both
def test_an_update_depends_on_nothing_but_batch_and_state(algo: str, variant: str) -> None:
    results = []
    for seed in (1, 99):
        torch.manual_seed(seed)
        learner = a_learner(algo, VARIANTS[variant])
        learner.update(a_batch(12))
        results.append(policy_tensors(learner.policy) | learner.state().tensors)
    assert same(*results)


@both
def test_networks_may_run_in_bfloat16_while_weights_stay_in_float32(algo: str) -> None:
    plain, half = a_learner(algo), a_learner(algo, {"train.precision": "bfloat16"})
    exact, rough = plain.update(a_batch(12)), half.update(a_batch(12))
    assert rough["losses/td_loss"] == pytest.approx(exact["losses/td_loss"], rel=0.1)
    assert rough["losses/td_loss"] != exact["losses/td_loss"]
    assert {tensor.dtype for tensor in policy_tensors(half.policy).values()} == {
        np.dtype(np.float32)
    }


@both
def test_a_loss_that_is_not_finite_is_named_with_the_step(algo: str) -> None:
    learner = a_learner(algo)
    with torch.no_grad():
        for parameter in learner.policy.parameters():
            parameter.fill_(math.inf)
    with pytest.raises(Diverged, match=r"losses/td_loss became nan in the update at step 8"):
        FiniteNumbers(1).updated(learner.update(a_batch()), learner.env_steps)


def known(algo: str, env: str, steps: int, **options: Any) -> float:
    """The mean return, over 20 fresh episodes, of what is learned in an environment whose best
    return is known."""
    chosen: dict[str, Any] = {
        "env.id": f"{known_envs.MODULE}:{env}-v0",
        "env.num_envs": 4,
        "buffer.size": 10_000,
        "rollout.steps": 4,
        "train.total_timesteps": steps,
        "train.learning_starts": 200,
        "train.batch_size": 32,
        "train.gradient_steps": 4,
        "train.target_update_interval": 32,
        "train.lr": 3e-3,
        "train.gamma": 0.5,
        "train.exploration_fraction": 0.5,
        "eval.every": steps,
    }
    spec = a_spec(algo, chosen | options)
    with closing(Training(spec, MemoryOutlet())) as training:
        training.run()
        report = evaluate(
            training.policy, spec, episodes=20, seed=7, deterministic=True, step=steps
        )
    return report.summary.mean


@both
def test_the_best_arm_of_a_bandit_is_found(algo: str) -> None:
    assert known(algo, "Bandit", 1_000) == 1.0


@pytest.mark.parametrize("variant", ["plain", "double", "dueling", "n-step", "prioritised"])
@both
def test_discrete_observations_are_told_apart_and_answered(algo: str, variant: str) -> None:
    assert known(algo, "Identity", 2_000, **VARIANTS[variant]) == 16.0
