"""Learners from replayed transitions in kernels: how their networks are laid out, and updates."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_orch.rl.kernels.act import BOUNDED, SQUASHED, VALUES, KernelActor, KernelHead
from rl_orch.rl.kernels.dense import Table
from rl_orch.rl.kernels.networks import Flows, Plan, actions_of, inputs_of, memory
from rl_orch.rl.kernels.optimizers import descend
from rl_orch.rl.kernels.q_learning import Transitions, Values, improve_values
from rl_orch.rl.kernels.quantile_critics import Quantiles, truncated_actor, truncated_critics
from rl_orch.rl.kernels.twin_critics import (
    Delayed,
    Layers,
    Portion,
    Soft,
    delayed_actor,
    delayed_critics,
    soft_actor,
    soft_critics,
)
from rl_orch.rl.learn.engine import TrainedCritics, Update
from rl_orch.rl.learn.optimizer import Optimizer, Target, flattened
from rl_orch.rl.policies.policy import PolicyModule
from rl_orch.rl.policies.q_network import QNetwork
from rl_orch.rl.policies.twin_critics import ContinuousPolicy
from rl_orch.rl.replay.buffer import Sample

WORTH_SHARING = 2_000_000
"""Products of numbers in a pass through the critics, from which on two threads pay."""

_Part: TypeAlias = tuple[Portion, slice]


def value_actor(policy: QNetwork) -> KernelActor:
    """The actor of a Q-network."""
    vector = flattened(policy)
    plan = Plan(vector, policy.network.encoder.size)
    place = plan.add(policy.network.head)
    head = KernelHead(VALUES, place, policy.network.choices, each=policy.quantiles or 1)
    return KernelActor(policy, vector, plan.network(), head)


def move_actor(policy: ContinuousPolicy) -> KernelActor:
    """The actor of a policy of continuous actions."""
    plan, place = _policy_plan(policy)
    head = KernelHead(BOUNDED, place, policy.action_size)
    if policy.log_std_bounds is not None:
        low, high = policy.log_std_bounds
        head = KernelHead(SQUASHED, place, policy.action_size, 2, low=low, high=high)
    return KernelActor(policy, flattened(policy), plan.network(), head)


class KernelValueUpdates:
    """Updates of a network of values; in its memory and that of its optimiser and target."""

    def __init__(
        self, policy: QNetwork, optimizer: Optimizer, target: Target[Any], *, double: bool
    ) -> None:
        self._policy, self._optimizer = policy, optimizer
        self._arrays = optimizer.arrays
        self._target = target.vector.numpy()
        self._double = double
        plan = Plan(flattened(policy.network), policy.network.encoder.size)
        self._values = Values(
            plan.add(policy.network.head), policy.network.choices, policy.quantiles or 0
        )
        self._flows = Flows(plan.network())

    def improve(self, sample: Sample, learning_rate: float) -> Update:
        """One step of gradient descent."""
        terms, errors = improve_values(
            self._arrays,
            self._optimizer.steps,
            learning_rate,
            self._flows.of(len(sample.rewards)),
            self._values,
            self._target,
            self._double,
            _transitions(self._policy, sample),
        )
        self._optimizer.steps += 1
        return Update(torch.from_numpy(terms), torch.from_numpy(errors))


class KernelCriticUpdates:
    """Updates of a policy of continuous actions and its critics, in their memory.

    Where there is much to do, two threads share the rows, if there may be as many. Gradients of
    the two parts are added up in either case, so that the number of threads changes no result.
    """

    def __init__(self, trained: TrainedCritics) -> None:
        policy, critics = trained.policy, trained.critics
        self._policy = policy
        self._optimizers = trained.optimizers
        self._arrays = {name: self._optimizers[name].arrays for name in ("policy", "critics")}
        self._target = trained.target_critics.vector.numpy()
        plan, place = _policy_plan(policy)
        self._actors = [(Flows(plan.network()), (place, 0)) for _ in range(2)]
        plan = Plan(flattened(critics), policy.pipeline.size + policy.action_size)
        places, alone = [], list[Table]()
        for net in critics.nets:
            places.append(plan.add(net))
            # Before another network reads the inputs too.
            alone.append(plan.network().table[-len(net.layers) :])
        self._alone = alone[0], alone[-1]
        self._places = np.array(places)
        self._outputs = critics.nets[0].size
        ends = places[0], places[-1]
        self._critics = [(Flows(plan.network()), ends) for _ in range(2)]
        own = {name: arrays.gradient for name, arrays in self._arrays.items()}
        self._gradients = own, {name: memory(len(each)) for name, each in own.items()}
        self._other = _another_thread() if trained.threads > 1 else None

    def soft(
        self, sample: Sample, learning_rate: float, noise: Tensor, next_noise: Tensor, alpha: float
    ) -> Update:
        """One step of SAC's critics and policy."""
        assert self._policy.log_std_bounds is not None
        soft, errors = Soft(alpha, *self._policy.log_std_bounds), np.empty(len(sample.rewards))
        parts, drawn, drawn_next = self._parts(sample, errors), noise.numpy(), next_noise.numpy()

        def judge(portion: Portion, rows: slice) -> None:
            soft_critics(portion, self._target, drawn_next[rows], soft)

        def act(portion: Portion, rows: slice) -> None:
            soft_actor(portion, self._alone, drawn[rows], soft)

        grad_norm = self._descend("critics", judge, parts, learning_rate)
        self._descend("policy", act, parts, learning_rate)
        return _update(parts, grad_norm, errors)

    def truncated(
        self,
        sample: Sample,
        learning_rate: float,
        noise: Tensor,
        next_noise: Tensor,
        alpha: float,
        dropped: int,
    ) -> Update:
        """One step of TQC's critics and policy."""
        assert self._policy.log_std_bounds is not None
        soft, errors = Soft(alpha, *self._policy.log_std_bounds), np.empty(len(sample.rewards))
        parts, drawn, drawn_next = self._parts(sample, errors), noise.numpy(), next_noise.numpy()
        kept = len(self._places) * self._outputs - dropped
        quantiles = Quantiles(self._places, self._outputs, kept)

        def judge(portion: Portion, rows: slice) -> None:
            truncated_critics(portion, self._target, drawn_next[rows], soft, quantiles)

        def act(portion: Portion, rows: slice) -> None:
            truncated_actor(portion, drawn[rows], soft, quantiles)

        grad_norm = self._descend("critics", judge, parts, learning_rate)
        self._descend("policy", act, parts, learning_rate)
        return _update(parts, grad_norm, errors)

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
        delayed, errors = Delayed(deviation, clip), np.empty(len(sample.rewards))
        parts, drawn = self._parts(sample, errors), noise.numpy()
        slow_policy = target_policy.vector.numpy()

        def judge(portion: Portion, rows: slice) -> None:
            delayed_critics(portion, slow_policy, self._target, drawn[rows], delayed)

        def act(portion: Portion, _rows: slice) -> None:
            delayed_actor(portion, self._alone)

        grad_norm = self._descend("critics", judge, parts, learning_rate)
        if move_policy:
            self._descend("policy", act, parts, learning_rate)
        return _update(parts, grad_norm, errors)

    def descend_alone(self, name: str, slope: float, learning_rate: float) -> None:
        """One step of the only parameter of an optimiser."""
        optimizer = self._optimizers[name]
        arrays = optimizer.arrays
        arrays.gradient[0] = slope
        optimizer.steps += 1
        descend(arrays, optimizer.steps, learning_rate)

    def _parts(self, sample: Sample, errors: NDArray[np.float64]) -> list[_Part]:
        """The rows of a sample, in two parts if they are worth it."""
        count, drawn = len(sample.rewards), _transitions(self._policy, sample)
        work = count * len(self._arrays["critics"].vector)
        middle = count if work < WORTH_SHARING or count < 2 else (count + 1) // 2
        parts = []
        for number, rows in enumerate((slice(0, middle), slice(middle, count))):
            if rows.stop > rows.start:
                own = Transitions(*(column[rows] for column in drawn))
                actor, critics = self._layers(number, rows.stop - rows.start)
                portion = Portion(own, actor, critics, 1.0 / count, errors[rows], np.zeros(4))
                parts.append((portion, rows))
        return parts

    def _layers(self, number: int, rows: int) -> list[Layers]:
        """Actor and critics as one of the parts works on so many rows."""
        flows = {"policy": self._actors[number], "critics": self._critics[number]}
        gradients = self._gradients[number]
        return [
            Layers(self._arrays[name].vector, gradients[name], *each.of(rows), *places)
            for name, (each, places) in flows.items()
        ]

    def _descend(
        self,
        name: str,
        work: Callable[[Portion, slice], None],
        parts: list[_Part],
        learning_rate: float,
    ) -> float:
        """One step along the gradient to which work on each part leads; returns its norm."""
        other = None if self._other is None or len(parts) == 1 else self._other
        waiting = [other.submit(work, *part) for part in parts[1:]] if other else []
        try:
            for part in parts[:1] if other else parts:
                work(*part)
        finally:
            for each in waiting:
                each.result()
        arrays, optimizer = self._arrays[name], self._optimizers[name]
        if len(parts) > 1:
            np.add(arrays.gradient, self._gradients[1][name], out=arrays.gradient)
        optimizer.steps += 1
        return descend(arrays, optimizer.steps, learning_rate)


def _policy_plan(policy: ContinuousPolicy) -> tuple[Plan, int]:
    """The policy's perceptrons, laid out, and where its outputs begin."""
    plan, place = Plan(flattened(policy), policy.pipeline.size), 0
    for net in policy.nets:
        place = plan.add(net, place)
    return plan, place


def _another_thread() -> ThreadPoolExecutor:
    """A thread in which a product takes no more than one, either: torch counts for each thread."""
    return ThreadPoolExecutor(1, "kernels", initializer=torch.set_num_threads, initargs=(1,))


def _update(parts: list[_Part], grad_norm: float, errors: NDArray[np.float64]) -> Update:
    """The terms of all parts added up, the norm of the critics' gradient behind them."""
    terms = np.append(sum(portion.terms for portion, _ in parts), grad_norm)
    return Update(torch.from_numpy(terms), torch.from_numpy(errors))


def _transitions(policy: PolicyModule, sample: Sample) -> Transitions:
    return Transitions(
        inputs_of(policy.pipeline, sample.observations),
        *actions_of(sample.actions),
        sample.rewards,
        inputs_of(policy.pipeline, sample.next_observations),
        sample.discounts,
        sample.weights,
    )
