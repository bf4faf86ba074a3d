"""`ActorCritic`: a stochastic policy and a value function, for PPO and A2C."""

import math
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_orch.rl.data.batch import Column, rows_of
from rl_orch.rl.envs.actions import choices_of, counted, within_bounds
from rl_orch.rl.policies.distributions import (
    Bernoulli,
    Categorical,
    DiagGaussian,
    Distribution,
    MultiCategorical,
)
from rl_orch.rl.policies.encoders import build_encoder, build_memory
from rl_orch.rl.policies.nets import HIDDEN_GAIN, MLP, initialize
from rl_orch.rl.policies.policy import (
    Decision,
    Inputs,
    PolicyInput,
    PolicyModule,
    Setup,
    new_policy,
)

POLICY_HEAD_GAIN = 0.01
VALUE_HEAD_GAIN = 1.0
CHUNK = 16_384
"""Rows that are assessed at once, so that a long rollout needs no more memory than a short one."""


class ActorCritic(PolicyModule):
    """A stochastic policy π(a | s) and a value function V(s); on separate networks or one trunk.

    Behind the encoder there may be a memory. Actions are those of the distribution; `to_env` turns
    them into what an environment takes.
    """

    def __init__(self, setup: Setup, generator: torch.Generator) -> None:
        super().__init__(setup)
        network, feature = setup.spec.agent.network, setup.spec.feature
        outputs = _outputs(setup.action_space)
        self.encoder = build_encoder(self.pipeline, feature, network, generator)
        self.memory = build_memory(
            self.encoder.size, feature, generator, orthogonal=network.ortho_init
        )
        self.memory_size = 0 if self.memory is None else self.memory.width
        width = self.encoder.size if self.memory is None else self.memory.size
        shared = network.hidden_sizes if network.shared else ()
        separate = () if network.shared else network.hidden_sizes
        sizes = [width, *shared]
        self.trunk = MLP(sizes, network.activation, activate_last=True)
        self.actor = MLP([sizes[-1], *separate, outputs], network.activation, activate_last=False)
        self.critic = MLP([sizes[-1], *separate, 1], network.activation, activate_last=False)
        gaussian = isinstance(setup.action_space, spaces.Box)
        log_std = torch.full((outputs,), network.log_std_init)
        self.log_std = nn.Parameter(log_std) if gaussian else None
        self._choices = choices_of(setup.action_space)
        gains = (
            (self.trunk, HIDDEN_GAIN),
            (self.actor, POLICY_HEAD_GAIN),
            (self.critic, VALUE_HEAD_GAIN),
        )
        for net, gain in gains:
            initialize(net, generator, orthogonal=network.ortho_init, last_gain=gain)

    @classmethod
    def build(cls, setup: Setup) -> "ActorCritic":
        """A new policy on the spec's device; its weights follow from the run's seed alone."""
        return new_policy(cls, setup)

    @torch.no_grad()
    def decide(self, seen: PolicyInput, generator: torch.Generator | None) -> Decision:
        """Actions (N, *action_shape): sampled, or the mode without a generator."""
        hidden, memory = self.encoder(self.to_inputs(seen.observations)), None
        if self.memory is not None:
            before = self._remembered(seen)
            hidden, after = self.memory.step(hidden, before)
            memory = after.cpu().numpy()
        masks = None if seen.masks is None else self._tensor(seen.masks)
        distribution = self._distribution(self.trunk(hidden), masks)
        actions = distribution.mode() if generator is None else distribution.sample(generator)
        shape = self.action_space.shape or ()
        return Decision(actions.reshape(len(seen.first), *shape).cpu().numpy(), memory)

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Actions as the environment takes them: within a Box, or from its start on."""
        space = self.action_space
        if isinstance(space, spaces.Box):
            return within_bounds(space, actions)
        return counted(space, actions)

    @torch.no_grad()
    def assess(
        self,
        observations: Column,
        actions: NDArray[Any],
        *,
        masks: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """log π(a | s) and V(s), (B,) each, of a policy without a memory."""
        log_probs = np.empty(len(actions), np.float32)
        values = np.empty(len(actions), np.float32)
        for start in range(0, len(actions), CHUNK):
            rows = slice(start, start + CHUNK)
            allowed = None if masks is None else self._tensor(masks[rows])
            distribution, estimates = self(self.to_inputs(rows_of(observations, rows)), allowed)
            taken = self.to_choices(actions[rows])
            log_probs[rows] = distribution.log_prob(taken).cpu().numpy()
            values[rows] = estimates.cpu().numpy()
        return log_probs, values

    @torch.no_grad()
    def values(
        self, observations: Column, memories: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """V(s), (B,), given what was remembered before."""
        hidden = self.encoder(self.to_inputs(observations))
        if self.memory is not None and memories is not None:
            hidden, _ = self.memory.step(hidden, self._tensor(memories))
        values = self.critic(self.trunk(hidden)).float()
        return np.asarray(values.squeeze(-1).cpu().numpy())

    def to_choices(self, actions: NDArray[Any]) -> Tensor:
        """Actions as the distribution takes them: (B,) choices, or (B, ·) choices or numbers."""
        tensor = self._tensor(actions)
        discrete = isinstance(self.action_space, spaces.Discrete)
        return tensor if discrete else tensor.reshape(len(tensor), -1)

    def forward(self, inputs: Inputs, masks: Tensor | None = None) -> tuple[Distribution, Tensor]:
        """π(· | s) and V(s) of processed observations, with gradients."""
        return self._heads(self.encoder(inputs), masks)

    def unroll(
        self,
        inputs: Inputs,
        memories: Tensor,
        first: Tensor,
        masks: Tensor | None = None,
    ) -> tuple[Distribution, Tensor]:
        """As `forward`, for S sequences of L rows each, one after another: what the memory held
        before each sequence is (S, M), and `first` (S · L,) is where it is to be wiped."""
        assert self.memory is not None
        count = len(memories)
        features = self.encoder(inputs)
        by_time = features.view(count, -1, features.shape[-1]).transpose(0, 1)
        hidden = self.memory.unroll(by_time, memories, first.view(count, -1).T)
        return self._heads(hidden.transpose(0, 1).reshape(len(features), -1), masks)

    def _heads(self, hidden: Tensor, masks: Tensor | None) -> tuple[Distribution, Tensor]:
        hidden = self.trunk(hidden)
        return self._distribution(hidden, masks), self.critic(hidden).float().squeeze(-1)

    def _remembered(self, seen: PolicyInput) -> Tensor:
        if seen.memory is None:
            return torch.zeros(len(seen.first), self.memory_size, device=self.device)
        kept = np.where(seen.first[:, None], np.float32(0.0), seen.memory)
        return self._tensor(kept)

    def _distribution(self, hidden: Tensor, masks: Tensor | None) -> Distribution:
        outputs = self.actor(hidden).float()
        if self.log_std is not None:
            return DiagGaussian(outputs, self.log_std)
        if isinstance(self.action_space, spaces.Discrete):
            return Categorical(outputs, masks)
        if isinstance(self.action_space, spaces.MultiBinary):
            return Bernoulli(outputs)
        return MultiCategorical(outputs, self._choices, masks)


def _outputs(space: Space[Any]) -> int:
    """The number of outputs the policy's head needs."""
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return math.prod(space.shape)
    if choices := choices_of(space):
        return sum(choices)
    raise TypeError(
        f"{type(space).__name__} actions; must be Discrete, MultiDiscrete, MultiBinary or Box"
    )
