"""Policies that act on raw observations, row by row: the policy in torch, or an exported graph.

Both remember what they must between steps, frames included, so that whoever asks only says where
an episode begins.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from rl_orch.export.graph import (
    ACTION,
    Arrays,
    PolicyGraph,
    blank_state,
    following_state,
    graph_inputs,
)
from rl_orch.export.parity import Run, in_torch, newest
from rl_orch.io.policies.bundles import Port
from rl_orch.rl.policies.policy import Actor, Decision, PolicyInput, PolicyModule
from rl_orch.spec.model import Spec


class PolicySession(Protocol):
    """Whoever acts on raw observations (B, *shape), one step of B episodes at a time."""

    def act(
        self, observations: Any, first: NDArray[np.bool_], masks: NDArray[np.bool_] | None = None
    ) -> NDArray[Any]:
        """Actions as the environment takes them; `first` is where an episode begins."""


class GraphActing:
    """A graph in any form; always greedy."""

    def __init__(self, run: Run, inputs: Sequence[Port]) -> None:
        self._run, self._inputs = run, tuple(inputs)
        self._state: Arrays = {}
        self._rows = -1

    def act(
        self, observations: Any, first: NDArray[np.bool_], masks: NDArray[np.bool_] | None = None
    ) -> NDArray[Any]:
        """Actions as the environment takes them."""
        if len(first) != self._rows:
            self._rows, self._state = len(first), blank_state(self._inputs, len(first))
        outputs = self._run(graph_inputs(self._inputs, observations, first, self._state, masks))
        self._state = following_state(outputs)
        return outputs[ACTION]


class SampledActing:
    """The policy in torch, sampling; what it stacks and remembers is what its graph would."""

    def __init__(self, policy: Actor, spec: Spec, seed: int) -> None:
        self._policy, self._frames = policy, spec.obs.stack_frames
        self._generator = torch.Generator(policy.device).manual_seed(seed)
        self._stack: Any = None
        self._memory: NDArray[np.float32] | None = None
        self._rows = -1

    def act(
        self, observations: Any, first: NDArray[np.bool_], masks: NDArray[np.bool_] | None = None
    ) -> NDArray[Any]:
        """Actions as the environment takes them."""
        if len(first) != self._rows:
            self._rows, self._stack, self._memory = len(first), None, None
        shown = observations
        if self._frames is not None:
            shown = self._stack = stacked(self._stack, observations, first, self._frames)
        seen = PolicyInput(shown, first, self._memory, masks)
        decision = self._policy.decide(seen, self._generator)
        self._memory = decision.memory
        return self._policy.to_env(decision.actions)


def greedy(policy: PolicyModule, spec: Spec) -> GraphActing:
    """The policy in torch, greedy."""
    graph = PolicyGraph(policy, spec)
    return GraphActing(in_torch(graph), graph.inputs)


def stacked(before: Any, now: Any, first: NDArray[np.bool_], frames: int) -> Any:
    """The last frames (B, k, *shape), this one last; an episode begins with copies of its first."""
    if isinstance(now, Mapping):
        parts = before or dict.fromkeys(now)
        return {name: stacked(parts[name], now[name], first, frames) for name in now}
    repeated = np.repeat(now[:, None], frames, 1)
    if before is None:
        return repeated
    moved = np.concatenate((before[:, 1:], now[:, None]), 1)
    return np.where(first.reshape(-1, *[1] * now.ndim), repeated, moved)


class GraphActor:
    """A graph where an evaluation expects a policy: it takes what environments show with the
    spec's wrappers, of which it stacks the newest frame itself."""

    memory_size = 0
    device = torch.device("cpu")

    def __init__(self, run: Run, inputs: Sequence[Port], spec: Spec) -> None:
        self._acting = GraphActing(run, inputs)
        self._stacked = spec.obs.stack_frames is not None

    def decide(self, seen: PolicyInput, generator: torch.Generator | None) -> Decision:
        """Greedy actions, with or without a generator."""
        raw = newest(seen.observations) if self._stacked else seen.observations
        return Decision(self._acting.act(raw, seen.first, seen.masks))

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        """The actions: they are what an environment takes already."""
        return actions
