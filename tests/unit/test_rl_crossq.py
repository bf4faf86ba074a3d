"""CrossQ: batch renormalisation by hand, updates against plain ones, and what a snapshot needs."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import Space, spaces
from torch import Tensor
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from rl_orch.rl.algos.crossq import CrossQ
from rl_orch.rl.data.batch import Batch
from rl_orch.rl.learn.learner import build_learner
from rl_orch.rl.policies.batch_renorm import EPS, WARM_UP, BatchRenorm, NormalizedMLP, by_batch
from rl_orch.rl.policies.policy import PolicyInput, Setup, load_weights, policy_tensors
from rl_orch.spec.resolve import resolve

OBS = spaces.Box(-10.0, 10.0, (3,))
ACTIONS = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32))


def a_learner(*overrides: str, sees: Space[Any] = OBS) -> CrossQ:
    document = {
        "agent": {"algorithm": "crossq", "network": {"hidden_sizes": [8]}},
        "env": {"id": "Any-v0", "seed": 1},
        "train": {"batch_size": 16, "total_timesteps": 1000, "learning_starts": 0},
        "buffer": {"size": 500},
    }
    asked = ("agent.network.critic_hidden_sizes=[6]", *overrides)
    learner = build_learner(Setup(resolve(document, overrides=asked), sees, ACTIONS))
    assert isinstance(learner, CrossQ)
    return learner


def a_batch(rows: int = 64, seed: int = 0) -> Batch:
    """Random transitions of one copy, in episodes of eight; some of them are cut short."""
    rng, steps = np.random.default_rng(seed), np.arange(rows)
    ended = steps % 8 == 7
    return Batch(
        observations=rng.normal(size=(rows, 3)).astype(np.float32),
        actions=rng.uniform(-1.0, 1.0, (rows, 2)),
        rewards=rng.normal(size=rows),
        terminated=ended & (steps % 16 == 7),
        truncated=ended & (steps % 16 == 15),
        next_observations=rng.normal(size=(rows, 3)).astype(np.float32),
        extras={"valid": np.ones(rows, np.bool_), "first": steps % 8 == 0},
    )


def test_a_batch_is_normalised_by_its_own_statistics_and_the_running_ones_move() -> None:
    layer, x = BatchRenorm(2), torch.tensor([[1.0, -4.0], [3.0, 4.0]])
    with by_batch(layer):
        y = layer(x)
    one = 1.0 / (1.0 + EPS) ** 0.5
    assert y[:, 0].tolist() == pytest.approx([-one, one])
    assert layer.mean.tolist() == pytest.approx([0.02, 0.0])
    assert layer.variance.tolist() == pytest.approx([1.0, 0.99 + 0.16])
    assert layer.batches.item() == 1


def test_without_a_batch_running_statistics_are_used_and_stay() -> None:
    layer = BatchRenorm(1)
    layer.mean.fill_(3.0)
    layer.variance.fill_(4.0 - EPS)
    assert layer(torch.tensor([[5.0]])).item() == pytest.approx(1.0)
    assert (layer.mean.item(), layer.batches.item()) == (3.0, 0)


def test_after_the_warm_up_a_batch_is_corrected_towards_running_statistics() -> None:
    """Within bounds of r and d, the output is that of the running statistics."""
    layer, x = BatchRenorm(1), torch.tensor([[0.0], [2.0]])
    layer.batches.fill_(WARM_UP)
    expected = layer(x)
    with by_batch(layer):
        assert layer(x).flatten().tolist() == pytest.approx(expected.flatten().tolist(), rel=1e-5)
    layer.mean.fill_(-100.0)
    with by_batch(layer):
        far = layer(x)
    assert far.mean().item() == pytest.approx(5.0, rel=1e-5)


@pytest.mark.parametrize("batches", [0, WARM_UP])
def test_gradients_pass_through_the_statistics_of_a_batch_but_not_through_r_and_d(
    batches: int,
) -> None:
    generator = torch.Generator().manual_seed(0)
    layer, rows = BatchRenorm(3), torch.randn(8, 3, generator=generator) * 2.0 + 1.0
    x, plain_x = rows.clone().requires_grad_(), rows.double().requires_grad_()
    layer.batches.fill_(batches)
    with by_batch(layer):
        layer(x).square().mul(torch.arange(3)).sum().backward()
    mean, spread = plain_x.mean(0), (plain_x.var(0, unbiased=False) + EPS).sqrt()
    y = (plain_x - mean) / spread
    if batches:
        running = (1.0 + EPS) ** 0.5
        y = y * (spread / running).clamp(1 / 3, 3).detach() + (mean / running).detach()
    y.square().mul(torch.arange(3)).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert plain_x.grad is not None
    torch.testing.assert_close(x.grad.double(), plain_x.grad, rtol=1e-4, atol=1e-4)


def test_a_perceptron_normalises_before_each_layer_and_behind_the_last_if_activated() -> None:
    assert len(NormalizedMLP([3, 4, 2], "relu", activate_last=False).norms) == 2
    assert len(NormalizedMLP([3, 4, 2], "relu", activate_last=True).norms) == 3


class Plain:
    """CrossQ as one would write it down: torch's own optimisers, in float64."""

    def __init__(self, learner: CrossQ) -> None:
        def leaves(module: torch.nn.Module) -> dict[str, Tensor]:
            parameters = dict(module.named_parameters())
            return {
                name: tensor.detach().double().requires_grad_(name in parameters)
                for name, tensor in module.state_dict().items()
            }

        self.policy, self.critics = leaves(learner.policy), leaves(learner.critics)
        self.log_alpha = torch.zeros((), dtype=torch.float64, requires_grad=True)
        self.noise = torch.Generator()
        self.noise.set_state(learner.noise.get_state())
        self.adams = [
            torch.optim.Adam(learned(self.policy), lr=1e-3, betas=(0.5, 0.999), eps=1e-8),
            torch.optim.Adam(learned(self.critics), lr=1e-3, betas=(0.5, 0.999), eps=1e-8),
            torch.optim.Adam([self.log_alpha], lr=1e-3, eps=1e-8),
        ]
        self.updates = 0

    @staticmethod
    def norm(w: dict[str, Tensor], name: str, x: Tensor, batch: bool) -> Tensor:
        mean, variance = w[f"{name}.mean"], w[f"{name}.variance"]
        if batch:
            own, spread = x.mean(0), x.var(0, unbiased=False)
            w[f"{name}.mean"] = (0.99 * mean + 0.01 * own).detach()
            w[f"{name}.variance"] = (0.99 * variance + 0.01 * spread).detach()
            mean, variance = own, spread
        return (x - mean) / (variance + 1e-3).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(self, w: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def q(self, states: Tensor, actions: Tensor, *, batch: bool) -> list[Tensor]:
        pairs, w, made = torch.cat((states, actions), 1), self.critics, []
        for name in ("first", "second"):
            x = self.linear(w, f"{name}.layers.0", self.norm(w, f"{name}.norms.0", pairs, batch))
            x = self.norm(w, f"{name}.norms.1", torch.relu(x), batch)
            made.append(self.linear(w, f"{name}.layers.1", x).squeeze(1))
        return made

    def act(self, states: Tensor, noise: Tensor, *, batch: bool) -> tuple[Tensor, Tensor]:
        w = self.policy
        x = self.linear(w, "trunk.layers.0", self.norm(w, "trunk.norms.0", states, batch))
        x = self.linear(w, "head.layers.0", self.norm(w, "trunk.norms.1", torch.relu(x), batch))
        mean, deviation = x[:, :2], x[:, 2:].clamp(-20, 2).exp()
        normal = Independent(Normal(mean, deviation), 1)
        squashed = TransformedDistribution(normal, [TanhTransform(cache_size=1)])
        actions = squashed.transforms[0](mean + deviation * noise)
        return actions, squashed.log_prob(actions)  # type: ignore[no-untyped-call]

    def step(self, which: int, loss: Tensor) -> None:
        self.adams[which].zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.adams[which].step()

    def update(self, sample: Any) -> None:
        s, a, r, s2, d = (
            torch.from_numpy(np.asarray(column)).double()
            for column in (
                *(sample.observations, sample.actions, sample.rewards),
                *(sample.next_observations, sample.discounts),
            )
        )
        drawn = torch.empty(2 * len(a), 2).normal_(generator=self.noise).double()
        noise, next_noise, alpha = drawn[: len(a)], drawn[len(a) :], self.log_alpha.exp().item()
        with torch.no_grad():
            next_actions, next_log_probs = self.act(s2, next_noise, batch=False)
        both = self.q(torch.cat((s, s2)), torch.cat((a, next_actions)), batch=True)
        (q1, q2), (n1, n2) = ([q[:16] for q in both], [q[16:].detach() for q in both])
        y = r + d * (torch.min(n1, n2) - alpha * next_log_probs)
        self.step(1, 0.5 * ((q1 - y) ** 2).mean() + 0.5 * ((q2 - y) ** 2).mean())
        self.updates += 1
        if self.updates % 3 == 0:
            actions, log_probs = self.act(s, noise, batch=True)
            q1, q2 = self.q(s, actions, batch=False)
            self.step(0, (alpha * log_probs - torch.min(q1, q2)).mean())
            self.step(2, -(self.log_alpha * (log_probs.detach() - 2.0)).mean())


def learned(weights: dict[str, Tensor]) -> list[Tensor]:
    return [tensor for tensor in weights.values() if tensor.requires_grad]


def test_updates_are_those_of_a_plain_implementation() -> None:
    learner = a_learner()
    learner.replay.add(a_batch())
    plain = Plain(learner)
    for _ in range(7):
        sample = learner.replay.sample(16)
        plain.update(sample)
        learner.improve(sample)
        learner.updates += 1
    for module, expected in ((learner.policy, plain.policy), (learner.critics, plain.critics)):
        for name, tensor in module.state_dict().items():
            if not name.endswith("batches"):
                torch.testing.assert_close(tensor.double(), expected[name], rtol=1e-4, atol=1e-5)
    assert learner.temperature.alpha.log().item() == pytest.approx(plain.log_alpha.item(), abs=1e-6)


def test_there_are_no_slow_copies_and_critics_are_wide_by_default() -> None:
    learner = a_learner()
    learner.update(a_batch())
    assert not any("target" in name for name in learner.state().tensors)
    assert learner.targets == []
    wide = resolve({"env": {"id": "Any-v0"}, "agent": {"algorithm": "crossq"}}).agent.network
    assert (wide.critic_hidden_sizes, wide.hidden_sizes) == ((1024, 1024), (256, 256))


def test_statistics_move_with_updates_alone_and_are_part_of_the_policy() -> None:
    learner = a_learner("train.policy_delay=1")
    names = [name for name in policy_tensors(learner.policy) if name.endswith("norms.0.mean")]
    assert names
    before = policy_tensors(learner.policy)
    seen = PolicyInput(np.ones((4, 3), np.float32), np.zeros(4, np.bool_))
    learner.behaviour.decide(seen, torch.Generator())
    unmoved = policy_tensors(learner.policy)
    assert all(np.array_equal(before[name], unmoved[name]) for name in before)
    learner.update(a_batch())
    after = policy_tensors(learner.policy)
    assert not np.array_equal(before[names[0]], after[names[0]])
    other = a_learner()
    load_weights(other.policy, after)
    played = [each.policy.decide(seen, None).actions for each in (learner, other)]
    assert np.array_equal(played[0], played[1])


def test_an_observation_with_parts_is_judged_in_one_pass_too() -> None:
    sees = spaces.Dict({"a": OBS, "b": spaces.Box(-1.0, 1.0, (2,))})
    learner, batch = a_learner("train.policy_delay=1", sees=sees), a_batch()
    rng = np.random.default_rng(0)
    shown: Any = {"a": batch.observations, "b": rng.normal(size=(64, 2)).astype(np.float32)}
    metrics = learner.update(
        Batch(
            observations=shown,
            actions=batch.actions,
            rewards=batch.rewards,
            terminated=batch.terminated,
            truncated=batch.truncated,
            next_observations=shown,
            extras=batch.extras,
        )
    )
    assert all(np.isfinite(value) for value in metrics.values())
