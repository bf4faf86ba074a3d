"""TD3: its target by hand, updates against plain ones, when the policy moves, and resuming."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import Space, spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rl_orch.rl.algos.td3 import TD3, clipped_target, smoothed
from rl_orch.rl.data.batch import Batch
from rl_orch.rl.learn.learner import build_learner
from rl_orch.rl.policies.policy import PolicyInput, Setup, load_weights, policy_tensors
from rl_orch.spec.resolve import resolve

OBS = spaces.Box(-10.0, 10.0, (3,))
ACTIONS = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32))


def a_learner(*overrides: str, sees: Space[Any] = OBS, does: Space[Any] = ACTIONS) -> TD3:
    document = {
        "agent": {"algorithm": "td3", "network": {"hidden_sizes": [8]}},
        "env": {"id": "Any-v0", "seed": 1},
        "train": {"batch_size": 16, "total_timesteps": 1000, "learning_starts": 0},
        "buffer": {"size": 500},
    }
    learner = build_learner(Setup(resolve(document, overrides=overrides), sees, does))
    assert isinstance(learner, TD3)
    return learner


def a_batch(learner: TD3, rows: int = 32, seed: int = 0) -> Batch:
    """Random transitions of one copy, in episodes of eight; some of them are cut short."""
    rng = np.random.default_rng(seed)
    policy, steps = learner.policy, np.arange(rows)
    ended = steps % 8 == 7
    return Batch(
        observations=observed(policy.observation_space, rng, rows),
        actions=rng.uniform(-1.0, 1.0, (rows, *(policy.action_space.shape or ()))),
        rewards=rng.normal(size=rows),
        terminated=ended & (steps % 16 == 7),
        truncated=ended & (steps % 16 == 15),
        next_observations=observed(policy.observation_space, rng, rows),
        extras={"valid": np.ones(rows, np.bool_), "first": steps % 8 == 0},
    )


def observed(space: Space[Any], rng: np.random.Generator, rows: int) -> Any:
    if isinstance(space, spaces.Dict):
        return {name: observed(part, rng, rows) for name, part in space.items()}
    shape = (rows, *(space.shape or ()))
    if space.dtype == np.uint8:
        return rng.integers(256, size=shape).astype(np.uint8)
    return rng.normal(size=shape).astype(np.float32)


def all_tensors(learner: TD3) -> dict[str, Any]:
    return policy_tensors(learner.policy) | learner.state().tensors


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(
        np.array_equal(first[name], second[name]) for name in first
    )


def doubles(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_the_clipped_target_by_hand() -> None:
    target = clipped_target(
        rewards=doubles(1.0, -2.0, 0.5),
        discounts=doubles(0.9, 0.0, 0.81),
        next_q=torch.stack((doubles(3.0, 5.0, -1.0), doubles(2.0, 7.0, 4.0))),
    )
    assert target.tolist() == pytest.approx([1.0 + 1.8, -2.0, 0.5 - 0.81], abs=1e-10)


def test_the_smoothed_action_by_hand() -> None:
    actions, noise = doubles(0.0, 0.0, 0.9, -0.9, 0.3), doubles(0.2, 0.8, 0.4, -0.7, -0.1)
    # Noise is clipped to half, then the action to one.
    assert smoothed(actions, noise, 0.5).tolist() == pytest.approx(
        [0.2, 0.5, 1.0, -1.0, 0.2], abs=1e-10
    )


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 50),
    size=st.integers(1, 6),
    clip=st.floats(0.0, 2.0),
    seed=st.integers(0, 2**31),
)
def test_smoothing_stays_within_its_bounds_and_the_box(
    rows: int, size: int, clip: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    actions, noise = rng.uniform(-1, 1, (rows, size)), rng.normal(size=(rows, size)) * 2
    found = smoothed(torch.from_numpy(actions), torch.from_numpy(noise), clip).numpy()
    assert np.abs(found).max() <= 1.0
    assert np.abs(found - actions).max() <= clip + 1e-12
    expected = np.minimum(
        np.maximum(actions + np.sign(noise) * np.minimum(abs(noise), clip), -1), 1
    )
    assert np.allclose(found, expected, rtol=0.0, atol=1e-10)


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(1, 300), seed=st.integers(0, 2**31))
def test_the_target_agrees_with_its_rows(rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    next_q, (rewards, discounts) = rng.normal(size=(2, rows)), rng.normal(size=(2, rows))
    t = torch.from_numpy
    found = clipped_target(t(rewards), t(discounts), t(next_q)).tolist()
    expected = [rewards[i] + discounts[i] * min(next_q[:, i]) for i in range(rows)]
    assert found == pytest.approx(expected, abs=1e-10)


class Plain:
    """TD3 as one would write it down: torch's own optimisers, in float64."""

    def __init__(self, learner: TD3) -> None:
        def leaves(module: nn.Module) -> dict[str, Tensor]:
            return {k: p.detach().double().requires_grad_() for k, p in module.named_parameters()}

        self.options = learner.options
        self.actor, self.critics = leaves(learner.policy.actor), leaves(learner.critics)
        self.target_actor = leaves(learner.target_policy.module)
        self.target_critics = leaves(learner.target_critics.module)
        self.noise = torch.Generator()
        self.noise.set_state(learner.noise.get_state())
        groups = (self.actor.values(), self.critics.values())
        self.adams = [torch.optim.Adam(group, lr=1e-3, eps=1e-8) for group in groups]

    @staticmethod
    def layers(weights: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
        x = torch.relu(x @ weights[f"{name}.layers.0.weight"].T + weights[f"{name}.layers.0.bias"])
        return x @ weights[f"{name}.layers.1.weight"].T + weights[f"{name}.layers.1.bias"]

    def q(self, weights: dict[str, Tensor], which: str, s: Tensor, a: Tensor) -> Tensor:
        return self.layers(weights, which, torch.cat((s, a), 1)).squeeze(1)

    def step(self, which: int, loss: Tensor) -> None:
        self.adams[which].zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.adams[which].step()

    def update(self, sample: Any, number: int) -> None:
        s, a, r, s2, d, w = (
            torch.from_numpy(np.asarray(column)).double()
            for column in (
                *(sample.observations, sample.actions, sample.rewards),
                *(sample.next_observations, sample.discounts, sample.weights),
            )
        )
        noise = torch.empty(len(a), 2).normal_(generator=self.noise).double()
        with torch.no_grad():
            a2 = torch.tanh(self.layers(self.target_actor, "net", s2))
            a2 = (a2 + (0.2 * noise).clamp(-0.5, 0.5)).clamp(-1, 1)
            q1, q2 = (self.q(self.target_critics, name, s2, a2) for name in ("first", "second"))
            y = r + d * torch.min(q1, q2)
        q1, q2 = (self.q(self.critics, name, s, a) for name in ("first", "second"))
        self.step(1, (w * (q1 - y) ** 2).mean() + (w * (q2 - y) ** 2).mean())
        if number % self.options.policy_delay:
            return
        actions = torch.tanh(self.layers(self.actor, "net", s))
        self.step(0, -self.q(self.critics, "first", s, actions).mean())
        pairs = ((self.target_actor, self.actor), (self.target_critics, self.critics))
        with torch.no_grad():
            for slow, fast in pairs:
                for name, weight in slow.items():
                    weight.copy_((1 - self.options.tau) * weight + self.options.tau * fast[name])


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("buffer.prioritized=true", "buffer.n_step=3", "train.tau=0.5", "train.policy_delay=3"),
    ],
)
def test_updates_are_those_of_a_plain_implementation(overrides: tuple[str, ...]) -> None:
    learner = a_learner(*overrides)
    learner.replay.add(a_batch(learner, 64))
    plain = Plain(learner)
    for number in range(1, 7):
        sample = learner.replay.sample(16)
        plain.update(sample, number)
        learner.improve(sample)
        learner.updates += 1
    pairs = (
        (learner.policy.actor, plain.actor),
        (learner.critics, plain.critics),
        (learner.target_policy.module, plain.target_actor),
        (learner.target_critics.module, plain.target_critics),
    )
    for module, expected in pairs:
        for name, parameter in module.named_parameters():
            assert torch.allclose(parameter.double(), expected[name], rtol=0, atol=5e-6), name


def test_policy_and_slow_copies_move_only_in_every_delayed_update() -> None:
    learner = a_learner("train.policy_delay=3")
    learner.replay.add(a_batch(learner, 64))
    delayed = ("policies/", "learner/target_policy/", "learner/target_critics/", "optimizer/policy")
    moved = []
    for _ in range(7):
        before = all_tensors(learner)
        learner.improve(learner.replay.sample(16))
        learner.updates += 1
        after = all_tensors(learner)
        changed = {name for name in before if not np.array_equal(before[name], after[name])}
        assert any(name.startswith("learner/critics/") for name in changed)
        still = [name for name in changed if name.startswith(delayed)]
        assert not still or {name.partition(".")[0] for name in still} >= {
            "policies/default/actor",
            "learner/target_policy/net",
            "learner/target_critics/first",
            "learner/target_critics/second",
        }
        moved.append(bool(still))
    assert moved == [False, False, True, False, False, True, False]


def test_the_policy_s_loss_is_reported_until_the_policy_moves_again() -> None:
    learner = a_learner()
    losses = [learner.update(a_batch(learner, seed=s))["losses/actor_loss"] for s in range(4)]
    assert losses[0] == 0.0
    assert losses[1] == losses[2] != 0.0
    assert losses[3] != losses[2]


def test_exploration_is_uniform_at_first_and_then_noise_around_the_policy() -> None:
    learner = a_learner("train.learning_starts=40", "train.action_noise=0.1")
    generator = torch.Generator().manual_seed(0)
    many = PolicyInput(np.zeros((4000, 3), np.float32), np.zeros(4000, np.bool_))
    uniform = learner.behaviour.decide(many, generator).actions
    assert np.quantile(uniform, [0.0, 0.25, 0.5, 0.75, 1.0]) == pytest.approx(
        [-1.0, -0.5, 0.0, 0.5, 1.0], abs=0.05
    )
    before = policy_tensors(learner.policy)
    assert learner.update(a_batch(learner, 32)) == {}
    assert same(before, policy_tensors(learner.policy))
    assert {*learner.METRICS, "charts/learning_rate"} == {*learner.update(a_batch(learner, 32))}
    noisy = learner.behaviour.decide(many, generator).actions
    played = learner.policy.decide(many, generator).actions
    assert np.array_equal(played, learner.policy.decide(many, None).actions)
    assert (noisy - played).std() == pytest.approx(0.1, rel=0.05)
    assert np.abs(noisy).max() <= 1.0


def test_actions_are_stretched_for_the_environment() -> None:
    policy = a_learner().policy
    assert policy.to_env(np.array([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]])).tolist() == [
        [-2.0, 0.0],
        [0.0, 0.5],
        [2.0, 1.0],
    ]


def test_weights_follow_from_the_seed_and_slow_copies_start_as_copies() -> None:
    torch.manual_seed(0)
    first = a_learner()
    torch.manual_seed(1)
    second, other = a_learner(), a_learner("env.seed=2")
    assert same(all_tensors(first), all_tensors(second))
    assert not same(policy_tensors(first.policy), policy_tensors(other.policy))
    for slow, fast in (
        (first.target_policy.module, first.policy.actor),
        (first.target_critics.module, first.critics),
    ):
        for mine, theirs in zip(slow.parameters(), fast.parameters(), strict=True):
            assert torch.equal(mine, theirs)
            assert mine.data_ptr() != theirs.data_ptr()


def copied(learner: TD3, *overrides: str) -> TD3:
    """Another learner that goes on from where the first is, through a snapshot's parts."""
    segment = learner.replay.seal()
    assert segment is not None
    kept, state = learner.replay.state(), learner.state()
    other = a_learner(*overrides)
    load_weights(other.policy, policy_tensors(learner.policy))
    other.replay.load(kept, lambda name: {segment.name: segment.arrays}[name])
    other.load_state(state)
    return other


@pytest.mark.parametrize(
    "overrides",
    [
        ("train.gradient_steps=3",),
        ("buffer.prioritized=true", "buffer.n_step=3", "train.lr_schedule=linear"),
        ("train.policy_delay=4", "train.optimizer=rmsprop", "train.max_grad_norm=0.1"),
        ("train.learning_starts=50",),
    ],
)
def test_going_on_from_a_state_is_bitwise_the_same(overrides: tuple[str, ...]) -> None:
    learner = a_learner(*overrides)
    learner.update(a_batch(learner, 32, seed=1))
    other = copied(learner, *overrides)
    assert same(all_tensors(learner), all_tensors(other))
    for seed in (2, 3):
        batch = a_batch(learner, 32, seed)
        assert learner.update(batch) == other.update(batch)
    assert same(all_tensors(learner), all_tensors(other))
    seen = PolicyInput(np.zeros((3, 3), np.float32), np.zeros(3, np.bool_))
    first, second = (
        each.behaviour.decide(seen, torch.Generator().manual_seed(5)).actions
        for each in (learner, other)
    )
    assert np.array_equal(first, second)


@settings(max_examples=15, deadline=None)
@given(
    observed_shape=st.lists(st.integers(1, 4), max_size=2),
    action_shape=st.lists(st.integers(1, 3), min_size=1, max_size=2),
    hidden=st.lists(st.integers(1, 9), max_size=2),
)
def test_every_shape_of_vectors_and_networks_can_be_learned_about(
    observed_shape: list[int], action_shape: list[int], hidden: list[int]
) -> None:
    learner = a_learner(
        f"agent.network.hidden_sizes={hidden}",
        sees=spaces.Box(-10.0, 10.0, tuple(observed_shape)),
        does=spaces.Box(-3.0, 3.0, tuple(action_shape)),
    )
    metrics = [learner.update(a_batch(learner)) for _ in range(2)][-1]
    assert all(math.isfinite(value) for value in metrics.values())
    seen = PolicyInput(np.zeros((4, *observed_shape), np.float32), np.ones(4, np.bool_))
    decision = learner.behaviour.decide(seen, torch.Generator())
    assert decision.actions.shape == (4, *action_shape)


@pytest.mark.parametrize(
    "sees",
    [
        spaces.Box(0, 255, (36, 36, 3), np.uint8),
        spaces.Dict({"picture": spaces.Box(0, 255, (12, 12, 1), np.uint8), "speed": OBS}),
    ],
)
def test_pictures_are_learned_from_by_an_encoder_for_each_of_policy_and_critics(
    sees: Space[Any],
) -> None:
    learner = a_learner(
        "feature.embed_dim=8", "train.batch_size=4", "train.policy_delay=1", sees=sees
    )
    before = all_tensors(learner)
    learner.update(a_batch(learner, 8))
    after = all_tensors(learner)
    for part in ("policies/default/actor.encoder", "learner/critics/encoder"):
        names = [name for name in before if name.startswith(part)]
        assert names
        assert not any(np.array_equal(before[name], after[name]) for name in names)


def test_in_bfloat16_weights_stay_in_float32_and_losses_come_close() -> None:
    exact, rough = a_learner(), a_learner("train.precision=bfloat16")
    expected, metrics = exact.update(a_batch(exact)), rough.update(a_batch(rough))
    assert metrics["losses/qf_loss"] == pytest.approx(expected["losses/qf_loss"], rel=0.05)
    assert metrics["losses/qf_loss"] != expected["losses/qf_loss"]
    assert all(p.dtype == torch.float32 for p in rough.policy.parameters())
