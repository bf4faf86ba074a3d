"""Policies: observations in, actions out, and the parts that all of them share.

The policies themselves are in `actor_critic.py`, `q_network.py` and the files of algorithms that
have one of their own. A policy knows no environment. Arrays come from the host; tensors live on the
policy's device.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeAlias, TypeVar

import numpy as np
import torch
from gymnasium import Space
from numpy.typing import DTypeLike, NDArray
from torch import Tensor, nn

from rl_orch.errors import BadInput, Damaged
from rl_orch.rl.data.batch import Column
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.policies.observations import ObservationPipeline
from rl_orch.rl.streams import Stream, derive
from rl_orch.spec.model import Spec

Inputs: TypeAlias = Tensor | dict[str, Tensor]
"""Processed observations: rows of one kind, or by name where the observations are a Dict."""

Allocate: TypeAlias = Callable[[str, tuple[int, ...], DTypeLike], NDArray[Any]]
"""Makes a large array of zeros, by name, shape and type."""

Traced: TypeAlias = Callable[[str, Callable[..., Any]], Callable[..., Any]]
"""Gives a function to be called in place of a part's own, so that an observer hears of it."""

POLICY = "default"
TENSOR_PREFIX = f"policies/{POLICY}/"
"""Where the tensors of the one policy stand in a snapshot; single-agent runs call it default."""

SPOILED = "it holds numbers that are not finite, or too large to compute with"


def in_memory(_name: str, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Zeros in memory, which the operating system hands out as they are first written."""
    return np.zeros(shape, dtype)


def untraced(_part: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself."""
    return function


@dataclass(frozen=True, slots=True)
class Setup:
    """The ingredients of policies and learners; spaces are as the environment has them, though
    Dict and Tuple observations arrive flat."""

    spec: Spec
    observation_space: Space[Any]
    action_space: Space[Any]
    allocate: Allocate = in_memory
    traced: Traced = untraced


@dataclass(frozen=True, slots=True)
class PolicyInput:
    """The input of a decision for N copies of an environment.

    `first` (N,) is where an episode begins; `memory` (N, M) what was remembered before, if anything
    is; `masks` (N, ·) which actions are allowed, where the environment says so.
    """

    observations: Column
    first: NDArray[np.bool_]
    memory: NDArray[np.float32] | None = None
    masks: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """Actions (N, *action_shape), and what is to be remembered (N, M)."""

    actions: NDArray[Any]
    memory: NDArray[np.float32] | None = None


class Actor(Protocol):
    """A maker of decisions: a policy, one that explores, or a served program."""

    @property
    def device(self) -> torch.device:
        """The device of its tensors."""

    @property
    def memory_size(self) -> int:
        """Numbers that are remembered from step to step; 0 where nothing is."""

    def decide(self, seen: PolicyInput, generator: torch.Generator | None) -> Decision:
        """Actions: sampled, or the most likely ones without a generator."""

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Actions as the environment takes them."""


class PolicyModule(nn.Module, ABC):
    """A policy as a torch module, with observation pipeline, spaces and device."""

    memory_size = 0

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        self.observation_space = setup.observation_space
        self.action_space = setup.action_space
        self.pipeline = ObservationPipeline(setup.observation_space, setup.spec.obs)
        self.device = torch.device("cpu")

    @abstractmethod
    def decide(self, seen: PolicyInput, generator: torch.Generator | None) -> Decision:
        """Actions: sampled, or the most likely ones without a generator."""

    @abstractmethod
    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Actions as the environment takes them."""

    def to_inputs(self, observations: Column) -> Inputs:
        """Network inputs for observations, on the policy's device."""
        processed = self.pipeline.process(observations)
        if isinstance(processed, dict):
            return {name: self._tensor(array) for name, array in processed.items()}
        return self._tensor(processed)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        """Note the device where parameters are moved; rollouts ask for it often."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.device = next(self.parameters()).device
        return self


P = TypeVar("P", bound=PolicyModule)


def new_policy(make: Callable[[Setup, torch.Generator], P], setup: Setup) -> P:
    """A new policy on the spec's device; its weights follow from the run's seed alone."""
    seed = derive(setup.spec.env.seed, Stream.WEIGHTS)
    policy = make(setup, torch.Generator().manual_seed(seed))
    return policy.to(usable_device(setup.spec.resources.device))


def load_weights(policy: nn.Module, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Make a policy, in place, the one that a snapshot holds."""
    own = StateTree(dict(tensors)).under(TENSOR_PREFIX.rstrip("/"))
    if names := not_finite(own.tensors):
        raise Damaged(f"the policy cannot act: {SPOILED}: {', '.join(names)}")
    load_module(policy, own, what=TENSOR_PREFIX)


def not_finite(tensors: Mapping[str, NDArray[Any]]) -> list[str]:
    """The names of tensors that nothing can be computed with: the sum of their squares, and so
    the first product with them, is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        floats = {name: t.ravel() for name, t in tensors.items() if t.dtype.kind == "f"}
        return [name for name, t in floats.items() if not np.isfinite(np.dot(t, t))]


def policy_tensors(policy: nn.Module) -> dict[str, NDArray[Any]]:
    """The policy as a snapshot holds it; copies, which further training does not change."""
    return {TENSOR_PREFIX + name: t for name, t in module_state(policy).tensors.items()}


def load_module(module: nn.Module, state: StateTree, *, what: str) -> None:
    """Make a module, in place, the one that a state holds; `what` names it in an error."""
    tensors = {name: torch.from_numpy(np.array(t)) for name, t in state.tensors.items()}
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        raise Damaged(f"the snapshot's {what} does not fit its spec: {error}") from error


def module_state(module: nn.Module) -> StateTree:
    """The parameters and buffers of a module; copies."""
    return StateTree({name: t.cpu().numpy().copy() for name, t in module.state_dict().items()})


def usable_device(name: str) -> torch.device:
    """The device of that name; an error if there is none here."""
    device = torch.device(name)
    count = {
        "cpu": 1,
        "cuda": torch.cuda.device_count(),
        "mps": int(torch.backends.mps.is_available()),
    }
    if (device.index or 0) < count[device.type]:
        return device
    raise BadInput(
        f"resources.device is {name!r}; torch {torch.__version__} sees {count[device.type]} "
        f"{device.type} devices here",
        path="resources.device",
        hint="Use 'cpu', or install a torch build for your accelerator.",
    )
