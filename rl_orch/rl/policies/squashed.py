"""Squashed Gaussian policies, and how they explore: SAC's, and those of what builds on it."""

from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_orch.rl.data.state import StateTree
from rl_orch.rl.policies.distributions import SquashedGaussian, StateDependentGaussian
from rl_orch.rl.policies.encoders import build_encoder
from rl_orch.rl.policies.exploration import ActorWrapper, NoisyActions
from rl_orch.rl.policies.nets import MLP, initialize
from rl_orch.rl.policies.policy import Actor, Decision, Inputs, PolicyInput, Setup
from rl_orch.rl.policies.twin_critics import ContinuousPolicy

LOG_STD_BOUNDS = (-20.0, 2.0)
MEAN_BOUNDS = (-2.0, 2.0)
"""Of the mean with gSDE, before tanh."""


class SquashedPolicy(ContinuousPolicy):
    """A squashed Gaussian over actions in [-1, 1]."""

    log_std_bounds = LOG_STD_BOUNDS
    perceptron: ClassVar[type[MLP]] = MLP
    """What its hidden layers are."""

    def __init__(self, setup: Setup, generator: torch.Generator) -> None:
        super().__init__(setup)
        spec, network = setup.spec, setup.spec.agent.network
        self.encoder = build_encoder(self.pipeline, spec.feature, network, generator)
        sizes = [self.encoder.size, *network.hidden_sizes]
        outputs = self.action_size * (1 if spec.train.use_sde else 2)
        self.trunk = self.perceptron(sizes, network.activation, activate_last=True)
        self.head = MLP([sizes[-1], outputs], network.activation, activate_last=False)
        for net in (self.trunk, self.head):
            initialize(net, generator, orthogonal=False, last_gain=1.0)
        deviations = torch.full((sizes[-1], self.action_size), network.log_std_init)
        self.log_std = nn.Parameter(deviations) if spec.train.use_sde else None

    def forward(self, inputs: Inputs) -> SquashedGaussian:
        """π(· | s) of processed observations, with gradients."""
        hidden = self.trunk(self.encoder(inputs))
        outputs = self.head(hidden).float()
        if self.log_std is not None:
            mean = outputs.clamp(*MEAN_BOUNDS)
            return StateDependentGaussian(mean, hidden.float(), self.log_std)
        mean, log_std = outputs.chunk(2, -1)
        return SquashedGaussian(mean, log_std.clamp(*LOG_STD_BOUNDS))

    def choose(self, inputs: Inputs, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions (B, A) for standard normal noise (B, A), and log π (B,), with gradients."""
        actions, log_probs = self(inputs).rsample_with_log_prob(noise)
        return actions, log_probs

    @property
    def nets(self) -> tuple[MLP, ...]:
        """Trunk and head."""
        return self.trunk, self.head

    @torch.no_grad()
    def decide(self, seen: PolicyInput, generator: torch.Generator | None) -> Decision:
        """Actions (N, *shape) in [-1, 1]: sampled, or tanh of the mean without a generator."""
        distribution = self(self.to_inputs(seen.observations))
        return self.decision(
            distribution.mode() if generator is None else distribution.sample(generator)
        )


class StateDependentNoise(ActorWrapper):
    """Explores with gSDE: while a copy keeps its matrix, noise is a function of the state.

    Between rollouts all matrices are renewed, so there is nothing that a snapshot would need.
    """

    def __init__(self, policy: SquashedPolicy, every: int) -> None:
        super().__init__(policy)
        self._policy = policy
        self._every = every
        self._matrices: Tensor | None = None
        self._ages = np.zeros(0, np.int64)

    def renew(self) -> None:
        """Draw a new matrix for every copy, at the next decision."""
        self._matrices = None

    @torch.no_grad()
    def decide(self, seen: PolicyInput, generator: torch.Generator | None) -> Decision:
        """Actions (N, *shape) in [-1, 1]."""
        if generator is None:
            return self._policy.decide(seen, None)
        distribution = self._policy(self._policy.to_inputs(seen.observations))
        return self._policy.decision(distribution.explore(self._current(seen.first, generator)))

    def _current(self, first: NDArray[np.bool_], generator: torch.Generator) -> Tensor:
        """The matrix of each copy in this step, (N, L, A)."""
        log_std = self._policy.log_std
        assert log_std is not None
        if self._matrices is None:
            self._matrices = StateDependentGaussian.matrices(log_std, len(first), generator)
            self._ages = np.zeros(len(first), np.int64)
        elif (old := first | (self._ages == self._every)).any():
            drawn = StateDependentGaussian.matrices(log_std, int(old.sum()), generator)
            self._matrices[torch.from_numpy(old).to(self.device)] = drawn
            self._ages[old] = 0
        self._ages += 1
        return self._matrices


class SoftExploration(NoisyActions):
    """Uniform actions while `random`; then the policy's own, by option with gSDE."""

    def __init__(self, actor: Actor, sde: StateDependentNoise | None) -> None:
        super().__init__(actor)
        self._sde = sde

    def decide(self, seen: PolicyInput, generator: torch.Generator | None) -> Decision:
        """Actions (N, *shape) in [-1, 1]."""
        if self._sde is None or self.random:
            return super().decide(seen, generator)
        return self._sde.decide(seen, generator)

    def explore(self, *, random: bool) -> None:
        """Act so in the next rollout, with new noise."""
        self.random = random
        if self._sde is not None:
            self._sde.renew()

    def load_state(self, state: StateTree) -> None:
        """Explore as much from here on, with new noise."""
        self.explore(random=state.document["random"])
