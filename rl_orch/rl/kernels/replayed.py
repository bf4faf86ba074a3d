"""Learners from replayed transitions in kernels: how their networks are laid out, and updates."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_orch.rl.critics import ContinuousPolicy, TwinCritics
from rl_orch.rl.kernels.acting import BOUNDED, SQUASHED, VALUES, Acting, Head
from rl_orch.rl.kernels.compile import Floats
from rl_orch.rl.kernels.networks import Network, Plan
from rl_orch.rl.kernels.q_learning import Transitions, Values, improve_values
from rl_orch.rl.kernels.twin_critics import (
    Delayed,
    Layers,
    Soft,
    delayed_actor,
    delayed_critics,
    soft_actor,
    soft_critics,
)
from rl_orch.rl.nets import MLP
from rl_orch.rl.optimizer import Optimizer, Target, flattened
from rl_orch.rl.policy import PolicyModule
from rl_orch.rl.q_network import QNetwork
from rl_orch.rl.replay import Sample


@dataclass(frozen=True, slots=True)
class Update:
    """The terms of an update, and the error of each row, (B,), for its priority."""

    terms: Tensor
    errors: Tensor


def values_acting(policy: QNetwork) -> Acting:
    """What decides for a network of values."""
    vector = flattened(policy)
    plan = Plan(vector, policy.network.encoder.size)
    place = plan.add(policy.network.head)
    head = Head(VALUES, place, policy.network.choices, each=policy.quantiles or 1)
    return Acting(policy, vector, plan.network(), head)


def moves_acting(
    policy: ContinuousPolicy, nets: list[MLP], bounds: tuple[float, float] | None
) -> Acting:
    """What decides for a policy of perceptrons one after another: squashed Gaussians with bounds of
    their log deviations, or bounded actions without."""
    vector = flattened(policy)
    plan, place = Plan(vector, policy.pipeline.size), 0
    for net in nets:
        place = plan.add(net, place)
    head = Head(BOUNDED, place, policy.action_size)
    if bounds is not None:
        head = Head(SQUASHED, place, policy.action_size, 2, low=bounds[0], high=bounds[1])
    return Acting(policy, vector, plan.network(), head)


class ValueUpdates:
    """Updates of a network of values, in its memory and that of its optimiser and target."""

    def __init__(
        self, policy: QNetwork, optimizer: Optimizer, target: Target[Any], *, double: bool
    ) -> None:
        self._policy, self._optimizer = policy, optimizer
        self._descent = optimizer.descent
        self._target = target.vector.numpy()
        self._double = double
        plan = Plan(flattened(policy.network), policy.network.encoder.size)
        self._values = Values(
            plan.add(policy.network.head), policy.network.choices, policy.quantiles or 0
        )
        self._flows = _Flows(plan.network())

    def improve(self, sample: Sample, learning_rate: float) -> Update:
        """One step of gradient descent."""
        rows = len(sample.rewards)
        flow, slopes = self._flows.of(rows)
        errors, terms = np.empty(rows), np.empty(3)
        improve_values(
            self._descent,
            self._optimizer.steps,
            learning_rate,
            self._flows.network.table,
            self._values,
            self._target,
            self._double,
            _transitions(self._policy, sample),
            flow,
            slopes,
            errors,
            terms,
        )
        self._optimizer.steps += 1
        return Update(torch.from_numpy(terms), torch.from_numpy(errors))


class CriticUpdates:
    """Updates of a policy of continuous actions and its twin critics, in their memory.

    `actor` are the policy's perceptrons, one after another.
    """

    def __init__(
        self,
        policy: ContinuousPolicy,
        actor: list[MLP],
        critics: TwinCritics,
        target_critics: Target[TwinCritics],
        optimizers: Mapping[str, Optimizer],
    ) -> None:
        self._policy = policy
        self._optimizers = optimizers
        self._descents = {name: optimizer.descent for name, optimizer in optimizers.items()}
        self._target = target_critics.vector.numpy()
        inputs = policy.pipeline.size
        plan, place = Plan(flattened(policy), inputs), 0
        for net in actor:
            place = plan.add(net, place)
        self._actor = _Flows(plan.network(), place)
        plan = Plan(flattened(critics), inputs + policy.action_size)
        places = plan.add(critics.first), plan.add(critics.second)
        self._critics = _Flows(plan.network(), *places)
        alone = Plan(flattened(critics), inputs + policy.action_size)
        alone.add(critics.first)
        self._first = alone.network().table

    def soft(
        self,
        sample: Sample,
        learning_rate: float,
        noise: Tensor,
        next_noise: Tensor,
        alpha: float,
        bounds: tuple[float, float],
    ) -> Update:
        """One step of SAC's critics and policy."""
        drawn, rows = _transitions(self._policy, sample), len(sample.rewards)
        actor, critics = self._actor.layers(rows), self._critics.layers(rows)
        policy, judges = self._descents["policy"], self._descents["critics"]
        soft = Soft(alpha, *bounds)
        errors, terms = np.empty(rows), np.empty(5)
        soft_critics(
            policy.vector,
            actor,
            critics,
            judges,
            self._optimizers["critics"].steps,
            learning_rate,
            self._target,
            drawn,
            next_noise.numpy(),
            soft,
            errors,
            terms,
        )
        soft_actor(
            actor,
            critics,
            judges.vector,
            policy,
            self._optimizers["policy"].steps,
            learning_rate,
            drawn,
            noise.numpy(),
            soft,
            terms,
        )
        for name in ("critics", "policy"):
            self._optimizers[name].steps += 1
        return Update(torch.from_numpy(terms), torch.from_numpy(errors))

    def delayed(
        self,
        sample: Sample,
        learning_rate: float,
        target_policy: Target[Any],
        noise: Tensor,
        deviation: float,
        clip: float,
        *,
        move_policy: bool,
    ) -> Update:
        """One step of TD3's critics and, if it is time, of its policy."""
        drawn, rows = _transitions(self._policy, sample), len(sample.rewards)
        actor, critics = self._actor.layers(rows), self._critics.layers(rows)
        policy, judges = self._descents["policy"], self._descents["critics"]
        errors, terms = np.empty(rows), np.zeros(5)
        delayed_critics(
            target_policy.vector.numpy(),
            actor,
            critics,
            judges,
            self._optimizers["critics"].steps,
            learning_rate,
            self._target,
            drawn,
            noise.numpy(),
            Delayed(deviation, clip),
            errors,
            terms,
        )
        self._optimizers["critics"].steps += 1
        if move_policy:
            delayed_actor(
                actor,
                critics,
                self._first,
                judges.vector,
                policy,
                self._optimizers["policy"].steps,
                learning_rate,
                drawn,
                self._policy.action_size,
                terms,
            )
            self._optimizers["policy"].steps += 1
        return Update(torch.from_numpy(terms), torch.from_numpy(errors))


class _Flows:
    """Memory for what flows through a network, which grows with the rows."""

    def __init__(self, network: Network, place: int = 0, second: int = 0) -> None:
        self.network = network
        self._places = place, second
        self._flow = self._slopes = np.empty(0, np.float32)

    def of(self, rows: int) -> tuple[Floats, Floats]:
        size = rows * self.network.columns
        if len(self._flow) < size:
            self._flow, self._slopes = np.empty((2, size), np.float32)
        return self._flow, self._slopes

    def layers(self, rows: int) -> Layers:
        return Layers(self.network.table, *self.of(rows), *self._places)


def _transitions(policy: PolicyModule, sample: Sample) -> Transitions:
    actions = sample.actions
    chosen = actions.dtype.kind == "i"
    none: NDArray[Any] = np.empty((0, 0), np.float32)
    return Transitions(
        _inputs(policy, sample.observations),
        actions.astype(np.int64, copy=False) if chosen else np.empty(0, np.int64),
        none if chosen else actions.reshape(len(actions), -1).astype(np.float32, copy=False),
        sample.rewards,
        _inputs(policy, sample.next_observations),
        sample.discounts,
        sample.weights,
    )


def _inputs(policy: PolicyModule, observations: Any) -> Floats:
    processed = policy.pipeline.process(observations)
    assert isinstance(processed, np.ndarray)
    return np.ascontiguousarray(processed)
