"""SAC: its losses by hand, an update against a plain one, gSDE's noise, and resuming."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import Space, spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from rl_orch.rl.algos.sac import SAC
from rl_orch.rl.data.batch import Batch
from rl_orch.rl.learn.critic_learner import frozen, least, squared_errors
from rl_orch.rl.learn.learner import build_learner
from rl_orch.rl.learn.optimizer import Target
from rl_orch.rl.learn.soft_learner import policy_loss, soft_target, temperature_loss
from rl_orch.rl.policies.policy import Actor, PolicyInput, Setup, load_weights, policy_tensors
from rl_orch.spec.resolve import resolve

OBS = spaces.Box(-10.0, 10.0, (3,))
ACTIONS = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32))
SDE = ("train.use_sde=true", "agent.network.log_std_init=-1")


def a_learner(*overrides: str, sees: Space[Any] = OBS, does: Space[Any] = ACTIONS) -> SAC:
    document = {
        "agent": {"algorithm": "sac", "network": {"hidden_sizes": [8]}},
        "env": {"id": "Any-v0", "seed": 1},
        "train": {"batch_size": 16, "total_timesteps": 1000, "learning_starts": 0},
        "buffer": {"size": 500},
    }
    learner = build_learner(Setup(resolve(document, overrides=overrides), sees, does))
    assert isinstance(learner, SAC)
    return learner


def a_batch(learner: SAC, rows: int = 32, seed: int = 0) -> Batch:
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


def all_tensors(learner: SAC) -> dict[str, Any]:
    return policy_tensors(learner.policy) | learner.state().tensors


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(
        np.array_equal(first[name], second[name]) for name in first
    )


def doubles(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_the_soft_target_by_hand() -> None:
    target = soft_target(
        rewards=doubles(1.0, -2.0, 0.5),
        discounts=doubles(0.9, 0.0, 0.81),
        next_q=torch.stack((doubles(3.0, 5.0, -1.0), doubles(2.0, 7.0, 4.0))),
        next_log_probs=doubles(-1.0, 4.0, 2.0),
        alpha=doubles(0.5)[0],
    )
    # 1 + 0.9 (2 + 0.5), -2 at an end, 0.5 + 0.81 (-1 - 1)
    assert target.tolist() == pytest.approx([3.25, -2.0, -1.12], abs=1e-10)


def test_the_policy_s_loss_by_hand_and_its_gradient() -> None:
    q = torch.stack((doubles(3.0, 5.0), doubles(2.0, 7.0))).requires_grad_()
    log_probs = doubles(-1.0, 4.0).requires_grad_()
    loss = policy_loss(q, log_probs, doubles(0.5)[0])
    assert loss.item() == pytest.approx(((-0.5 - 2.0) + (2.0 - 5.0)) / 2, abs=1e-10)
    loss.backward()  # type: ignore[no-untyped-call]
    assert q.grad is not None
    assert log_probs.grad is not None
    # Only the smaller estimate of each row counts.
    assert q.grad.tolist() == [[0.0, -0.5], [-0.5, 0.0]]
    assert log_probs.grad.tolist() == [0.25, 0.25]


def test_the_temperature_s_loss_by_hand() -> None:
    log_alpha = doubles(-2.0)[0].requires_grad_()
    loss = temperature_loss(log_alpha, doubles(1.0, 4.0), -3.0)
    assert loss.item() == pytest.approx(2.0 * (2.5 - 3.0), abs=1e-10)
    loss.backward()  # type: ignore[no-untyped-call]
    assert log_alpha.grad is not None
    assert log_alpha.grad.item() == pytest.approx(0.5, abs=1e-10)


@pytest.mark.parametrize(("log_prob", "rises"), [(5.0, True), (-5.0, False)])
def test_the_temperature_rises_where_entropy_is_below_its_target(
    log_prob: float, rises: bool
) -> None:
    log_alpha = torch.zeros((), requires_grad=True)
    loss = temperature_loss(log_alpha, torch.full((4,), log_prob), target_entropy=-2.0)
    loss.backward()  # type: ignore[no-untyped-call]
    assert log_alpha.grad is not None
    assert (log_alpha.grad.item() < 0.0) == rises


def test_the_critics_errors_by_hand() -> None:
    q = torch.stack((doubles(1.0, 2.0), doubles(0.0, 4.0)))
    # Row 0: 1 + 4, weight 0.5; row 1: 0 + 4, weight 1; two rows.
    errors = squared_errors(q, doubles(2.0, 2.0), doubles(0.5, 1.0))
    assert errors.item() == pytest.approx((0.5 * 5.0 + 4.0) / 2, abs=1e-10)


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(1, 300), seed=st.integers(0, 2**31))
def test_losses_agree_with_sums_over_rows(rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    q, next_q = rng.normal(size=(2, 2, rows)) * 10
    rewards, discounts, log_probs, weights = rng.normal(size=(4, rows))
    alpha = float(rng.uniform(0.01, 2.0))
    t = torch.from_numpy
    target = soft_target(
        t(rewards), t(discounts), t(next_q), t(log_probs), doubles(alpha)[0]
    ).numpy()
    loss = 0.0
    for i in range(rows):
        soft_value = min(next_q[0, i], next_q[1, i]) - alpha * log_probs[i]
        assert target[i] == pytest.approx(rewards[i] + discounts[i] * soft_value, abs=1e-10)
        loss += weights[i] * ((q[0, i] - target[i]) ** 2 + (q[1, i] - target[i]) ** 2) / rows
    assert squared_errors(t(q), t(target), t(weights)).item() == pytest.approx(loss, abs=1e-10)
    least_of_both = np.minimum(q[0], q[1])
    assert np.array_equal(least(t(q)).numpy(), least_of_both)
    expected = float(np.mean(alpha * log_probs - least_of_both))
    assert policy_loss(t(q), t(log_probs), doubles(alpha)[0]).item() == pytest.approx(
        expected, abs=1e-10
    )


@settings(max_examples=30, deadline=None)
@given(tau=st.floats(0.001, 1.0), moves=st.integers(1, 5))
def test_slow_copies_follow_by_a_geometric_share(tau: float, moves: int) -> None:
    net = nn.Linear(3, 2).double()
    target = Target(net)
    before = [p.clone() for p in target.module.parameters()]
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter))
    for _ in range(moves):
        target.follow(tau)
    left = (1.0 - tau) ** moves
    for old, new, slow in zip(before, net.parameters(), target.module.parameters(), strict=True):
        assert torch.allclose(slow, left * old + (1.0 - left) * new, rtol=0.0, atol=1e-10)
        assert not slow.requires_grad


def test_a_frozen_view_shares_its_weights_and_spares_their_gradient() -> None:
    net = nn.Linear(3, 1)
    view = frozen(net)
    inputs = torch.ones(2, 3, requires_grad=True)
    view(inputs).sum().backward()
    assert inputs.grad is not None
    assert torch.equal(inputs.grad, net.weight.detach().expand(2, 3))
    assert net.weight.grad is None
    with torch.no_grad():
        net.weight.add_(1.0)
    assert torch.equal(view.weight, net.weight)


class Plain:
    """SAC as one would write it down: torch's own optimisers and distributions, in float64."""

    def __init__(self, learner: SAC) -> None:
        def leaves(module: nn.Module) -> dict[str, Tensor]:
            return {k: p.detach().double().requires_grad_() for k, p in module.named_parameters()}

        self.policy, self.critics = leaves(learner.policy), leaves(learner.critics)
        self.target = leaves(learner.target_critics.module)
        self.log_alpha = torch.zeros((), dtype=torch.float64, requires_grad=True)
        self.noise = torch.Generator()
        self.noise.set_state(learner.noise.get_state())
        groups = (self.policy.values(), self.critics.values(), [self.log_alpha])
        self.adams = [torch.optim.Adam(group, lr=3e-4, eps=1e-8) for group in groups]

    @staticmethod
    def layers(weights: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
        x = torch.relu(x @ weights[f"{name}.layers.0.weight"].T + weights[f"{name}.layers.0.bias"])
        return x @ weights[f"{name}.layers.1.weight"].T + weights[f"{name}.layers.1.bias"]

    def q(self, weights: dict[str, Tensor], states: Tensor, actions: Tensor) -> list[Tensor]:
        pairs = torch.cat((states, actions), 1)
        return [self.layers(weights, name, pairs).squeeze(1) for name in ("first", "second")]

    def act(self, states: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        w = self.policy
        x = torch.relu(states @ w["trunk.layers.0.weight"].T + w["trunk.layers.0.bias"])
        x = x @ w["head.layers.0.weight"].T + w["head.layers.0.bias"]
        mean, deviation = x[:, :2], x[:, 2:].clamp(-20, 2).exp()
        normal = Independent(Normal(mean, deviation), 1)
        squashed = TransformedDistribution(normal, [TanhTransform(cache_size=1)])
        actions = squashed.transforms[0](mean + deviation * noise)
        return actions, squashed.log_prob(actions)  # type: ignore[no-untyped-call]

    def step(self, which: int, loss: Tensor) -> None:
        self.adams[which].zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.adams[which].step()

    def update(self, sample: Any, tau: float) -> None:
        s, a, r, s2, d, w = (
            torch.from_numpy(np.asarray(column)).double()
            for column in (
                *(sample.observations, sample.actions, sample.rewards),
                *(sample.next_observations, sample.discounts, sample.weights),
            )
        )
        drawn = torch.empty(2 * len(a), 2).normal_(generator=self.noise).double()
        noise, next_noise = drawn[: len(a)], drawn[len(a) :]
        alpha = self.log_alpha.exp().item()
        with torch.no_grad():
            next_actions, next_log_probs = self.act(s2, next_noise)
            q1, q2 = self.q(self.target, s2, next_actions)
            y = r + d * (torch.min(q1, q2) - alpha * next_log_probs)
        q1, q2 = self.q(self.critics, s, a)
        self.step(1, 0.5 * (w * (q1 - y) ** 2).mean() + 0.5 * (w * (q2 - y) ** 2).mean())
        actions, log_probs = self.act(s, noise)
        q1, q2 = self.q(self.critics, s, actions)
        self.step(0, (alpha * log_probs - torch.min(q1, q2)).mean())
        self.step(2, -(self.log_alpha * (log_probs.detach() - 2.0)).mean())
        with torch.no_grad():
            for name, slow in self.target.items():
                slow.copy_((1 - tau) * slow + tau * self.critics[name])


@pytest.mark.parametrize(
    "overrides", [(), ("buffer.prioritized=true", "buffer.n_step=3", "train.tau=0.5")]
)
def test_updates_are_those_of_a_plain_implementation(overrides: tuple[str, ...]) -> None:
    learner = a_learner(*overrides)
    learner.replay.add(a_batch(learner, 64))
    plain = Plain(learner)
    for _ in range(3):
        sample = learner.replay.sample(16)
        plain.update(sample, learner.options.tau)
        learner.improve(sample)
    pairs = (
        (learner.policy, plain.policy),
        (learner.critics, plain.critics),
        (learner.target_critics.module, plain.target),
    )
    for module, expected in pairs:
        for name, parameter in module.named_parameters():
            assert torch.allclose(parameter.double(), expected[name], rtol=0, atol=2e-6), name
    assert math.log(learner.temperature.alpha.item()) == pytest.approx(
        plain.log_alpha.item(), abs=1e-6
    )


def test_the_temperature_aims_at_minus_the_number_of_action_components() -> None:
    learner = a_learner(does=spaces.Box(-1.0, 1.0, (2, 3)))
    assert learner.temperature.target_entropy == -6.0
    assert a_learner("train.target_entropy=-0.5").temperature.target_entropy == -0.5


def test_a_number_fixes_the_temperature() -> None:
    learner = a_learner("train.ent_coef=0.2")
    metrics = learner.update(a_batch(learner))
    assert metrics["losses/ent_coef"] == pytest.approx(0.2)
    assert metrics["losses/ent_coef_loss"] == 0.0
    assert not any("temperature" in name for name in all_tensors(learner))


def test_nothing_is_learned_and_actions_are_uniform_until_learning_starts() -> None:
    learner = a_learner("train.learning_starts=40")
    before = policy_tensors(learner.policy)
    generator = torch.Generator().manual_seed(0)
    many = PolicyInput(np.zeros((4000, 3), np.float32), np.zeros(4000, np.bool_))
    uniform = learner.behaviour.decide(many, generator).actions
    assert np.quantile(uniform, [0.0, 0.25, 0.5, 0.75, 1.0]) == pytest.approx(
        [-1.0, -0.5, 0.0, 0.5, 1.0], abs=0.05
    )
    assert learner.update(a_batch(learner, 32)) == {}
    assert same(before, policy_tensors(learner.policy))
    metrics = learner.update(a_batch(learner, 32))
    assert {*learner.METRICS, "charts/learning_rate"} == {*metrics}
    assert not same(before, policy_tensors(learner.policy))
    assert not learner.behaviour.random


def test_actions_are_in_the_unit_box_and_stretched_for_the_environment() -> None:
    learner = a_learner()
    seen = PolicyInput(np.random.default_rng(0).normal(size=(50, 3)), np.zeros(50, np.bool_))
    actions = learner.policy.decide(seen, torch.Generator()).actions
    assert actions.shape == (50, 2)
    assert actions.dtype == np.float32
    assert np.abs(actions).max() <= 1.0
    assert learner.policy.to_env(np.array([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]])).tolist() == [
        [-2.0, 0.0],
        [0.0, 0.5],
        [2.0, 1.0],
    ]


def test_without_a_generator_the_policy_plays_tanh_of_its_mean() -> None:
    policy = a_learner().policy
    observations = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    distribution = policy(torch.from_numpy(observations))
    played = policy.decide(PolicyInput(observations, np.zeros(5, np.bool_)), None).actions
    np.testing.assert_allclose(
        played, distribution.normal.mean.tanh().detach().numpy(), rtol=1e-5, atol=1e-6
    )


def test_deviations_are_clamped() -> None:
    policy = a_learner().policy
    for bias, bound in ((1e3, 2.0), (-1e3, -20.0)):
        nn.init.constant_(policy.head.layers[0].bias, bias)  # type: ignore[arg-type]
        log_std = policy(torch.zeros(1, 3)).normal.log_std
        assert log_std.tolist() == [[bound, bound]]


def test_weights_follow_from_the_seed_and_slow_copies_start_as_copies() -> None:
    torch.manual_seed(0)
    first = a_learner()
    torch.manual_seed(1)
    second, other = a_learner(), a_learner("env.seed=2")
    assert same(all_tensors(first), all_tensors(second))
    assert not same(policy_tensors(first.policy), policy_tensors(other.policy))
    weights = first.critics.state_dict()
    assert not torch.equal(weights["first.layers.0.weight"], weights["second.layers.0.weight"])
    for name, slow in first.target_critics.module.state_dict().items():
        assert torch.equal(slow, weights[name])


def explored(actor: Actor, generator: torch.Generator, first: list[bool]) -> Any:
    """What copies do that all see the same."""
    observations = np.full((len(first), 3), 0.5, np.float32)
    return actor.decide(PolicyInput(observations, np.array(first)), generator).actions


def test_sde_noise_lasts_for_its_interval_and_differs_between_copies() -> None:
    learner, generator = a_learner(*SDE, "train.sde_sample_freq=3"), torch.Generator()
    steps = [explored(learner.behaviour, generator, [t == 0] * 2) for t in range(7)]
    assert not np.array_equal(steps[0][0], steps[0][1])
    for t in range(1, 7):
        assert np.array_equal(steps[t], steps[t - 1]) == (t not in (3, 6))


def test_sde_noise_is_new_where_an_episode_begins() -> None:
    learner, generator = a_learner(*SDE, "train.sde_sample_freq=4"), torch.Generator()
    before = [explored(learner.behaviour, generator, [t == 0] * 2) for t in range(3)][-1]
    begun = explored(learner.behaviour, generator, [False, True])
    assert np.array_equal(begun[0], before[0])
    assert not np.array_equal(begun[1], before[1])
    # Copy 0 has had its matrix for four steps; copy 1 keeps its new one.
    after = explored(learner.behaviour, generator, [False, False])
    assert not np.array_equal(after[0], begun[0])
    assert np.array_equal(after[1], begun[1])


def test_sde_noise_is_new_in_every_rollout() -> None:
    learner, generator = a_learner(*SDE), torch.Generator()
    before = [explored(learner.behaviour, generator, [t == 0]) for t in range(20)]
    assert all(np.array_equal(step, before[0]) for step in before)
    learner.explore()
    assert not np.array_equal(explored(learner.behaviour, generator, [False]), before[0])


def test_sde_noise_has_the_deviation_that_updates_assume() -> None:
    learner = a_learner(*SDE)
    nn.init.constant_(learner.policy.head.layers[0].weight, 0.0)  # type: ignore[arg-type]
    nn.init.constant_(learner.policy.head.layers[0].bias, 0.0)  # type: ignore[arg-type]
    played = explored(learner.behaviour, torch.Generator().manual_seed(0), [True] * 20_000)
    with torch.no_grad():
        distribution = learner.policy(torch.full((1, 3), 0.5))
    expected = distribution.normal.log_std.exp().numpy()[0]
    assert np.arctanh(played).std(0) == pytest.approx(expected, rel=0.03)


def test_sde_explores_only_where_a_generator_is_given() -> None:
    learner = a_learner(*SDE)
    seen = PolicyInput(np.full((1, 3), 0.5, np.float32), np.array([True]))
    played = learner.behaviour.decide(seen, None).actions
    assert np.array_equal(played, learner.policy.decide(seen, None).actions)
    assert not np.array_equal(played, explored(learner.behaviour, torch.Generator(), [True]))


def test_sde_learns_its_deviations() -> None:
    learner = a_learner(*SDE)
    assert learner.policy.log_std is not None
    assert learner.policy.log_std.shape == (8, 2)
    assert torch.equal(learner.policy.log_std, torch.full((8, 2), -1.0))
    learner.update(a_batch(learner))
    assert not torch.equal(learner.policy.log_std, torch.full((8, 2), -1.0))


def copied(learner: SAC, *overrides: str) -> SAC:
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
        ("train.ent_coef=0.1", "train.normalize_reward=true", "train.gradient_steps=-1"),
        (*SDE, "train.learning_starts=20"),
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
    first, second = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    assert np.array_equal(
        explored(learner.behaviour, first, [False] * 3),
        explored(other.behaviour, second, [False] * 3),
    )


def test_weights_of_a_sample_count_and_errors_become_priorities() -> None:
    learner = a_learner("buffer.prioritized=true", "buffer.alpha=1")
    learner.replay.add(a_batch(learner, 64))
    sample = learner.replay.sample(16)
    drawn = learner.drawn(sample)
    noise = torch.Generator()
    noise.set_state(learner.noise.get_state())
    next_noise = torch.empty(32, 2).normal_(generator=noise)[16:]
    target = learner._target(drawn, next_noise, learner.temperature.alpha)
    with torch.no_grad():
        q = learner.critics(drawn.inputs, drawn.actions)
    set_to: dict[int, float] = {}

    def remember(rows: Any, errors: Any) -> None:
        set_to.update(zip(rows.tolist(), errors.tolist(), strict=True))

    learner.replay.update_priorities = remember  # type: ignore[method-assign]
    learner.improve(sample)
    errors = (q - target).abs().mean(0).tolist()
    expected = dict(zip(sample.rows.tolist(), errors, strict=True))
    assert set_to == pytest.approx(expected, rel=1e-5)


@settings(max_examples=15, deadline=None)
@given(
    observed_shape=st.lists(st.integers(1, 4), max_size=2),
    action_shape=st.lists(st.integers(1, 3), min_size=1, max_size=2),
    hidden=st.lists(st.integers(1, 9), max_size=2),
    sde=st.booleans(),
)
def test_every_shape_of_vectors_and_networks_can_be_learned_about(
    observed_shape: list[int], action_shape: list[int], hidden: list[int], sde: bool
) -> None:
    learner = a_learner(
        f"agent.network.hidden_sizes={hidden}",
        f"train.use_sde={'true' if sde else 'false'}",
        sees=spaces.Box(-10.0, 10.0, tuple(observed_shape)),
        does=spaces.Box(-3.0, 3.0, tuple(action_shape)),
    )
    metrics = learner.update(a_batch(learner))
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
    learner = a_learner("feature.embed_dim=8", "train.batch_size=4", sees=sees)
    before = all_tensors(learner)
    learner.update(a_batch(learner, 8))
    after = all_tensors(learner)
    for part in ("policies/default/encoder", "learner/critics/encoder"):
        names = [name for name in before if name.startswith(part)]
        assert names
        assert not any(np.array_equal(before[name], after[name]) for name in names)


def test_in_bfloat16_weights_stay_in_float32_and_losses_come_close() -> None:
    exact, rough = a_learner(), a_learner("train.precision=bfloat16")
    expected, metrics = exact.update(a_batch(exact)), rough.update(a_batch(rough))
    assert metrics["losses/qf_loss"] == pytest.approx(expected["losses/qf_loss"], rel=0.05)
    assert metrics["losses/qf_loss"] != expected["losses/qf_loss"]
    assert all(p.dtype == torch.float32 for p in rough.policy.parameters())


def test_the_temperature_starts_at_one_and_moves_on_the_scale_of_its_logarithm() -> None:
    learner = a_learner("train.lr=0.01")
    assert learner.temperature.alpha.item() == 1.0
    learner.update(a_batch(learner))
    # The first step of Adam is the learning rate, whichever way the loss points.
    assert abs(math.log(learner.temperature.alpha.item())) == pytest.approx(0.01, rel=1e-4)
