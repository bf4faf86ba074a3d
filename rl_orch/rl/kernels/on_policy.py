"""Actor-critics in kernels: how their networks are laid out, and passes over rollouts."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_orch.rl.data.batch import Column
from rl_orch.rl.kernels.act import CHOICE, NORMAL, KernelActor, KernelHead
from rl_orch.rl.kernels.networks import Flows, Network, Plan, actions_of, inputs_of, memory
from rl_orch.rl.kernels.policy_gradient import Outputs, RolloutRows, assess, policy_pass
from rl_orch.rl.learn.on_policy import Rollout
from rl_orch.rl.learn.optimizer import Optimizer, flattened
from rl_orch.rl.learn.optimizer_arrays import LossWeights
from rl_orch.rl.policies.actor_critic import ActorCritic

TERMS = 6

PART = 256
"""Rows that are assessed together."""


def actor(policy: ActorCritic) -> KernelActor:
    """The actor of an actor-critic, through its trunk and its policy head."""
    vector = flattened(policy)
    plan = Plan(vector, policy.encoder.size)
    place = plan.add(policy.actor, plan.add(policy.trunk))
    kind = CHOICE if policy.log_std is None else NORMAL
    head = KernelHead(kind, place, policy.actor.size, log_std=_log_std(policy))
    return KernelActor(policy, vector, plan.network(), head)


class KernelAssessor:
    """Estimates of an actor-critic for transitions, in its memory."""

    def __init__(self, policy: ActorCritic) -> None:
        self._pipeline = policy.pipeline
        self._vector = flattened(policy).numpy()
        self._network, self._outputs = _laid_out(policy)
        self._flow = memory(PART * self._network.columns)
        chooses = self._outputs.log_std < 0
        self._any_action = np.zeros(
            () if chooses else self._outputs.size, np.int64 if chooses else np.float32
        )

    def assess(
        self, observations: Column, actions: NDArray[Any], *, masks: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """log π(a | s) and V(s), (B,) each; kernels train without masks."""
        return self._assess(inputs_of(self._pipeline, observations), actions)

    def values(
        self, observations: Column, memories: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """V(s), (B,); kernels train without memories."""
        inputs = inputs_of(self._pipeline, observations)
        return self._assess(inputs, np.repeat(self._any_action[None], len(inputs), axis=0))[1]

    def _assess(
        self, inputs: NDArray[np.float32], actions: NDArray[Any]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        log_probs, values = np.empty((2, len(inputs)), np.float32)
        none = np.empty(0, np.float32)
        rows = RolloutRows(inputs, *actions_of(actions), log_probs, values, none, none)
        assess(self._vector, self._network.table, self._outputs, self._flow, rows, PART)
        return log_probs, values


class KernelPolicyUpdates:
    """Passes over rollouts, in the memory of an actor-critic and its optimiser."""

    def __init__(self, policy: ActorCritic, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._arrays = optimizer.arrays
        network, self._outputs = _laid_out(policy)
        self._flows = Flows(network)

    def run(
        self,
        rollout: Rollout,
        order: NDArray[np.int64],
        bounds: NDArray[np.int64],
        learning_rate: float,
        weights: LossWeights,
    ) -> Tensor:
        """One step for each part of `order` between two bounds; returns their terms, (parts, 6),
        up to the first that are not finite."""
        terms = np.empty((len(bounds) - 1, TERMS))
        finite = policy_pass(
            self._arrays,
            self._optimizer.steps,
            learning_rate,
            self._flows.of(int(np.diff(bounds).max())),
            self._outputs,
            _rows(rollout),
            order,
            bounds,
            weights,
            terms,
        )
        made = terms[: finite + 1]
        self._optimizer.steps += len(made)
        return torch.from_numpy(made)


def _laid_out(policy: ActorCritic) -> tuple[Network, Outputs]:
    """The whole of an actor-critic, and where its outputs are."""
    plan = Plan(flattened(policy), policy.encoder.size)
    hidden = plan.add(policy.trunk)
    actor, critic = plan.add(policy.actor, hidden), plan.add(policy.critic, hidden)
    return plan.network(), Outputs(actor, critic, policy.actor.size, _log_std(policy))


def _rows(rollout: Rollout) -> RolloutRows:
    inputs = rollout.inputs
    assert isinstance(inputs, Tensor)
    return RolloutRows(
        inputs.numpy(),
        *actions_of(rollout.actions.numpy()),
        rollout.log_probs.numpy(),
        rollout.values.numpy(),
        rollout.advantages.numpy(),
        rollout.returns.numpy(),
    )


def _log_std(policy: ActorCritic) -> int:
    if policy.log_std is None:
        return -1
    return (policy.log_std.data_ptr() - flattened(policy).data_ptr()) // 4
