"""Deciding with kernels: from inputs to actions, through the policy's part of a network."""

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_orch.rl.jit import Floats, kernel
from rl_orch.rl.kernels.dense import Table, forward, tanh
from rl_orch.rl.kernels.networks import Network, memory
from rl_orch.rl.policies.policy import Decision, PolicyInput, PolicyModule

CHOICE, VALUES, NORMAL, SQUASHED, BOUNDED = range(5)
"""What outputs mean: logits of choices; values, or several quantiles of each; means, with
deviations in the vector; means and log deviations before tanh; actions before tanh."""


class KernelHead(NamedTuple):
    """The meaning of a policy's outputs, and where they stand.

    `place` is their first column in the flow; `actions` how many choices or components there are;
    `each` the outputs for each; `log_std` where deviations begin in the vector, and `low` and
    `high` between which log deviations are kept.
    """

    kind: int
    place: int
    actions: int
    each: int = 1
    log_std: int = -1
    low: float = -math.inf
    high: float = math.inf


class KernelPolicy(NamedTuple):
    """A policy's part of a network: weights, layers, what outputs mean, what flows through it."""

    vector: Floats
    table: Table
    head: KernelHead
    flow: Floats


@kernel
def choose(policy: KernelPolicy, rows: int, noise: Floats, choices: NDArray[np.int64]) -> None:
    """Choices (N,) for the inputs (N, I) in `flow`: where logits less log E are greatest, for the
    noise E (N, n) given, or where values are; without noise, the greatest outputs of all."""
    head, flow = policy.head, policy.flow
    forward(policy.vector, policy.table, rows, flow)
    for row in range(rows):
        at = rows * head.place + row * head.actions * head.each
        best = -math.inf
        choices[row] = 0
        for j in range(head.actions):
            score = 0.0
            for k in range(head.each):
                score += flow[at + j * head.each + k]
            if len(noise):
                score -= math.log(noise[row * head.actions + j])
            if score > best:
                best, choices[row] = score, j


@kernel
def move(policy: KernelPolicy, rows: int, noise: Floats, moves: Floats) -> None:
    """Actions (N, A), flat, for the inputs (N, I) in `flow`; with standard normal noise (N, A), or
    without it."""
    vector, head, flow = policy.vector, policy.head, policy.flow
    forward(vector, policy.table, rows, flow)
    count = head.actions
    for row in range(rows):
        at = rows * head.place + row * count * head.each
        for k in range(count):
            value = flow[at + k]
            if len(noise) and head.kind != BOUNDED:
                log_std = vector[head.log_std + k] if head.kind == NORMAL else flow[at + count + k]
                log_std = min(max(log_std, head.low), head.high)
                value += math.exp(log_std) * noise[row * count + k]
            moves[row * count + k] = value if head.kind == NORMAL else tanh(value)


class KernelActor:
    """An actor that decides as a policy does, with kernels, in memory of its own."""

    memory_size = 0

    def __init__(
        self, policy: PolicyModule, vector: Tensor, network: Network, head: KernelHead
    ) -> None:
        self.device, self.to_env = policy.device, policy.to_env
        self.pipeline = policy.pipeline
        self._vector = vector.numpy()
        self._table, self._columns = network
        self.head = head
        self._shape = policy.action_space.shape or ()
        self._chooses = head.kind in (CHOICE, VALUES)
        self._flow = memory(0)
        self._none = np.empty(0, np.float32)

    def kernel_policy(self, rows: int) -> KernelPolicy:
        """Its network, with memory for so many rows."""
        if len(self._flow) < rows * self._columns:
            self._flow = memory(rows * self._columns)
        return KernelPolicy(self._vector, self._table, self.head, self._flow)

    def decide(self, seen: PolicyInput, generator: torch.Generator | None) -> Decision:
        """Actions (N, *shape): sampled, or the likeliest without a generator."""
        inputs = self.pipeline.process(seen.observations)
        assert isinstance(inputs, np.ndarray)
        rows, width = inputs.shape
        policy, noise = self.kernel_policy(rows), self._noise(rows, generator)
        policy.flow[: rows * width] = inputs.reshape(-1)
        if self._chooses:
            choices = np.empty(rows, np.int64)
            choose(policy, rows, noise, choices)
            return Decision(choices)
        moves = np.empty(rows * self.head.actions, np.float32)
        move(policy, rows, noise, moves)
        return Decision(moves.reshape(rows, *self._shape))

    def _noise(self, rows: int, generator: torch.Generator | None) -> Floats:
        kind = self.head.kind
        if generator is None or kind in (VALUES, BOUNDED):
            return self._none
        noise = torch.empty(rows * self.head.actions)
        if kind == CHOICE:
            return noise.exponential_(generator=generator).numpy()
        return noise.normal_(generator=generator).numpy()
