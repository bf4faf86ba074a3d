"""Distributions against those of torch, which are slower and well tested, and plain formulas."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rl_orch.rl.policies.distributions import (
    Bernoulli,
    Categorical,
    DiagGaussian,
    Distribution,
    MultiCategorical,
    SquashedGaussian,
    StateDependentGaussian,
)

theirs: Any = torch.distributions
a_few = settings(max_examples=20, deadline=None)
seeds = st.integers(0, 2**32 - 1)
batches, widths = st.integers(1, 5), st.integers(1, 4)
scales = st.sampled_from([0.0, 1.0, 30.0])
DRAWS = 20_000


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tensors this small gain nothing from threads, which wait for each other on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def a_generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normals(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=a_generator(seed), dtype=torch.float64)


def some_masks(seed: int, rows: int, choices: int) -> Tensor:
    """About half of the choices are allowed, and at least one of each row."""
    masks = torch.rand(rows, choices, generator=a_generator(seed)) < 0.5
    masks[torch.arange(rows), torch.randint(choices, (rows,), generator=a_generator(seed))] = True
    return masks


def close(ours: Tensor, expected: Tensor | float, tolerance: float = 1e-10) -> None:
    # By NumPy: torch.testing imports two seconds' worth of modules when it first compares.
    wanted = torch.as_tensor(expected, dtype=torch.float64).detach().numpy()
    found = ours.detach().numpy()
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance, strict=True)


def gradient(of: Tensor, by: Tensor) -> Tensor:
    return torch.autograd.grad(of.sum(), by, retain_graph=True)[0]


def check_gradients(function: Callable[..., Tensor], *inputs: Tensor) -> None:
    """By each element of each input, against central differences."""
    step = 1e-5
    for place, given_input in enumerate(inputs):
        others = [entry.clone().requires_grad_() for entry in inputs]
        found = gradient(function(*others), others[place])
        for index in np.ndindex(*given_input.shape):
            moved = torch.zeros_like(given_input)
            moved[index] = step
            above, below = (
                function(*inputs[:place], given_input + by, *inputs[place + 1 :]).sum()
                for by in (moved, -moved)
            )
            close(found[index], (above - below) / (2 * step), 1e-7)


def chi_square(counts: Tensor, probabilities: Tensor) -> float:
    """Pearson's statistic: once in 10⁴ beyond 18 for 3 cells, 21 for 4, 26 for 6, 32 for 9."""
    expected = probabilities.double() * counts.sum()
    return float(((counts - expected).square() / expected).sum())


def log_slope_of_tanh(u: Tensor) -> Tensor:
    """1 - tanh² u = 4 / (e^u + e^-u)², for each element."""
    return math.log(4.0) - 2.0 * torch.logaddexp(u, -u)


@a_few
@given(batches, widths, scales, seeds)
def test_categorical_agrees_with_torch(rows: int, choices: int, scale: float, seed: int) -> None:
    logits = (normals(seed, rows, choices) * scale).requires_grad_()
    actions = torch.randint(choices, (rows,), generator=a_generator(seed))
    ours, other = Categorical(logits), theirs.Categorical(logits=logits)
    close(ours.log_prob(actions), other.log_prob(actions))
    close(ours.entropy(), other.entropy())
    close(gradient(ours.log_prob(actions), logits), gradient(other.log_prob(actions), logits))
    close(gradient(ours.entropy(), logits), gradient(other.entropy(), logits))
    assert torch.equal(ours.mode(), other.probs.argmax(-1))


def test_a_masked_categorical_by_hand() -> None:
    logits = torch.tensor([[1.0, 0.0, math.log(3.0), 9.0]], dtype=torch.float64)
    masks = torch.tensor([[False, True, True, False]])
    ours = Categorical(logits, masks)
    assert ours.log_p.exp()[0, [0, 3]].tolist() == [0.0, 0.0]
    close(ours.log_p.exp()[0, 1:3], torch.tensor([0.25, 0.75], dtype=torch.float64))
    close(ours.entropy()[0], -(0.25 * math.log(0.25) + 0.75 * math.log(0.75)))
    assert ours.mode().tolist() == [2]


@a_few
@given(batches, widths, scales, seeds)
def test_a_masked_categorical_is_one_over_the_allowed_choices_alone(
    rows: int, choices: int, scale: float, seed: int
) -> None:
    logits = (normals(seed, rows, choices) * scale).requires_grad_()
    masks = some_masks(seed, rows, choices)
    ours = Categorical(logits, masks)
    assert not ours.log_p.exp()[~masks].any()
    for row in range(rows):
        allowed = masks[row].nonzero().squeeze(-1)
        other = theirs.Categorical(logits=logits[row, allowed])
        found = torch.stack([ours.log_prob(action.expand(rows))[row] for action in allowed])
        expected = other.log_prob(torch.arange(len(allowed)))
        close(found, expected)
        close(ours.entropy()[row], other.entropy())
        weights = torch.arange(1.0, len(allowed) + 1)
        close(
            gradient(found @ weights.double() + ours.entropy()[row], logits),
            gradient(expected @ weights.double() + other.entropy(), logits),
        )
        assert ours.mode()[row] == allowed[other.probs.argmax()]


@pytest.mark.parametrize("forbidden", [1e30, -1e30, math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_whatever_a_forbidden_logit_is_it_takes_no_part(
    forbidden: float, dtype: torch.dtype
) -> None:
    logits = torch.tensor([[forbidden, 2.0, 2.0]], dtype=dtype, requires_grad=True)
    ours = Categorical(logits, torch.tensor([[False, True, True]]))
    total = ours.log_prob(torch.tensor([1])) + ours.entropy()
    assert total.item() == pytest.approx(0.0, abs=1e-6)
    assert gradient(total, logits)[0].tolist() == pytest.approx([0.0, 0.5, -0.5], abs=1e-6)


def test_the_only_allowed_choice_is_certain_and_teaches_nothing() -> None:
    logits = torch.tensor([[5.0, -3.0, 1.0]], requires_grad=True)
    ours = Categorical(logits, torch.tensor([[False, True, False]]))
    log_prob, entropy = ours.log_prob(torch.tensor([1])), ours.entropy()
    assert (log_prob.item(), entropy.item()) == (0.0, 0.0)
    assert gradient(log_prob + entropy, logits).tolist() == [[0.0, 0.0, 0.0]]
    assert ours.sample(a_generator()).item() == 1


@a_few
@given(batches, st.lists(widths, min_size=1, max_size=4), st.booleans(), seeds)
def test_multi_categorical_is_the_sum_of_independent_choices(
    rows: int, nvec: list[int], masked: bool, seed: int
) -> None:
    logits = normals(seed, rows, sum(nvec)) * 3
    parts = [some_masks(seed + i, rows, size) for i, size in enumerate(nvec)]
    masks = torch.cat(parts, -1) if masked else None
    ours = MultiCategorical(logits, nvec, masks)
    actions = ours.sample(a_generator(seed))
    assert actions.shape == (rows, len(nvec))
    others = [
        theirs.Categorical(logits=part.masked_fill(~allowed, -1e9) if masked else part)
        for part, allowed in zip(torch.split(logits, nvec, -1), parts, strict=True)
    ]
    log_prob = sum(other.log_prob(actions[:, i]) for i, other in enumerate(others))
    close(ours.log_prob(actions), torch.as_tensor(log_prob))
    close(ours.entropy(), torch.stack([other.entropy() for other in others]).sum(0))
    assert torch.equal(ours.mode(), torch.stack([other.probs.argmax(-1) for other in others], -1))


def test_a_masked_multi_categorical_keeps_its_gradients_finite_and_off_the_forbidden() -> None:
    logits = torch.tensor([[7.0, 1.0, 0.0, 0.0, 4.0]], requires_grad=True)
    masks = torch.tensor([[False, True, True, True, False]])
    ours = MultiCategorical(logits, [2, 3], masks)
    found = gradient(ours.log_prob(torch.tensor([[1, 0]])) + ours.entropy(), logits)
    assert found.tolist() == [[0.0, 0.0, 0.5, -0.5, 0.0]]


@a_few
@given(batches, widths, scales, seeds)
def test_bernoulli_agrees_with_torch(rows: int, coins: int, scale: float, seed: int) -> None:
    logits = (normals(seed, rows, coins) * scale).requires_grad_()
    ours, other = Bernoulli(logits), theirs.Independent(theirs.Bernoulli(logits=logits), 1)
    actions = ours.sample(a_generator(seed))
    assert actions.dtype == torch.int8
    close(ours.log_prob(actions), other.log_prob(actions.double()))
    close(ours.entropy(), other.entropy())
    close(
        gradient(ours.log_prob(actions) + ours.entropy(), logits),
        gradient(other.log_prob(actions.double()) + other.entropy(), logits),
    )
    assert torch.equal(ours.mode(), (logits > 0).to(torch.int8))


def test_a_coin_that_falls_against_all_odds_keeps_its_exact_log_probability() -> None:
    logits = torch.tensor([[25.0, -25.0]], dtype=torch.float64)
    found = Bernoulli(logits).log_prob(torch.tensor([[0, 1]]))
    close(found[0], -50.0 - 2.0 * math.log1p(math.exp(-25.0)), 1e-15)


@a_few
@given(batches, widths, st.booleans(), seeds)
def test_diag_gaussian_agrees_with_torch(rows: int, size: int, by_state: bool, seed: int) -> None:
    mean, actions = normals(seed, 2, rows, size)
    log_std = (normals(seed + 1, *([rows] if by_state else []), size)).requires_grad_()
    ours = DiagGaussian(mean, log_std)
    other = theirs.Independent(theirs.Normal(mean, log_std.exp().expand(rows, size)), 1)
    close(ours.log_prob(actions), other.log_prob(actions))
    close(ours.entropy(), other.entropy())
    close(
        gradient(ours.log_prob(actions) + ours.entropy(), log_std),
        gradient(other.log_prob(actions) + other.entropy(), log_std),
    )
    drawn, log_prob = ours.rsample_with_log_prob(actions)
    close(drawn, mean + log_std.exp() * actions)
    close(log_prob, other.log_prob(drawn))
    assert torch.equal(ours.mode(), mean)


@a_few
@given(batches, widths, st.booleans(), seeds)
def test_squashed_gaussian_is_a_change_of_variables(
    rows: int, size: int, by_state: bool, seed: int
) -> None:
    mean, noise = normals(seed, 2, rows, size).clamp(-2, 2)
    log_std = normals(seed + 1, *([rows] if by_state else []), size).clamp(-1, 0.5)
    ours = SquashedGaussian(mean, log_std)
    actions, log_prob = ours.rsample_with_log_prob(noise)
    u = (mean + log_std.exp() * noise).requires_grad_()
    normal = theirs.Normal(mean, log_std.exp().expand(rows, size))
    # The slope of tanh as autograd finds it, not as the formula in the module has it.
    expected = (normal.log_prob(u) - gradient(u.tanh(), u).log()).sum(-1)
    close(actions, u.tanh())
    close(log_prob, expected)
    close(ours.log_prob(actions), expected)
    other = theirs.TransformedDistribution(normal, theirs.TanhTransform())
    close(ours.log_prob(actions), other.log_prob(actions).sum(-1))
    assert torch.equal(ours.mode(), mean.tanh())


def test_the_density_of_a_squashed_gaussian_is_the_slope_of_its_distribution() -> None:
    ours = SquashedGaussian(torch.full((5, 1), 0.3).double(), torch.tensor([-0.4]).double())
    actions = torch.tensor([[-0.9], [-0.3], [0.0], [0.5], [0.95]], dtype=torch.float64)
    normal = theirs.Normal(ours.normal.mean, ours.normal.log_std.exp())
    step = 1e-5
    above, below = ((actions + by).atanh() for by in (step, -step))
    slope = (normal.cdf(above) - normal.cdf(below)) / (2 * step)
    close(ours.log_prob(actions).exp(), slope.squeeze(-1), 1e-6)


def test_a_squashed_log_probability_is_exact_far_into_saturation() -> None:
    u = torch.tensor([[-300.0], [-12.0], [-9.0], [0.0], [15.0], [300.0]], dtype=torch.float64)
    ours = SquashedGaussian(torch.zeros_like(u), torch.zeros(1, dtype=torch.float64))
    _, log_prob = ours.rsample_with_log_prob(u)
    expected = -0.5 * u.square() - 0.5 * math.log(2 * math.pi) - log_slope_of_tanh(u)
    close(log_prob, expected.squeeze(-1), 1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("action", [-1.0, 1.0])
def test_saturated_actions_have_finite_log_probabilities_and_gradients(
    dtype: torch.dtype, action: float
) -> None:
    mean = torch.tensor([[-1e4 * action], [0.5], [1e4 * action]], dtype=dtype, requires_grad=True)
    log_std = torch.full((3, 1), -5.0, dtype=dtype, requires_grad=True)
    ours = SquashedGaussian(mean, log_std)
    drawn, log_prob = ours.rsample_with_log_prob(torch.full_like(mean, action))
    assert drawn[2].item() == action
    for found in (log_prob, ours.log_prob(torch.full_like(mean, action)), ours.entropy()):
        assert found.isfinite().all()
        assert gradient(found, mean).isfinite().all()
        assert gradient(found, log_std).isfinite().all()


@a_few
@given(batches, widths, seeds)
def test_the_entropy_of_a_squashed_gaussian_is_that_of_its_density(
    rows: int, size: int, seed: int
) -> None:
    mean, log_std = normals(seed, rows, size), normals(seed + 1, rows, size).clamp(-3, 0.6)
    noise = torch.linspace(-9, 9, 1001, dtype=torch.float64)
    u = mean + log_std.exp() * noise[:, None, None]
    log_density = theirs.Normal(mean, log_std.exp()).log_prob(u) - log_slope_of_tanh(u)
    weights = (-0.5 * noise.square()).softmax(0)
    close(
        SquashedGaussian(mean, log_std).entropy(),
        -torch.einsum("nba,n->b", log_density, weights),
        1e-7,
    )


def test_gradients_through_a_squashed_sample_are_those_of_finite_differences() -> None:
    mean, log_std, noise = normals(3, 3, 2, 3)

    def weighed(mean: Tensor, log_std: Tensor) -> Tensor:
        actions, log_prob = SquashedGaussian(mean, log_std).rsample_with_log_prob(noise)
        return log_prob + actions @ torch.arange(1.0, 4.0).double()

    check_gradients(weighed, mean, log_std)


def gsde(seed: int, rows: int, features: int, size: int) -> dict[str, Tensor]:
    """What a state-dependent distribution is made of."""
    return {
        "mean": normals(seed, rows, size).clamp(-1, 1),
        "latent": normals(seed + 1, rows, features).clamp(-1, 1),
        "log_std": normals(seed + 2, features, size).clamp(-2, -0.5),
    }


def summed_deviation(latent: Tensor, log_std: Tensor) -> Tensor:
    """√(Σ_l (latent_l std_lk)² + 1e-6), one term after the other, (B, A)."""
    found = torch.empty(len(latent), log_std.shape[1], dtype=torch.float64)
    for row in range(len(latent)):
        for component in range(log_std.shape[1]):
            terms = zip(latent[row].tolist(), log_std[:, component].tolist(), strict=True)
            variance = sum((feature * math.exp(entry)) ** 2 for feature, entry in terms)
            found[row, component] = math.sqrt(variance + 1e-6)
    return found


@a_few
@given(batches, widths, widths, seeds)
def test_gsde_is_normal_with_the_variance_summed_over_the_exploration_matrix(
    rows: int, features: int, size: int, seed: int
) -> None:
    parts = gsde(seed, rows, features, size)
    ours = StateDependentGaussian(**parts)
    std = summed_deviation(parts["latent"], parts["log_std"])
    normal = theirs.Normal(parts["mean"], std)
    u = parts["mean"] + std * normals(seed + 3, rows, size).clamp(-2, 2)
    expected = normal.log_prob(u).sum(-1) - log_slope_of_tanh(u).sum(-1)
    close(ours.log_prob(u.tanh()), expected)
    drawn, log_prob = ours.rsample_with_log_prob((u - parts["mean"]) / std)
    close(drawn, u.tanh())
    close(log_prob, expected)
    close(ours.mode(), parts["mean"].tanh())


@a_few
@given(batches, widths, widths, seeds)
def test_gsde_explores_by_the_features_times_the_matrix(
    rows: int, features: int, size: int, seed: int
) -> None:
    parts = gsde(seed, rows, features, size)
    ours = StateDependentGaussian(**parts)
    matrices = ours.matrices(parts["log_std"], rows, a_generator(seed))
    noise = torch.stack([row @ theta for row, theta in zip(parts["latent"], matrices, strict=True)])
    close(ours.explore(matrices), (parts["mean"] + noise).tanh())


def test_gsde_noise_has_the_covariance_that_its_features_share() -> None:
    parts = gsde(0, 3, 2, 2)
    latent, log_std = parts["latent"], parts["log_std"]
    matrices = StateDependentGaussian.matrices(log_std, DRAWS, a_generator())
    noise = torch.einsum("bl,nla->nba", latent, matrices).reshape(DRAWS, 6)
    found = noise.T @ noise / DRAWS
    # Rows under one matrix move together; components of an action do not.
    shared = torch.einsum("bl,cl,la->bac", latent, latent, (2 * log_std).exp())
    expected = torch.zeros(3, 2, 3, 2, dtype=torch.float64)
    for component in range(2):
        expected[:, component, :, component] = shared[:, component]
    expected = expected.reshape(6, 6)
    scale = torch.outer(expected.diagonal(), expected.diagonal()).sqrt()
    close(found / scale, expected / scale, 0.03)


def test_gsde_gradients_reach_the_mean_the_features_and_the_deviations() -> None:
    def weighed(mean: Tensor, latent: Tensor, log_std: Tensor) -> Tensor:
        ours = StateDependentGaussian(mean, latent, log_std)
        return ours.log_prob(torch.full((2, 3), 0.5).double()) + 2.0 * ours.entropy()

    check_gradients(weighed, normals(0, 2, 3), normals(1, 2, 4), normals(2, 4, 3))


def test_gsde_without_features_is_finite() -> None:
    latent = torch.zeros(1, 2, requires_grad=True)
    ours = StateDependentGaussian(torch.zeros(1, 1), latent, torch.zeros(2, 1))
    found = ours.log_prob(torch.zeros(1, 1)) + ours.entropy()
    assert found.isfinite().all()
    assert gradient(found, latent).isfinite().all()


def test_categorical_samples_come_as_often_as_they_should() -> None:
    probabilities = torch.tensor([0.7, 0.2, 0.1])
    rows = Categorical(probabilities.log().expand(DRAWS, 3))
    assert chi_square(torch.bincount(rows.sample(a_generator())), probabilities) < 18


def test_masked_samples_are_never_forbidden_and_come_as_often_as_they_should() -> None:
    masks = torch.tensor([True, False, True, False, True]).expand(DRAWS, 5)
    rows = Categorical(torch.tensor([1.0, 8.0, 0.0, 100.0, -1.0]).expand(DRAWS, 5), masks)
    counts = torch.bincount(rows.sample(a_generator()), minlength=5)
    assert counts[[1, 3]].tolist() == [0, 0]
    assert chi_square(counts[[0, 2, 4]], torch.tensor([1.0, 0.0, -1.0]).softmax(0)) < 18


def test_multi_categorical_samples_are_independent_of_each_other() -> None:
    logits = torch.tensor([0.0, 1.0, 0.5, 0.0, -0.5])
    sample = MultiCategorical(logits.expand(DRAWS, 5), [2, 3]).sample(a_generator())
    joint = torch.outer(logits[:2].softmax(0), logits[2:].softmax(0)).reshape(-1)
    assert chi_square(torch.bincount(sample[:, 0] * 3 + sample[:, 1], minlength=6), joint) < 26


def test_bernoulli_samples_are_independent_and_come_as_often_as_they_should() -> None:
    logits = torch.tensor([-1.0, 0.5])
    sample = Bernoulli(logits.expand(DRAWS, 2)).sample(a_generator()).long()
    heads = logits.sigmoid()
    sides = torch.stack([1 - heads, heads])
    joint = torch.outer(sides[:, 0], sides[:, 1]).reshape(-1)
    assert chi_square(torch.bincount(sample[:, 0] * 2 + sample[:, 1], minlength=4), joint) < 21


def one_gaussian(rows: int) -> Distribution:
    return DiagGaussian(torch.full((rows, 1), 0.2).double(), torch.tensor([-1.0]).double())


def one_squashed(rows: int) -> Distribution:
    return SquashedGaussian(torch.full((rows, 1), 0.2).double(), torch.tensor([0.3]).double())


def one_gsde(rows: int) -> Distribution:
    mean, latent = torch.full((rows, 1), -0.3).double(), torch.tensor([1.0, -0.5]).double()
    log_std = torch.tensor([[-0.7], [0.1]]).double()
    return StateDependentGaussian(mean, latent.expand(rows, 2), log_std)


@pytest.mark.parametrize("made", [one_gaussian, one_squashed, one_gsde])
def test_continuous_samples_fill_bins_as_the_density_says(
    made: Callable[[int], Distribution],
) -> None:
    grid = torch.linspace(-0.95, 0.95, 801, dtype=torch.float64)
    density = made(len(grid)).log_prob(grid.unsqueeze(-1)).exp()
    masses = torch.cumulative_trapezoid(density, grid)[99::100].diff(prepend=torch.zeros(1))
    counts = torch.histogram(made(DRAWS).sample(a_generator()).squeeze(-1), grid[::100]).hist
    cells = torch.cat([counts, DRAWS - counts.sum(0, keepdim=True)])
    assert chi_square(cells, torch.cat([masses, 1.0 - masses.sum(0, keepdim=True)])) < 32


def test_samples_follow_from_the_generator_alone() -> None:
    logits = torch.zeros(50, 4)
    first = Categorical(logits).sample(a_generator())
    torch.manual_seed(1)
    assert torch.equal(Categorical(logits).sample(a_generator()), first)


def test_gradients_flow_through_log_prob_and_entropy() -> None:
    log_std = torch.zeros(2, requires_grad=True)
    mean = torch.zeros(3, 2, requires_grad=True)
    distribution = DiagGaussian(mean, log_std)
    total = distribution.log_prob(torch.ones(3, 2)).sum() + distribution.entropy().sum()
    assert torch.equal(gradient(total, mean), torch.ones(3, 2))
    assert torch.equal(gradient(total, log_std), torch.tensor([3.0, 3.0]))
