"""`ActorCritic`: observations in, actions and values out, with everything it takes in between.

A policy knows no environment. Arrays come from the host; tensors live on the policy's device.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol, Self

import numpy as np
import torch
from gymnasium import Space, spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_orch.errors import BadInput, Damaged
from rl_orch.rl.batch import Batch, on_host
from rl_orch.rl.distributions import Categorical, DiagGaussian, Distribution
from rl_orch.rl.nets import HIDDEN_GAIN, MLP, initialize
from rl_orch.rl.observations import ObservationPipeline
from rl_orch.rl.streams import Stream, derive
from rl_orch.spec.groups import NetworkGroup
from rl_orch.spec.model import Spec

POLICY_HEAD_GAIN = 0.01
VALUE_HEAD_GAIN = 1.0
CHUNK = 16_384
"""Rows that are assessed at once, so that a long rollout needs no more memory than a short one."""

TENSOR_PREFIX = "policies/default/"
"""Where the tensors of the one policy stand in a snapshot; single-agent runs call it default."""


class RLModule(Protocol):
    """Policy, and optionally value, as pure computation over batches."""

    def act(self, batch: Batch) -> Batch:
        """The batch with `actions` and `log_probs`."""

    def value(self, batch: Batch) -> Batch:
        """The batch with `values`."""


class ActorCritic(nn.Module):
    """A stochastic policy π(a | s) and a value function V(s), on separate networks or one trunk.

    Actions are those of the distribution; `to_env` turns them into what an environment takes.
    `device` is where the networks live.
    """

    def __init__(
        self,
        observation_space: Space[Any],
        action_space: Space[Any],
        pipeline: ObservationPipeline,
        network: NetworkGroup,
    ) -> None:
        super().__init__()
        self.observation_space = observation_space
        self.action_space = action_space
        self.pipeline = pipeline
        discrete, outputs = _action_outputs(action_space)
        shared = network.hidden_sizes if network.shared else ()
        separate = () if network.shared else network.hidden_sizes
        sizes = [pipeline.size, *shared]
        self.trunk = MLP(sizes, network.activation, activate_last=True)
        self.actor = MLP([sizes[-1], *separate, outputs], network.activation, activate_last=False)
        self.critic = MLP([sizes[-1], *separate, 1], network.activation, activate_last=False)
        log_std = None if discrete else torch.full((outputs,), network.log_std_init)
        self.log_std = None if log_std is None else nn.Parameter(log_std)
        self.device = torch.device("cpu")

    def act(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The batch with `actions` and `log_probs`: sampled, or the mode without a generator."""
        observations = on_host(batch.column("observations"))
        actions = self.decide(observations, generator)
        log_probs, _ = self.assess(observations, actions)
        return replace(batch, actions=actions).with_extras(log_probs=log_probs)

    def value(self, batch: Batch) -> Batch:
        """The batch with `values`."""
        return batch.with_extras(values=self.values(on_host(batch.column("observations"))))

    @torch.no_grad()
    def decide(self, observations: NDArray[Any], generator: torch.Generator | None) -> NDArray[Any]:
        """Actions (B, *action_shape): sampled, or the mode without a generator."""
        distribution = self._distribution(self.trunk(self.to_inputs(observations)))
        actions = distribution.mode() if generator is None else distribution.sample(generator)
        shape = self.action_space.shape or ()
        return actions.reshape(len(observations), *shape).cpu().numpy()

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Actions as the environment takes them: within a Box, or from its start on."""
        space = self.action_space
        if isinstance(space, spaces.Box):
            clipped: NDArray[Any] = np.clip(actions, space.low, space.high)
            return clipped.astype(space.dtype, copy=False)
        start = space.start if isinstance(space, spaces.Discrete) else 0
        return actions + start if start else actions

    @torch.no_grad()
    def assess(
        self, observations: NDArray[Any], actions: NDArray[Any]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """log π(a | s) and V(s), (B,) each."""
        log_probs = np.empty(len(observations), np.float32)
        values = np.empty(len(observations), np.float32)
        for start in range(0, len(observations), CHUNK):
            rows = slice(start, start + CHUNK)
            hidden = self.trunk(self.to_inputs(observations[rows]))
            taken = self.to_choices(actions[rows])
            log_probs[rows] = self._distribution(hidden).log_prob(taken).cpu().numpy()
            values[rows] = self.critic(hidden).squeeze(-1).cpu().numpy()
        return log_probs, values

    @torch.no_grad()
    def values(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """V(s), (B,)."""
        values = self.critic(self.trunk(self.to_inputs(observations)))
        return np.asarray(values.squeeze(-1).cpu().numpy())

    def to_inputs(self, observations: NDArray[Any]) -> Tensor:
        """What the networks see of observations: (B, size), on the policy's device."""
        return torch.from_numpy(self.pipeline.process(observations)).to(self.device)

    def to_choices(self, actions: NDArray[Any]) -> Tensor:
        """Actions as the distribution takes them: (B,) choices or (B, A) numbers."""
        tensor = torch.from_numpy(actions).to(self.device)
        return tensor if self.log_std is None else tensor.flatten(1)

    def forward(self, inputs: Tensor) -> tuple[Distribution, Tensor]:
        """π(· | s) and V(s) of processed observations, with gradients."""
        hidden = self.trunk(inputs)
        return self._distribution(hidden), self.critic(hidden).squeeze(-1)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        """Whatever moves the parameters comes through here; rollouts ask for the device often."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.device = next(self.actor.parameters()).device
        return self

    def _distribution(self, hidden: Tensor) -> Distribution:
        outputs = self.actor(hidden)
        return Categorical(outputs) if self.log_std is None else DiagGaussian(outputs, self.log_std)


def build_policy(
    spec: Spec, observation_space: Space[Any], action_space: Space[Any]
) -> ActorCritic:
    """A new policy for the spec; its weights follow from the run's seed alone."""
    network = spec.agent.network
    pipeline = ObservationPipeline(observation_space, spec.obs)
    policy = ActorCritic(observation_space, action_space, pipeline, network)
    generator = torch.Generator().manual_seed(derive(spec.env.seed, Stream.WEIGHTS))
    gains = (
        (policy.trunk, HIDDEN_GAIN),
        (policy.actor, POLICY_HEAD_GAIN),
        (policy.critic, VALUE_HEAD_GAIN),
    )
    for net, gain in gains:
        initialize(net, generator, orthogonal=network.ortho_init, last_gain=gain)
    return policy.to(usable_device(spec.resources.device))


def load_policy(
    spec: Spec,
    observation_space: Space[Any],
    action_space: Space[Any],
    tensors: Mapping[str, NDArray[Any]],
) -> ActorCritic:
    """The policy that a snapshot holds."""
    policy = build_policy(spec, observation_space, action_space)
    load_weights(policy, tensors)
    return policy


def load_weights(policy: ActorCritic, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Make a policy, in place, the one that a snapshot holds."""
    state = {
        name.removeprefix(TENSOR_PREFIX): torch.from_numpy(np.array(tensor))
        for name, tensor in tensors.items()
        if name.startswith(TENSOR_PREFIX)
    }
    try:
        policy.load_state_dict(state)
    except RuntimeError as error:
        raise Damaged(f"the snapshot's policy does not fit its spec: {error}") from error


def policy_tensors(policy: nn.Module) -> dict[str, NDArray[Any]]:
    """The policy as a snapshot holds it; copies, which further training does not change."""
    state = policy.state_dict()
    return {TENSOR_PREFIX + name: tensor.cpu().numpy().copy() for name, tensor in state.items()}


def _action_outputs(space: Space[Any]) -> tuple[bool, int]:
    """Whether actions are discrete, and how many outputs the policy's head needs."""
    if isinstance(space, spaces.Discrete):
        return True, int(space.n)
    if isinstance(space, spaces.Box):
        return False, math.prod(space.shape)
    raise TypeError(f"{type(space).__name__} actions; must be Discrete or Box")


def usable_device(name: str) -> torch.device:
    """The device of that name; an error if this machine or this torch does not have it."""
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
