"""Exploration: actors that add random actions or noise to those of a policy."""

from dataclasses import replace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_orch.rl.data.schedules import scheduled
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.policies.policy import Actor, Decision, PolicyInput
from rl_orch.spec.groups import TrainGroup


class ActorWrapper:
    """An actor around another one, whose device and terms of the environment it shares."""

    memory_size = 0

    def __init__(self, actor: Actor) -> None:
        self.actor = actor

    @property
    def device(self) -> torch.device:
        """The policy's device."""
        return self.actor.device

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        """As the policy does."""
        return self.actor.to_env(actions)

    def state(self) -> StateTree:
        """How it explores now, besides what options say."""
        return StateTree()

    def load_state(self, state: StateTree) -> None:
        """Explore from here on as `state` told."""


class EpsilonGreedy(ActorWrapper):
    """The policy's best action, but with probability `epsilon` any allowed one, each as likely."""

    def __init__(self, actor: Actor, choices: int) -> None:
        super().__init__(actor)
        self.epsilon = 1.0
        self._choices = choices

    def state(self) -> StateTree:
        """The share of random actions."""
        return StateTree({}, {"epsilon": self.epsilon})

    def load_state(self, state: StateTree) -> None:
        """Take as many random actions from here on."""
        self.epsilon = float(state.document["epsilon"])

    def decide(self, seen: PolicyInput, generator: torch.Generator | None) -> Decision:
        """Actions (N,), counted from 0."""
        greedy = self.actor.decide(seen, None)
        if generator is None or self.epsilon == 0.0:
            return greedy
        actions = torch.from_numpy(greedy.actions).to(self.device)
        shape = (len(actions), self._choices)
        scores = torch.rand(shape, generator=generator, device=self.device)
        if seen.masks is not None:
            scores[~torch.from_numpy(seen.masks).to(self.device)] = -1.0
        draws = torch.rand(len(actions), generator=generator, device=self.device)
        explored = torch.where(draws < self.epsilon, scores.argmax(-1), actions)
        return replace(greedy, actions=explored.cpu().numpy())


def epsilon_at(train: TrainGroup, progress: float) -> float:
    """The share of random actions at a progress of the run."""
    part = train.exploration_fraction
    return scheduled(
        train.exploration_schedule,
        train.exploration_initial_eps,
        progress / part if part else 1.0,
        train.exploration_final_eps,
    )


class NoisyActions(ActorWrapper):
    """The policy's action in [-1, 1] plus normal noise; or, while `random`, anything in there."""

    def __init__(self, actor: Actor, deviation: float = 0.0) -> None:
        super().__init__(actor)
        self.random = False
        self.deviation = deviation

    def state(self) -> StateTree:
        """Whether actions are random, and the noise of those that are not."""
        return StateTree({}, {"random": self.random, "deviation": self.deviation})

    def load_state(self, state: StateTree) -> None:
        """Explore as much from here on."""
        self.random, self.deviation = state.document["random"], state.document["deviation"]

    def decide(self, seen: PolicyInput, generator: torch.Generator | None) -> Decision:
        """Actions (N, *shape) in [-1, 1]."""
        decision = self.actor.decide(seen, generator)
        if generator is None or not (self.random or self.deviation):
            return decision
        actions = torch.from_numpy(decision.actions).to(self.device)
        noise = torch.empty_like(actions)
        if self.random:
            explored: Tensor = noise.uniform_(-1.0, 1.0, generator=generator)
        else:
            noise.normal_(std=self.deviation, generator=generator)
            explored = (actions + noise).clamp_(-1.0, 1.0)
        return replace(decision, actions=explored.cpu().numpy())
