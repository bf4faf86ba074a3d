"""Actor-critics in kernels: how their networks are laid out, and passes over rollouts."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_orch.rl.actor_critic import ActorCritic
from rl_orch.rl.kernels.acting import CHOICE, NORMAL, Acting, Head
from rl_orch.rl.kernels.networks import Network, Plan
from rl_orch.rl.kernels.policy_gradient import Outputs, Rows, Weights, policy_pass
from rl_orch.rl.on_policy import Rollout
from rl_orch.rl.optimizer import Optimizer, flattened

TERMS = 6


def acting(policy: ActorCritic) -> Acting:
    """What decides for an actor-critic: its trunk and its actor."""
    vector = flattened(policy)
    plan = Plan(vector, policy.encoder.size)
    place = plan.add(policy.actor, plan.add(policy.trunk))
    kind = CHOICE if policy.log_std is None else NORMAL
    head = Head(kind, place, policy.actor.size, log_std=_log_std(policy))
    return Acting(policy, vector, plan.network(), head)


class Passes:
    """Passes over rollouts, in the memory of an actor-critic and its optimiser."""

    def __init__(self, policy: ActorCritic, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._descent = optimizer.descent
        plan = Plan(flattened(policy), policy.encoder.size)
        hidden = plan.add(policy.trunk)
        self._outputs = Outputs(
            plan.add(policy.actor, hidden),
            plan.add(policy.critic, hidden),
            policy.actor.size,
            _log_std(policy),
        )
        self._network: Network = plan.network()
        self._flow = np.empty(0, np.float32)

    def run(
        self,
        rollout: Rollout,
        order: NDArray[np.int64],
        bounds: NDArray[np.int64],
        learning_rate: float,
        *,
        clip: float = math.inf,
        clip_values: float | None = None,
        value: float,
        entropy: float,
        standardize: bool,
    ) -> Tensor:
        """One step for each part of `order` between two bounds; returns their terms, (parts, 6),
        up to the first that are not finite."""
        size = int(np.diff(bounds).max()) * self._network.columns
        if len(self._flow) < size:
            self._flow, self._slopes = np.empty((2, size), np.float32)
        terms = np.empty((len(bounds) - 1, TERMS))
        finite = policy_pass(
            self._descent,
            self._optimizer.steps,
            learning_rate,
            self._network.table,
            self._outputs,
            self._flow,
            self._slopes,
            _rows(rollout),
            order,
            bounds,
            Weights(clip, clip_values or math.inf, value, entropy, standardize),
            terms,
        )
        self._optimizer.steps += len(terms)
        return torch.from_numpy(terms[: finite + 1])


def _rows(rollout: Rollout) -> Rows:
    actions, inputs = rollout.actions.numpy(), rollout.inputs
    assert isinstance(inputs, Tensor)
    chosen = actions.ndim == 1
    return Rows(
        inputs.numpy(),
        actions if chosen else np.empty(0, np.int64),
        np.empty((0, 0), np.float32) if chosen else actions,
        rollout.log_probs.numpy(),
        rollout.values.numpy(),
        rollout.advantages.numpy(),
        rollout.returns.numpy(),
    )


def _log_std(policy: ActorCritic) -> int:
    if policy.log_std is None:
        return -1
    return (policy.log_std.data_ptr() - flattened(policy).data_ptr()) // 4
