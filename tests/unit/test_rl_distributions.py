"""Distributions against those of torch, which are slower and well tested."""

import torch

from rl_orch.rl.distributions import Categorical, DiagGaussian


def a_generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_categorical_agrees_with_torch() -> None:
    logits = torch.randn(64, 5, generator=a_generator()) * 3
    actions = torch.randint(5, (64,), generator=a_generator())
    ours, theirs = Categorical(logits), torch.distributions.Categorical(logits=logits)
    torch.testing.assert_close(ours.log_prob(actions), theirs.log_prob(actions))  # type: ignore[no-untyped-call]
    torch.testing.assert_close(ours.entropy(), theirs.entropy())  # type: ignore[no-untyped-call]
    assert torch.equal(ours.mode(), theirs.probs.argmax(-1))


def test_diag_gaussian_agrees_with_torch() -> None:
    mean, log_std = torch.randn(64, 3, generator=a_generator()), torch.tensor([-1.0, 0.0, 0.7])
    actions = torch.randn(64, 3, generator=a_generator())
    ours = DiagGaussian(mean, log_std)
    theirs = torch.distributions.Independent(torch.distributions.Normal(mean, log_std.exp()), 1)
    torch.testing.assert_close(ours.log_prob(actions), theirs.log_prob(actions))  # type: ignore[no-untyped-call]
    torch.testing.assert_close(ours.entropy(), theirs.entropy())  # type: ignore[no-untyped-call]
    assert torch.equal(ours.mode(), mean)


def test_categorical_samples_come_as_often_as_they_should() -> None:
    probabilities = torch.tensor([0.7, 0.2, 0.1])
    rows = Categorical(probabilities.log().expand(20_000, 3))
    shares = torch.bincount(rows.sample(a_generator()), minlength=3) / 20_000
    torch.testing.assert_close(shares, probabilities, atol=0.02, rtol=0)


def test_gaussian_samples_have_the_mean_and_deviation_asked_for() -> None:
    rows = DiagGaussian(torch.full((20_000, 1), 2.0), torch.tensor([-1.0]))
    sample = rows.sample(a_generator())
    assert abs(sample.mean().item() - 2.0) < 0.02
    assert abs(sample.std().item() - 0.3679) < 0.02


def test_samples_follow_from_the_generator_alone() -> None:
    logits = torch.zeros(50, 4)
    first = Categorical(logits).sample(a_generator())
    torch.manual_seed(1)
    assert torch.equal(Categorical(logits).sample(a_generator()), first)


def test_gradients_flow_through_log_prob_and_entropy() -> None:
    log_std = torch.zeros(2, requires_grad=True)
    mean = torch.zeros(3, 2, requires_grad=True)
    distribution = DiagGaussian(mean, log_std)
    (distribution.log_prob(torch.ones(3, 2)).sum() + distribution.entropy().sum()).backward()  # type: ignore[no-untyped-call]
    assert mean.grad is not None
    assert torch.equal(mean.grad, torch.ones(3, 2))
    assert log_std.grad is not None
    assert torch.equal(log_std.grad, torch.tensor([3.0, 3.0]))
