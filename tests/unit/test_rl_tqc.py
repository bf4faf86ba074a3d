"""TQC: its target and losses by hand, updates against plain ones, and what a snapshot needs."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from rl_orch.errors import SpecInvalid
from rl_orch.rl.algos.tqc import TQC, quantile_huber, quantile_policy_loss, truncated
from rl_orch.rl.data.batch import Batch
from rl_orch.rl.learn.learner import build_learner
from rl_orch.rl.policies.policy import Setup
from rl_orch.spec.resolve import resolve

OBS = spaces.Box(-10.0, 10.0, (3,))
ACTIONS = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32))


def a_learner(*overrides: str) -> TQC:
    document = {
        "agent": {"algorithm": "tqc", "network": {"hidden_sizes": [8], "n_critics": 3}},
        "env": {"id": "Any-v0", "seed": 1},
        "train": {"batch_size": 16, "total_timesteps": 1000, "learning_starts": 0},
        "buffer": {"size": 500},
    }
    asked = ("train.n_quantiles=5", "train.engine=torch", *overrides)
    learner = build_learner(Setup(resolve(document, overrides=asked), OBS, ACTIONS))
    assert isinstance(learner, TQC)
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


def test_the_highest_quantiles_of_all_critics_together_are_left_out() -> None:
    first, second = [[1.0, 9.0, 2.0]], [[3.0, 0.0, 8.0]]
    quantiles = torch.tensor([first, second])
    assert truncated(quantiles, 2).tolist() == [[0.0, 1.0, 2.0, 3.0]]
    assert truncated(quantiles, 0).tolist() == [[0.0, 1.0, 2.0, 3.0, 8.0, 9.0]]


def test_the_loss_of_quantiles_by_hand() -> None:
    # One critic, one row, two quantiles (midpoints 1/4 and 3/4) and targets with these errors.
    errors = torch.tensor([[[[0.5, -2.0], [3.0, -1.0]]]])
    expected = (0.25 * 0.125 + 0.75 * 1.5 + 0.75 * 2.5 + 0.25 * 0.5) / 4
    assert quantile_huber(errors).tolist() == pytest.approx([expected])
    assert quantile_huber(errors.repeat(3, 1, 1, 1)).tolist() == pytest.approx([expected])


def test_the_policy_s_loss_takes_the_mean_of_all_quantiles() -> None:
    quantiles = torch.tensor([[[1.0, 3.0], [0.0, 0.0]], [[5.0, 7.0], [2.0, 2.0]]])
    loss = quantile_policy_loss(quantiles, torch.tensor([-1.0, 2.0]), torch.tensor(0.5))
    assert loss.item() == pytest.approx(((-0.5 - 4.0) + (1.0 - 1.0)) / 2)


class Plain:
    """TQC as one would write it down: torch's own optimisers and distributions, in float64."""

    def __init__(self, learner: TQC) -> None:
        def leaves(module: nn.Module) -> dict[str, Tensor]:
            return {k: p.detach().double().requires_grad_() for k, p in module.named_parameters()}

        self.policy, self.critics = leaves(learner.policy), leaves(learner.critics)
        self.target = leaves(learner.target_critics.module)
        self.log_alpha = torch.zeros((), dtype=torch.float64, requires_grad=True)
        self.noise = torch.Generator()
        self.noise.set_state(learner.noise.get_state())
        groups = (self.policy.values(), self.critics.values(), [self.log_alpha])
        self.adams = [torch.optim.Adam(group, lr=3e-4, eps=1e-8) for group in groups]

    def quantiles(self, w: dict[str, Tensor], states: Tensor, actions: Tensor) -> list[Tensor]:
        pairs, made = torch.cat((states, actions), 1), []
        for name in (f"critics.{n}.layers" for n in range(3)):
            x = torch.relu(pairs @ w[f"{name}.0.weight"].T + w[f"{name}.0.bias"])
            made.append(x @ w[f"{name}.1.weight"].T + w[f"{name}.1.bias"])
        return made

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
        alpha, y = self.log_alpha.exp().item(), torch.empty(len(a), 9, dtype=torch.float64)
        with torch.no_grad():
            next_actions, next_log_probs = self.act(s2, next_noise)
            found = self.quantiles(self.target, s2, next_actions)
            for row in range(len(a)):
                pool = sorted(value for critic in found for value in critic[row].tolist())
                for j in range(9):
                    y[row, j] = r[row] + d[row] * (pool[j] - alpha * next_log_probs[row])
        loss = torch.zeros((), dtype=torch.float64)
        for critic in self.quantiles(self.critics, s, a):
            for i in range(5):
                u = y - critic[:, i : i + 1]
                huber = torch.where(u.abs() <= 1, 0.5 * u * u, u.abs() - 0.5)
                share = ((0.2 * i + 0.1) - (u < 0).double()).abs()
                loss = loss + (w[:, None] * share * huber).mean() / 15
        self.step(1, loss)
        actions, log_probs = self.act(s, noise)
        worth = torch.stack(self.quantiles(self.critics, s, actions)).mean((0, 2))
        self.step(0, (alpha * log_probs - worth).mean())
        self.step(2, -(self.log_alpha * (log_probs.detach() - 2.0)).mean())
        with torch.no_grad():
            for name, slow in self.target.items():
                slow.copy_((1 - tau) * slow + tau * self.critics[name])


@pytest.mark.parametrize(
    "overrides", [(), ("buffer.prioritized=true", "buffer.n_step=3", "train.tau=0.5")]
)
def test_updates_are_those_of_a_plain_implementation(overrides: tuple[str, ...]) -> None:
    learner = a_learner(*overrides)
    learner.replay.add(a_batch())
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
    assert learner.temperature.alpha.log().item() == pytest.approx(plain.log_alpha.item(), abs=1e-6)


def test_critics_differ_and_have_layers_of_their_own_sizes() -> None:
    learner = a_learner("agent.network.critic_hidden_sizes=[6, 7]")
    assert [layer.out_features for layer in learner.critics.nets[0].layers] == [6, 7, 5]
    assert learner.policy.trunk.layers[0].out_features == 8
    weights = [net.layers[0].weight for net in learner.critics.nets]
    assert len(weights) == 3
    assert not torch.equal(weights[0], weights[1])  # type: ignore[arg-type]


def test_some_quantiles_must_be_left_as_targets() -> None:
    with pytest.raises(SpecInvalid) as refused:
        a_learner("train.top_quantiles_to_drop_per_net=5")
    assert [p.path for p in refused.value.problems] == ["train.top_quantiles_to_drop_per_net"]
