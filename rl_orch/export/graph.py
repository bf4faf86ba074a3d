"""`PolicyGraph`: a policy as one module from raw observations to actions an environment takes.

Everything in between is inside: frame stacking, normalisation, memory, masks, the greedy choice,
stretching and clipping. What it remembers goes in and out by name.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_orch.errors import BadInput
from rl_orch.export.heads import TORCH_TYPES, Choices, Moves, head_of
from rl_orch.export.views import views_of
from rl_orch.io.policies.bundles import Port
from rl_orch.rl.envs.actions import choices_of
from rl_orch.rl.envs.observations import flat_space
from rl_orch.rl.policies.policy import PolicyModule
from rl_orch.spec.model import Spec

OBSERVATION = "observation"
FIRST = "first"
MASK = "mask"
MEMORY = "state.memory"
FRAMES = "state.frames"
NEXT = ".next"
ACTION = "action"
SCORES = "scores"

Arrays = dict[str, NDArray[Any]]


class PolicyGraph(nn.Module):
    """The greedy policy. `forward` takes and gives tensors in the order of `inputs`, `outputs`.

    Inputs: `observation`, or `observation.NAME` for each part of a Dict; `mask` where actions are
    masked; and, where something is remembered, `first` (B,), true where an episode begins, and
    each `state.*`. Outputs: `action`; `scores` where actions are choices; each `state.*.next`.

    `state.frames` are the frames before this one, oldest first; where an episode begins they do
    not count, and the first observation stands for them, as Gymnasium's wrapper has it.
    """

    def __init__(self, policy: PolicyModule, spec: Spec) -> None:
        super().__init__()
        flat = flat_space(policy.observation_space)
        parts = dict(flat.spaces) if isinstance(flat, spaces.Dict) else {"": flat}
        self._names, self._frames = [*parts], spec.obs.stack_frames
        views = views_of(policy.pipeline, parts, spec.obs)
        self.views = nn.ModuleList(views.values())
        # A copy: what is exported does not move when the policy does.
        self.head = deepcopy(head_of(policy)).cpu()
        self.discrete = bool(choices_of(policy.action_space))
        self.end = _end(policy.action_space, squashed=self.head.squashed)
        self._masked = spec.agent.action_masks and self.discrete
        self.inputs, self.outputs = self._ports(parts, policy.action_space)
        self.requires_grad_(False)
        self.eval()

    @property
    def state(self) -> tuple[Port, ...]:
        """Those of the inputs that are what an earlier step gave."""
        return tuple(port for port in self.inputs if port.name.startswith("state."))

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The outputs in their order."""
        given = dict(zip((port.name for port in self.inputs), tensors, strict=True))
        kept: dict[str, Tensor] = {}
        seen = {}
        for name, view in zip(self._names, self.views, strict=True):
            stacked = self._stacked(name, given, kept)
            seen[name] = view(stacked)
        memory = given.get(MEMORY)
        if memory is not None:
            memory = memory.masked_fill(given[FIRST].unsqueeze(-1), 0.0)
        outputs, memory = self.head(seen.get("", seen), memory)
        if memory is not None:
            kept[MEMORY] = memory
        if self._masked:
            outputs = outputs.masked_fill(~given[MASK], torch.finfo(outputs.dtype).min)
        scores = (outputs,) if self.discrete else ()
        return (self.end(outputs), *scores, *(kept[port.name] for port in self.state))

    def _stacked(self, name: str, given: Mapping[str, Tensor], kept: dict[str, Tensor]) -> Tensor:
        """An observation with the frames before it: (B, *shape) → (B, k, *shape)."""
        now = given[_called(OBSERVATION, name)]
        if self._frames is None:
            return now
        now, before = now.unsqueeze(1), given[_called(FRAMES, name)]
        first = given[FIRST].reshape(-1, *[1] * (before.ndim - 1))
        stacked = torch.cat((torch.where(first, now, before), now), 1)
        kept[_called(FRAMES, name)] = stacked[:, 1:]
        return stacked

    def _ports(
        self, parts: Mapping[str, Space[Any]], action: Space[Any]
    ) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
        drop = 0 if self._frames is None else 1
        shown = {name: tuple(part.shape or ())[drop:] for name, part in parts.items()}
        kinds = {name: _kind(name, part) for name, part in parts.items()}
        observed = [_port(_called(OBSERVATION, n), kinds[n], shown[n]) for n in parts]
        state = []
        if self._frames is not None:
            before = self._frames - 1
            state = [_port(_called(FRAMES, n), kinds[n], (before, *shown[n])) for n in parts]
        if self.head.memory_size:
            state.append(_port(MEMORY, "float32", (self.head.memory_size,)))
        coins = isinstance(action, spaces.MultiBinary)
        choices = tuple(action.shape or ()) if coins else (sum(choices_of(action)),)
        masks = [_port(MASK, "bool", choices)] if self._masked else []
        first = [_port(FIRST, "bool", ())] if state else []
        scores = [_port(SCORES, "float32", choices)] if self.discrete else []
        acted = _port(ACTION, _kind("action", action), tuple(action.shape or ()))
        following = [_port(port.name + NEXT, port.dtype, port.shape) for port in state]
        return (*observed, *masks, *first, *state), (acted, *scores, *following)


def blank_state(ports: Sequence[Port], rows: int) -> Arrays:
    """What is remembered before the first step: zeros, which `first` says not to count."""
    return {
        port.name: np.zeros((rows, *port.shape), port.dtype)
        for port in ports
        if port.name.startswith("state.")
    }


def following_state(outputs: Mapping[str, NDArray[Any]]) -> Arrays:
    """What one step remembers, as the inputs of the next one."""
    return {name.removesuffix(NEXT): out for name, out in outputs.items() if name.endswith(NEXT)}


def graph_inputs(
    ports: Sequence[Port],
    observations: Any,
    first: NDArray[np.bool_],
    state: Arrays,
    masks: NDArray[np.bool_] | None,
) -> Arrays:
    """Inputs of a graph, by name: raw observations, one array or by name, and what goes along."""
    parts = observations if isinstance(observations, Mapping) else {"": observations}
    kinds = {port.name: port.dtype for port in ports}
    named = {_called(OBSERVATION, name): array for name, array in parts.items()}
    given = {name: np.asarray(array, kinds[name]) for name, array in named.items()}
    given |= state | {FIRST: np.asarray(first)} | ({} if masks is None else {MASK: masks})
    return {port.name: given[port.name] for port in ports}


def _end(space: Space[Any], *, squashed: bool) -> nn.Module:
    if isinstance(space, spaces.Box):
        return Moves(space, squashed=squashed)
    return Choices(space)


def _called(what: str, name: str) -> str:
    return f"{what}.{name}" if name else what


def _kind(name: str, space: Space[Any]) -> str:
    kind = str(space.dtype)
    if kind not in TORCH_TYPES:
        raise BadInput(
            f"{name or 'the observation'} is of type {kind}; must be one of "
            f"{', '.join(TORCH_TYPES)}",
            path="env.id",
        )
    return kind


def _port(name: str, dtype: str, shape: tuple[int, ...]) -> Port:
    return Port(name=name, dtype=dtype, shape=shape)
