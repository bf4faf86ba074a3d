"""Kernels against torch: layers and heads by autograd, and whole updates of every algorithm."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_orch.errors import Diverged
from rl_orch.rl.data.batch import Batch
from rl_orch.rl.finite_numbers import FiniteNumbers
from rl_orch.rl.jit import A_TRANSPOSED, ADDED, B_TRANSPOSED, kernel, product
from rl_orch.rl.kernels import heads, off_policy
from rl_orch.rl.kernels.dense import TO_INPUTS, TO_WEIGHTS, backward, forward, tanh
from rl_orch.rl.kernels.engine import KernelEngine
from rl_orch.rl.kernels.networks import Plan
from rl_orch.rl.kernels.optimizers import descend, squares
from rl_orch.rl.learn.learner import Learner, build_learner
from rl_orch.rl.learn.optimizer import Adam, Optimizer, RMSprop, flattened
from rl_orch.rl.learn.optimizer_arrays import LossWeights, OptimizerArrays
from rl_orch.rl.policies.distributions import Categorical, DiagGaussian
from rl_orch.rl.policies.nets import MLP, initialize
from rl_orch.rl.policies.policy import Actor, PolicyInput, Setup
from rl_orch.spec.resolve import resolve

a_few = settings(max_examples=20, deadline=None)
seeds = st.integers(0, 2**32 - 1)
widths = st.lists(st.integers(1, 9), max_size=3)
kinds = st.sampled_from([(torch.float32, 1e-5), (torch.float64, 1e-10)])
activations = st.sampled_from(["tanh", "relu"])


def close(ours: Any, theirs: Any, tolerance: float) -> None:
    """Within a tolerance of the greatest of them."""
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    scale = max(float(np.abs(theirs).max(initial=0.0)), 1e-3)
    np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=tolerance * scale)


def a_net(sizes: list[int], activation: str, kind: torch.dtype, *, last: bool = False) -> MLP:
    net = MLP(sizes, activation, activate_last=last)
    initialize(net, torch.Generator().manual_seed(len(sizes)), orthogonal=False, last_gain=1.0)
    return net.to(kind)


@a_few
@given(st.tuples(*[st.integers(1, 12)] * 3), st.booleans(), st.booleans(), st.booleans(), kinds)
def test_a_product_is_that_of_numpy(
    shape: tuple[int, int, int], left: bool, right: bool, add: bool, kind: tuple[Any, float]
) -> None:
    (m, n, k), rng = shape, np.random.default_rng(0)
    dtype: Any = np.float32 if kind[0] is torch.float32 else np.float64
    made: list[Any] = [rng.normal(size=size) for size in ((m, k), (k, n), (m, n))]
    a, b, c = (each.astype(dtype) for each in made)
    lies_a, lies_b = (a.T if left else a).ravel(), (b.T if right else b).ravel()
    flat_c = np.concatenate([[7.0], c.ravel()]).astype(dtype)
    flat_a = np.concatenate([[9.0, 9.0], lies_a]).astype(dtype)
    form = A_TRANSPOSED * left + B_TRANSPOSED * right + ADDED * add
    product(form, flat_a, 2, lies_b.copy(), 0, flat_c, 1, m, n, k)
    close(flat_c[1:].reshape(m, n), a @ b + (c if add else 0.0), kind[1])
    assert flat_c[0] == 7.0


def test_tanh_is_torchs_to_four_units_in_the_last_place() -> None:
    @kernel
    def every(x: NDArray[Any], y: NDArray[Any]) -> None:
        for i in range(len(x)):
            y[i] = tanh(x[i])

    x = np.concatenate(
        [np.linspace(-12, 12, 1_000_001), np.geomspace(1e-30, 1, 100_001), [0.0, 1e30]]
    ).astype(np.float32)
    y = np.empty_like(x)
    every(x, y)
    theirs = torch.tanh(torch.from_numpy(x)).numpy()
    apart = np.abs(y.view(np.int32).astype(np.int64) - theirs.view(np.int32).astype(np.int64))
    assert apart.max() <= 4
    assert np.abs(y).max() <= 1.0

    ends = np.array([math.nan, math.inf, -math.inf, -0.0], np.float32)
    every(ends, ends)
    np.testing.assert_array_equal(ends, [math.nan, 1.0, -1.0, -0.0])


@a_few
@given(widths, widths, st.integers(1, 9), activations, kinds, seeds)
def test_branches_run_forwards_and_backwards_as_in_torch(
    trunk: list[int],
    branch: list[int],
    rows: int,
    activation: str,
    kind: tuple[torch.dtype, float],
    seed: int,
) -> None:
    dtype, tolerance = kind
    stem = a_net([3, *trunk], activation, dtype, last=True)
    first = a_net([stem.size, *branch, 2], activation, dtype)
    second = a_net([stem.size, 1], activation, dtype)
    whole = nn.ModuleList([stem, first, second])
    plan = Plan(flattened(whole), 3)
    hidden = plan.add(stem)
    places = plan.add(first, hidden), plan.add(second, hidden)
    table, columns = plan.network()

    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 3, generator=generator, dtype=dtype, requires_grad=True)
    up = [torch.randn(rows, w, generator=generator, dtype=dtype) for w in (2, 1)]
    shared = stem(x)
    theirs = [first(shared), second(shared)]
    torch.autograd.backward(theirs, up)

    vector = flattened(whole).numpy()
    gradient, (flow, slopes) = (
        np.empty_like(vector),
        np.full((2, rows * columns), 9.0, vector.dtype),
    )
    flow[: rows * 3] = x.detach().numpy().ravel()
    forward(vector, table, rows, flow)
    for place, out, slope in zip(places, theirs, up, strict=True):
        block = slice(rows * place, rows * place + out.numel())
        close(flow[block], out.detach().numpy().ravel(), tolerance)
        slopes[block] = slope.numpy().ravel()
    backward(vector, gradient, table, rows, flow, slopes, TO_WEIGHTS)
    grads = torch.cat([p.grad.flatten() for p in whole.parameters() if p.grad is not None])
    close(gradient, grads.numpy(), tolerance)

    forward(vector, table, rows, flow)
    for place, out, slope in zip(places, theirs, up, strict=True):
        slopes[rows * place : rows * place + out.numel()] = slope.numpy().ravel()
    backward(vector, gradient, table, rows, flow, slopes, TO_INPUTS)
    assert x.grad is not None
    close(slopes[: rows * 3], x.grad.numpy().ravel(), tolerance)


def of_a_row(parameter: Tensor, both: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Tensor:
    """The gradient of 2 log π - 3 H at a row of parameters."""
    log_prob, entropy = both(parameter)
    loss: Any = 2.0 * log_prob.sum() - 3.0 * entropy.sum()
    loss.backward()
    assert parameter.grad is not None
    return parameter.grad


@a_few
@given(st.integers(1, 6), seeds)
def test_a_choice_has_the_terms_and_slopes_of_torch(count: int, seed: int) -> None:
    logits = 3.0 * torch.randn(
        1, count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    action = seed % count
    flow, slopes = np.concatenate([[5.0], logits.numpy()[0]]), np.full(count + 1, 5.0)
    shares = np.empty(count)
    log_prob, entropy = heads.choice(flow, 1, count, action, shares)
    heads.choice_slopes(slopes, 1, count, action, shares, entropy, 2.0, -3.0)
    theirs = Categorical(logits)
    close(log_prob, theirs.log_prob(torch.tensor([action])).numpy()[0], 1e-10)
    close(entropy, theirs.entropy().numpy()[0], 1e-10)
    grad = of_a_row(
        logits.requires_grad_(),
        lambda z: (Categorical(z).log_prob(torch.tensor([action])), Categorical(z).entropy()),
    )
    close(slopes[1:], grad.numpy()[0], 1e-10)


@a_few
@given(st.integers(1, 5), seeds)
def test_a_normal_action_has_the_terms_and_slopes_of_torch(count: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    mean, log_std, action = torch.randn(3, count, generator=generator, dtype=torch.float64)
    vector, gradient = log_std.numpy().copy(), np.zeros(count)
    flow, slopes = mean.numpy().copy(), np.empty(count)
    log_prob, entropy = heads.normal(flow, 0, vector, 0, action.numpy())
    descent = OptimizerArrays(vector, gradient, vector, vector, True, 1.0, 1.0, 0.0, 0.0)
    heads.normal_slopes(flow, slopes, 0, descent, 0, action.numpy(), 2.0, -3.0)
    mean, log_std = mean[None].clone().requires_grad_(), log_std.clone().requires_grad_()
    theirs = DiagGaussian(mean, log_std)
    close(log_prob, theirs.log_prob(action[None]).item(), 1e-10)
    close(entropy, theirs.entropy().item(), 1e-10)
    grad = of_a_row(mean, lambda m: (theirs.log_prob(action[None]), theirs.entropy()))
    close(slopes, grad.numpy()[0], 1e-10)
    assert log_std.grad is not None
    close(gradient, log_std.grad.numpy(), 1e-10)


@pytest.mark.parametrize("kind", [Adam, RMSprop])
@pytest.mark.parametrize("most", [None, 0.5])
def test_an_optimiser_descends_as_in_torch(kind: type[Optimizer], most: float | None) -> None:
    generator = torch.Generator().manual_seed(3)
    nets = [nn.Linear(3, 2).double() for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    ours, theirs = (kind(net, eps=1e-5, max_grad_norm=most) for net in nets)
    for step in range(5):
        x = torch.randn(4, 3, generator=generator, dtype=torch.float64)
        norm = theirs.step(nets[1](x).square().sum(), 0.01)
        nets[0](x).square().sum().backward()
        found = descend(ours.arrays, step + 1, 0.01)
        ours.arrays.gradient[:] = 0.0
        close(found, norm.item(), 1e-10)
        close(flattened(nets[0]).numpy(), flattened(nets[1]).numpy(), 1e-10)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 31])
def test_squares_are_added_up_over_every_number(size: int) -> None:
    x = np.arange(size, dtype=np.float32)
    assert squares(x) == float((x.astype(np.float64) ** 2).sum())


BOX = spaces.Box(-2.0, 2.0, (3,))
SETTINGS: dict[str, tuple[str, list[str]]] = {
    "ppo": ("ppo", ["train.update_epochs=2", "train.ent_coef=0.01"]),
    "ppo-shared": ("ppo", ["agent.network.shared=true", "train.clip_range_vf=0.2"]),
    "ppo-box": ("ppo", ["train.update_epochs=2", "train.ent_coef=0.01"]),
    "ppo-unscaled": ("ppo", ["train.normalize_advantage=false", "train.max_grad_norm=null"]),
    "ppo-relu": ("ppo", ["agent.network.activation=relu", "train.optimizer=rmsprop"]),
    "ppo-normalized": ("ppo", ["obs.normalize=running", "train.normalize_reward=true"]),
    "a2c": ("a2c", ["train.normalize_advantage=true"]),
    "a2c-box": ("a2c", ["train.ent_coef=0.01", "train.optimizer=adam"]),
    "dqn": ("dqn", ["train.tau=0.5", "train.target_update_interval=16"]),
    "dqn-double": ("dqn", ["train.double_q=true", "buffer.prioritized=true", "buffer.n_step=3"]),
    "qrdqn": ("qrdqn", ["train.n_quantiles=7", "buffer.prioritized=true"]),
    "qrdqn-double": ("qrdqn", ["train.n_quantiles=5", "train.double_q=true"]),
    "sac-box": ("sac", ["train.learning_starts=0"]),
    "sac-box-fixed": ("sac", ["train.ent_coef=0.2", "buffer.prioritized=true"]),
    "td3-box": ("td3", ["train.learning_starts=0", "train.policy_delay=2"]),
    "tqc-box": ("tqc", ["train.learning_starts=0", "train.n_quantiles=7"]),
    "tqc-box-five": (
        "tqc",
        [
            "agent.network.n_critics=5",
            "agent.network.critic_hidden_sizes=[6]",
            "train.n_quantiles=3",
            "train.top_quantiles_to_drop_per_net=1",
            "buffer.prioritized=true",
        ],
    ),
    "td3-box-tanh": ("td3", ["agent.network.activation=tanh", "buffer.prioritized=true"]),
}


def a_pair(name: str, *overrides: str) -> tuple[Learner, Learner]:
    """The same learner twice: in torch, and in kernels."""
    algorithm, asked = SETTINGS[name]
    action: Any = spaces.Box(-1.0, 1.0, (2,)) if "box" in name else spaces.Discrete(3)
    made = []
    for engine in ("torch", "kernels"):
        spec = resolve(
            {"env": {"id": "Any-v0", "seed": 5, "num_envs": 2}, "agent": {"algorithm": algorithm}},
            overrides=[
                "agent.network.hidden_sizes=[8,8]",
                "train.total_timesteps=100000",
                "rollout.steps=16",
                "train.batch_size=16",
                f"train.engine={engine}",
                *(["train.learning_starts=0"] if algorithm not in ("ppo", "a2c") else []),
                *asked,
                *overrides,
            ],
        )
        setup = Setup(spec, BOX, action)
        made.append(build_learner(setup))
    return made[0], made[1]


def experience(learner: Learner, number: int) -> Batch:
    """A made-up rollout of two copies and 16 steps each, the same for every learner."""
    rng = np.random.default_rng(number)
    rows = 32
    observations = rng.normal(size=(rows + 1, 3)).astype(np.float32)
    if isinstance(learner.policy.action_space, spaces.Box):
        actions: NDArray[Any] = rng.uniform(-0.9, 0.9, size=(rows, 2)).astype(np.float32)
    else:
        actions = rng.integers(0, 3, rows)
    terminated = rng.random(rows) < 0.1
    first = np.concatenate([[True], terminated[:-1]])
    first[::16] = True
    return Batch(
        observations=observations[:-1],
        actions=actions,
        rewards=np.sin(observations[:-1].sum(1)).astype(np.float64) + 0.1 * rng.normal(size=rows),
        terminated=terminated,
        truncated=np.arange(rows) % 16 == 15,
        next_observations=observations[1:],
        extras={"valid": np.ones(rows, np.bool_), "first": first},
    )


@pytest.mark.parametrize("name", SETTINGS)
def test_an_update_is_that_of_torch(name: str) -> None:
    ours, theirs = reversed(a_pair(name))
    for number in range(3):
        batch = experience(ours, number)
        found, expected = ours.update(batch), theirs.update(batch)
        assert found.keys() == expected.keys()
        for key in expected:
            assert found[key] == pytest.approx(expected[key], rel=2e-4, abs=2e-5), key
    for (key, mine), (_, other) in zip(
        ours.policy.state_dict().items(), theirs.policy.state_dict().items(), strict=True
    ):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=2e-5, msg=key)
    kept, expected_state = ours.state().tensors, theirs.state().tensors
    assert kept.keys() == expected_state.keys()
    for key, value in expected_state.items():
        np.testing.assert_allclose(kept[key], value, rtol=2e-3, atol=2e-5, err_msg=key)


@pytest.mark.parametrize("name", ["sac-box", "td3-box", "tqc-box"])
def test_rows_in_two_parts_are_learned_from_as_in_torch_whatever_the_threads(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(off_policy, "WORTH_SHARING", 1)
    odd = "train.batch_size=17"
    theirs, alone = a_pair(name, odd)
    _, together = a_pair(name, odd, "resources.threads=2")
    for number in range(4):
        batch = experience(alone, number)
        found, expected = alone.update(batch), theirs.update(batch)
        assert together.update(batch) == found
        assert found == pytest.approx(expected, rel=2e-4, abs=2e-5)
    kept, other = alone.state().tensors, together.state().tensors
    for key, value in theirs.state().tensors.items():
        assert kept[key].tobytes() == other[key].tobytes()
        np.testing.assert_allclose(kept[key], value, rtol=2e-3, atol=2e-5, err_msg=key)
    assert torch.equal(flattened(alone.policy), flattened(together.policy))


@pytest.mark.parametrize(
    "name", ["ppo", "ppo-box", "a2c", "dqn", "qrdqn", "sac-box", "td3-box", "tqc-box"]
)
def test_after_a_thousand_updates_parameters_agree(name: str) -> None:
    ours, theirs = reversed(a_pair(name, "train.lr=1e-4"))
    updates = 0
    while updates < 1000:
        batch = experience(ours, updates)
        ours.update(batch)
        theirs.update(batch)
        updates += 4 if name.startswith("ppo") else 1
    apart = flattened(ours.policy) - flattened(theirs.policy)
    assert apart.abs().max().item() < 1e-3
    assert apart.norm() < 0.01 * flattened(theirs.policy).norm()


@pytest.mark.parametrize("name", SETTINGS)
def test_decisions_are_those_of_torch(name: str) -> None:
    ours, theirs = reversed(a_pair(name))
    shown = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    seen = PolicyInput(shown, np.zeros(7, np.bool_))
    actors: tuple[Actor, ...] = (KernelEngine().actor(ours.policy), theirs.policy)
    for seed in (None, 11):
        drawn = [
            actor.decide(
                seen, None if seed is None else torch.Generator().manual_seed(seed)
            ).actions
            for actor in actors
        ]
        assert drawn[0].dtype == drawn[1].dtype
        np.testing.assert_allclose(drawn[0], drawn[1], rtol=1e-5, atol=1e-6)


def test_what_is_not_finite_ends_an_update() -> None:
    _, learner = a_pair("ppo")
    batch = experience(learner, 0)
    batch.rewards[3] = math.inf  # type: ignore[index]
    with pytest.raises(Diverged, match="became"):
        FiniteNumbers(1).updated(learner.update(batch), 0)


def test_a_pass_stops_at_the_first_part_that_is_not_finite() -> None:
    _, learner = a_pair("ppo")
    ppo: Any = learner
    rollout = ppo.rollouts.prepare(experience(learner, 0))
    rollout.returns[13] = math.inf
    terms = ppo.engine_updates.run(
        rollout,
        np.arange(32),
        np.arange(0, 33, 8),
        1e-3,
        LossWeights(math.inf, math.inf, value=0.5, entropy=0.0, standardize=False),
    )
    assert terms.isfinite().all(1).tolist() == [True, False]
    assert int(learner.state().tensors["optimizer/steps"]) == 2
