"""Rollouts for on-policy learners: rows with values and advantages, as tensors."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_orch.rl.data.batch import Array, Batch, Column, host_column, on_host, rows_of
from rl_orch.rl.data.returns import gae
from rl_orch.rl.learn.precision import precision
from rl_orch.rl.learn.reward_scale import RewardScale
from rl_orch.rl.policies.actor_critic import ActorCritic
from rl_orch.rl.policies.distributions import Distribution
from rl_orch.rl.policies.policy import Inputs
from rl_orch.spec.model import Spec


class Rollout(NamedTuple):
    """The columns of B transitions that losses read; those of minibatches too.

    Of a policy with a memory, all rows are here, in sequences; `counts` is then where a row is a
    transition and not a mere reset. `memories` holds what was remembered before each row.
    """

    inputs: Inputs
    actions: Tensor
    log_probs: Tensor
    values: Tensor
    advantages: Tensor
    returns: Tensor
    masks: Tensor | None = None
    memories: Tensor | None = None
    first: Tensor | None = None
    counts: Tensor | None = None

    def rows(self, order: Tensor | slice) -> "Rollout":
        """The rows at these positions."""
        columns: list[Any] = [None if c is None else rows_of(c, order) for c in self]
        return Rollout(*columns)


class Assessor(Protocol):
    """An actor-critic's estimates for transitions; `ActorCritic` is one itself."""

    def assess(
        self, observations: Column, actions: NDArray[Any], *, masks: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """log π(a | s) and V(s), (B,) each, of a policy without a memory."""

    def values(
        self, observations: Column, memories: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """V(s), (B,), given what was remembered before."""


class Rollouts:
    """Turns batches into rollouts for one policy, and asks the policy about their rows."""

    def __init__(self, policy: ActorCritic, spec: Spec, assessor: Assessor | None = None) -> None:
        self._policy = policy
        self._assessor = assessor or policy
        self._steps = spec.rollout.steps
        self._gamma = spec.train.gamma
        self._lambda = spec.train.gae_lambda
        self._train = spec.train
        self.rewards = RewardScale(spec)
        self._recurrent = policy.memory is not None
        self._length = spec.sequence_length

    def prepare(self, batch: Batch) -> Rollout:
        """The rows of a batch with the policy's estimates and their advantages."""
        if len(batch) % self._steps:
            raise ValueError(f"{len(batch)} rows are not whole rollouts of {self._steps} steps")
        self.rewards.observe(batch)
        log_probs, values = self._assess(batch)
        if "log_probs" in batch.extras:  # Of the policy that acted, where that is an older one.
            log_probs = on_host(batch.column("log_probs"))
        advantages = self._advantages(batch, values)
        valid = on_host(batch.column("valid"))
        whole = self._recurrent or valid.all()
        rows: Any = slice(None) if whole else valid
        return Rollout(
            self._policy.to_inputs(rows_of(host_column(batch.observations), rows)),
            self._policy.to_choices(on_host(batch.column("actions"))[rows]),
            log_probs=self._tensor(log_probs[rows]),
            values=self._tensor(values[rows]),
            advantages=self._tensor(advantages[rows]),
            returns=self._tensor((advantages + values)[rows]),
            masks=self._optional(batch, "masks", rows),
            memories=self._optional(batch, "memories", rows),
            first=self._optional(batch, "first", rows) if self._recurrent else None,
            counts=self._tensor(valid) if self._recurrent and not valid.all() else None,
        )

    def log_probs(self, batch: Batch) -> NDArray[np.float32]:
        """log π(a | s) of a batch under the present policy."""
        with precision(self._train, self._policy.device):
            return self._assess(batch)[0]

    def ask(self, rollout: Rollout) -> tuple[Distribution, Tensor]:
        """π(· | s) and V(s) of these rows as the policy is now, with gradients."""
        if self._policy.memory is None:
            asked: tuple[Distribution, Tensor] = self._policy(rollout.inputs, rollout.masks)
            return asked
        assert rollout.memories is not None
        assert rollout.first is not None
        memories = rollout.memories[:: self._length]
        return self._policy.unroll(rollout.inputs, memories, rollout.first, rollout.masks)

    def minibatches(
        self, rollout: Rollout, count: int, generator: torch.Generator
    ) -> Iterator[Rollout]:
        """The rollout in a new order, cut into `count` parts; sequences stay whole."""
        if not self._recurrent:
            order = torch.randperm(len(rollout.actions), generator=generator)
            return self._gathered(rollout, order.to(self._policy.device), count)
        starts = torch.randperm(len(rollout.actions) // self._length, generator=generator)
        sequences = starts[:, None] * self._length + torch.arange(self._length)
        parts = sequences.to(self._policy.device).tensor_split(min(count, len(sequences)))
        return (rollout.rows(part.flatten()) for part in parts)

    def order(
        self, rollout: Rollout, count: int, generator: torch.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """A new order of the rows, and the bounds of `count` parts of it; as in `minibatches`."""
        order = torch.randperm(len(rollout.actions), generator=generator)
        return order.numpy(), parts(len(order), count)

    def _gathered(self, rollout: Rollout, order: Tensor, count: int) -> Iterator[Rollout]:
        """One gather a column for all minibatches, which are then views."""
        mixed = rollout.rows(order)
        for start, stop in pairwise(parts(len(order), count).tolist()):
            yield mixed.rows(slice(start, stop))

    @torch.no_grad()
    def _assess(self, batch: Batch) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        observations, actions = host_column(batch.observations), on_host(batch.column("actions"))
        masks = on_host(batch.column("masks")) if "masks" in batch.extras else None
        if self._policy.memory is None:
            return self._assessor.assess(observations, actions, masks=masks)
        memories = on_host(batch.column("memories"))[:: self._steps]
        distribution, values = self._policy.unroll(
            self._policy.to_inputs(observations),
            self._tensor(memories),
            self._tensor(on_host(batch.column("first"))),
            None if masks is None else self._tensor(masks),
        )
        log_probs = distribution.log_prob(self._policy.to_choices(actions))
        return log_probs.cpu().numpy(), values.cpu().numpy()

    def _advantages(self, batch: Batch, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """(B,); rows come ordered by copy, then time, and GAE runs over (time, copy)."""

        def by_time(column: Array) -> NDArray[Any]:
            return on_host(column).reshape(-1, self._steps).T

        advantages = gae(
            by_time(self.rewards.transform(on_host(batch.column("rewards")))),
            by_time(values),
            by_time(self._next_values(batch, values)),
            by_time(batch.dones),
            gamma=self._gamma,
            lam=self._lambda,
        )
        return advantages.T.reshape(-1).astype(np.float32)

    def _next_values(self, batch: Batch, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """V(s') of each row, (B,): that of the next row, unless the episode or the rollout ends."""
        terminated = on_host(batch.column("terminated"))
        ends = on_host(batch.column("truncated")).copy()
        ends[self._steps - 1 :: self._steps] = True
        ends &= ~terminated
        following = np.append(values[1:], np.float32(0.0))
        following[terminated] = 0.0
        if ends.any():
            shown = rows_of(host_column(batch.next_observations), ends)
            kept = batch.extras.get("next_memories")
            memories = None if kept is None else rows_of(host_column(kept), ends)
            following[ends] = self._assessor.values(shown, memories)
        return following

    def _optional(self, batch: Batch, name: str, rows: Any) -> Tensor | None:
        if name not in batch.extras:
            return None
        return self._tensor(on_host(batch.column(name))[rows])

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._policy.device)


def parts(size: int, count: int) -> NDArray[np.int64]:
    """The bounds of `count` parts of so many rows, none much smaller than another."""
    return size * np.arange(count + 1) // count


def standardized(advantages: Tensor) -> Tensor:
    """Zero mean and unit deviation; a single advantage has no deviation and is left alone."""
    if len(advantages) < 2:
        return advantages
    deviation, mean = torch.std_mean(advantages)
    return (advantages - mean) / (deviation + 1e-8)
