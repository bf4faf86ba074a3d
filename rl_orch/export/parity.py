"""Whether a graph does what the policy does: real observations, and the two side by side.

Observations come from playing the environment: the first half with the policy's own greedy
actions, the second half with sampled ones, so that the graph is asked about more than one path.
"""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from rl_orch.errors import RlctlError
from rl_orch.export.graph import (
    ACTION,
    MEMORY,
    NEXT,
    SCORES,
    Arrays,
    PolicyGraph,
    blank_state,
    following_state,
    graph_inputs,
)
from rl_orch.io.policies.bundles import GraphParity
from rl_orch.rl.envs import vector
from rl_orch.rl.envs.actions import choices_of
from rl_orch.rl.envs.masks import masks_in
from rl_orch.rl.envs.observations import flatten_observation
from rl_orch.rl.policies.policy import PolicyInput, PolicyModule
from rl_orch.rl.seeding import isolated
from rl_orch.rl.streams import Stream, derive
from rl_orch.spec.model import Spec

Run = Callable[[Arrays], Arrays]
"""A graph in some form: inputs by name → outputs by name."""

TOLERANCE = 1e-5
GAP = 1e-4
"""How far apart the best two scores must be for different choices to count."""

LANES = 8


@dataclass(frozen=True, slots=True)
class ParityRows:
    """What a policy was shown while it played, and what it decided: arrays of equally many rows.

    `expected` are the actions of the policy itself, and what it remembers; and the scores and
    frames of the graph in torch, which has been found equal to it.
    """

    inputs: Arrays
    expected: Arrays

    def __len__(self) -> int:
        return len(self.expected[ACTION])


def gather(policy: PolicyModule, graph: PolicyGraph, spec: Spec, rows: int) -> ParityRows:
    """Play the spec's environment with the policy, in torch, for so many rows."""
    lanes = min(LANES, rows)
    seed = derive(spec.env.seed, Stream.FINAL_EVALUATION, rows)
    with isolated(seed), closing(vector.make(spec, num_envs=lanes)) as envs:
        steps = [*_Play(policy, graph, spec, envs).steps(-(-rows // lanes), seed)]
    return ParityRows(*(_joined([step[side] for step in steps], rows) for side in (0, 1)))


def in_torch(graph: PolicyGraph, loaded: Callable[..., Any] | None = None) -> Run:
    """The graph as torch runs it, operation by operation, or as `loaded` back from a file."""
    forward = loaded or graph

    @torch.no_grad()
    def run(inputs: Arrays) -> Arrays:
        tensors = [torch.from_numpy(inputs[port.name]) for port in graph.inputs]
        outputs = zip(graph.outputs, forward(*tensors), strict=True)
        return {port.name: tensor.numpy() for port, tensor in outputs}

    return run


def compare(run: Run, rows: ParityRows, action_space: Space[Any]) -> GraphParity:
    """How near a graph comes to what is expected, in all rows."""
    ours = run(rows.inputs)
    differing, excused, compared = 0, 0, {*ours}
    if choices_of(action_space):
        unequal = ours[ACTION] != rows.expected[ACTION]
        close = _gaps(rows.expected[SCORES], action_space).reshape(unequal.shape) <= GAP
        differing, excused = int((unequal & ~close).sum()), int((unequal & close).sum())
        compared.remove(ACTION)
    relative = [_differences(ours[name], rows.expected[name]) for name in sorted(compared)]
    return GraphParity(
        rows=len(rows),
        largest_difference=max((pair[0] for pair in relative), default=0.0),
        largest_absolute=max((pair[1] for pair in relative), default=0.0),
        differing=differing,
        excused=excused,
        tolerance=TOLERANCE,
        gap=GAP,
    )


def refuse_unless_equal(form: str, parity: GraphParity) -> None:
    """Raise if a graph came not near enough."""
    if parity.passed:
        return
    raise RlctlError(
        f"the policy as {form} differs from the policy in torch: by "
        f"{parity.largest_difference:.1e} (at most {parity.tolerance:.0e} is allowed), and in "
        f"{parity.differing} greedy actions of {parity.rows} rows; nothing was written",
        hint="Report it with the spec; another format may come nearer.",
    )


class _Play:
    """A policy that plays, and the graph in torch beside it."""

    def __init__(
        self, policy: PolicyModule, graph: PolicyGraph, spec: Spec, envs: vector.Envs
    ) -> None:
        self.policy, self.graph, self.envs = policy, graph, envs
        self.stacked = spec.obs.stack_frames is not None
        self.choices = sum(choices_of(envs.single_action_space))
        self.masked = spec.agent.action_masks
        self.run = in_torch(graph)

    def steps(self, count: int, seed: int) -> Any:
        """Inputs and what is expected of each step of all lanes."""
        envs, lanes = self.envs, self.envs.num_envs
        generator = torch.Generator(self.policy.device)
        generator.manual_seed(derive(seed, Stream.ACTIONS))
        resets_next = vector.autoreset(envs) is AutoresetMode.NEXT_STEP
        resetting = np.zeros(lanes, np.bool_)
        observations, infos = vector.reset(envs, seed, numbered=True)
        first, memory = np.ones(lanes, np.bool_), None
        state = blank_state(self.graph.inputs, lanes)
        for step in range(count):
            masks = masks_in(infos, lanes, self.choices) if self.masked else None
            shown = PolicyInput(observations, first, memory, masks)
            decision = self.policy.decide(shown, None)
            actions = self.policy.to_env(decision.actions)
            inputs = self._inputs(shown, state)
            outputs = self.run(inputs)
            yield inputs, outputs | self._expected(actions, decision.memory)
            if step >= count // 2:
                actions = self.policy.to_env(self.policy.decide(shown, generator).actions)
            raw, _, terminated, truncated, infos = envs.step(actions)
            observations = flatten_observation(envs.single_observation_space, raw)
            memory, state = decision.memory, following_state(outputs)
            ended = np.logical_or(terminated, truncated)
            first, resetting = (resetting, ended) if resets_next else (ended, resetting)

    def _inputs(self, shown: PolicyInput, state: Arrays) -> Arrays:
        """As an environment without wrappers would show them; copies, since it reuses memory."""
        raw = newest(shown.observations) if self.stacked else shown.observations
        given = graph_inputs(self.graph.inputs, raw, shown.first, state, shown.masks)
        return {name: np.array(array) for name, array in given.items()}

    def _expected(self, actions: NDArray[Any], memory: NDArray[np.float32] | None) -> Arrays:
        kind = next(port.dtype for port in self.graph.outputs if port.name == ACTION)
        remembered = {} if memory is None else {MEMORY + NEXT: memory}
        return {ACTION: np.array(actions, kind), **remembered}


def newest(observations: Any) -> Any:
    """Of stacked frames (B, k, ...), the one that an environment showed last."""
    if isinstance(observations, Mapping):
        return {name: newest(part) for name, part in observations.items()}
    return observations[:, -1]


def _joined(steps: list[Arrays], rows: int) -> Arrays:
    return {name: np.concatenate([step[name] for step in steps])[:rows] for name in steps[0]}


def _differences(ours: NDArray[Any], theirs: NDArray[Any]) -> tuple[float, float]:
    """The greatest difference over max(1, |theirs|), and by itself; NaN counts as without end."""
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    apart = np.where(a == b, 0.0, np.abs(a - b))
    apart = np.where(np.isnan(apart), np.inf, apart)
    relative = apart / np.maximum(1.0, np.where(np.isfinite(b), np.abs(b), 1.0))
    return float(relative.max(initial=0.0)), float(apart.max(initial=0.0))


def _gaps(scores: NDArray[Any], space: Space[Any]) -> NDArray[Any]:
    """How far apart the best two scores of each component are, (B, K)."""
    if isinstance(space, spaces.MultiBinary):
        sizes: NDArray[Any] = np.abs(scores).reshape(len(scores), -1)
        return sizes
    edges = np.cumsum(choices_of(space))[:-1]
    parts = [np.sort(part, -1) for part in np.split(scores, edges, -1)]
    one = [np.full(len(p), np.inf) if p.shape[1] < 2 else p[:, -1] - p[:, -2] for p in parts]
    gaps: NDArray[Any] = np.stack(one, -1)
    return gaps
