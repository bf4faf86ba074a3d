"""Optimisers against torch's own, in double precision; and networks that follow others slowly."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rl_orch.errors import Damaged
from rl_orch.rl.learn.optimizer import Adam, Optimizer, RMSprop, Target, build_optimizer
from rl_orch.spec.groups import TrainGroup

EXACT: dict[str, Any] = {"rtol": 0.0, "atol": 1e-10}
OURS: dict[str, type[Optimizer]] = {"adam": Adam, "rmsprop": RMSprop}
every_optimizer = pytest.mark.parametrize("name", [*OURS])


def a_net(seed: int = 0) -> nn.Sequential:
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.uniform_(-1.0, 1.0, generator=generator)
    return net


def a_loss(net: nn.Module, step: int) -> Tensor:
    """A different one in every step, with gradients of very different sizes."""
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    loss: Tensor = (net(inputs) * 10.0 ** (step % 5 - 3)).square().sum()
    return loss


def torchs(name: str, net: nn.Module) -> torch.optim.Optimizer:
    if name == "adam":
        return torch.optim.Adam(net.parameters(), eps=1e-5)
    return torch.optim.RMSprop(net.parameters(), alpha=0.99, eps=1e-5)


def assert_alike(one: nn.Module, other: nn.Module) -> None:
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, **EXACT)


@pytest.mark.parametrize("limit", [None, 0.5])
@every_optimizer
def test_our_steps_are_those_that_torch_takes(name: str, limit: float | None) -> None:
    ours, theirs = a_net(), a_net()
    optimizer = OURS[name](ours, eps=1e-5, max_grad_norm=limit)
    reference = torchs(name, theirs)
    for step in range(40):
        learning_rate = 1e-2 / (1 + step)
        norm = optimizer.step(a_loss(ours, step), learning_rate)
        reference.param_groups[0]["lr"] = learning_rate
        reference.zero_grad()
        a_loss(theirs, step).backward()  # type: ignore[no-untyped-call]
        bound = math.inf if limit is None else limit
        expected = nn.utils.clip_grad_norm_(theirs.parameters(), bound)
        reference.step()
        torch.testing.assert_close(norm, expected, **EXACT)
    assert_alike(ours, theirs)


@every_optimizer
def test_an_optimiser_goes_on_from_its_tensors(name: str) -> None:
    whole, resumed = a_net(), a_net()
    optimizer = OURS[name](whole, eps=1e-5)
    for step in range(3):
        optimizer.step(a_loss(whole, step), 1e-2)
    saved = optimizer.state()
    assert {*saved.tensors} == {"mean", "square", "steps"}
    with torch.no_grad():
        for target, source in zip(resumed.parameters(), whole.parameters(), strict=True):
            target.copy_(source)
    again = OURS[name](resumed, eps=1e-5)
    again.load_state(saved)
    for step in range(3, 6):
        optimizer.step(a_loss(whole, step), 1e-2)
        again.step(a_loss(resumed, step), 1e-2)
    for mine, theirs in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert saved.tensors["steps"] == 3


def test_parameters_that_take_no_gradient_stay_as_they_are() -> None:
    net = a_net()
    first, last = net[0], net[2]
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    first.requires_grad_(False)
    before, moved = first.weight.clone(), last.weight.clone()
    Adam(net, eps=1e-5).step(a_loss(net, 0), 1e-2)
    assert torch.equal(first.weight, before)
    assert not torch.equal(last.weight, moved)


def test_an_optimisers_memory_of_another_size_is_refused() -> None:
    state = RMSprop(nn.Linear(1, 1), eps=1e-5).state()
    with pytest.raises(Damaged, match="remembers 2 parameters, the policy has 6"):
        RMSprop(nn.Linear(2, 2), eps=1e-5).load_state(state)


@every_optimizer
def test_the_options_name_the_optimiser_and_say_how_it_steps(name: str) -> None:
    options = TrainGroup.model_validate(
        {"optimizer": name.upper(), "adam_eps": 0.3, "max_grad_norm": 0.1}
    )
    ours, theirs = a_net(), a_net()
    built = build_optimizer(ours, options)
    assert type(built) is OURS[name]
    plain = OURS[name](theirs, eps=0.3, max_grad_norm=0.1)
    for step in range(3):
        built.step(a_loss(ours, step), 1e-2)
        plain.step(a_loss(theirs, step), 1e-2)
    assert_alike(ours, theirs)


@pytest.mark.parametrize("tau", [0.005, 0.3, 1.0])
def test_a_target_follows_by_its_share_of_the_way(tau: float) -> None:
    net = a_net()
    target = Target(net)
    assert_alike(target.module, net)
    start = [parameter.clone() for parameter in target.module.parameters()]
    other = a_net(1)
    with torch.no_grad():
        for parameter, new in zip(net.parameters(), other.parameters(), strict=True):
            parameter.copy_(new)
    for _ in range(3):
        target.follow(tau)
    left = (1.0 - tau) ** 3
    for begun, now, goal in zip(start, target.module.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(now, goal + left * (begun - goal), **EXACT)
        assert tau < 1.0 or torch.equal(now, goal)


def test_a_target_takes_no_gradient_and_its_source_is_left_alone() -> None:
    net = a_net()
    target = Target(net)
    assert not any(parameter.requires_grad for parameter in target.module.parameters())
    before = [parameter.clone() for parameter in net.parameters()]
    with torch.no_grad():
        for parameter in target.module.parameters():
            parameter.zero_()
    target.follow(0.5)
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))


def test_a_target_follows_what_an_optimiser_moves() -> None:
    net = a_net()
    optimizer = Adam(net, eps=1e-5)
    target = Target(net)
    optimizer.step(a_loss(net, 0), 1e-1)
    inputs = torch.ones(1, 3, dtype=torch.float64)
    assert not torch.equal(target.module(inputs), net(inputs))
    target.follow(1.0)
    assert torch.equal(target.module(inputs), net(inputs))
