"""The latency of single decisions, as where a policy acts alone."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing

import numpy as np
import torch
from numpy.typing import NDArray

from rl_orch.rl.data.batch import mapped
from rl_orch.rl.evaluate import Evaluator, action_generator
from rl_orch.rl.policies.exploration import ActorWrapper
from rl_orch.rl.policies.policy import Actor, Decision, PolicyInput
from rl_orch.spec.model import Spec

WARM_UP = 100
"""Decisions that are not timed: the first ones compile, and fill caches."""

DECISIONS = 2000
FEWEST = 200
BUDGET_S = 5.0
"""After so long, no more decisions are timed than the fewest."""

SHOWN = 256
"""Observations that decisions are made on, over and over."""


def decision_times(
    policy: Actor,
    spec: Spec,
    *,
    seed: int,
    deterministic: bool,
    timer: Callable[[], float] = time.perf_counter,
) -> NDArray[np.float64]:
    """The seconds that each of many decisions took; on observations of an episode that the policy
    plays: the first one of that seed."""
    shown = observed(policy, spec, seed=seed, deterministic=deterministic)
    source = None if deterministic else action_generator(policy, seed)
    for number in range(WARM_UP):
        _decide(policy, shown, number, source)
    took: list[float] = []
    started = timer()
    while len(took) < DECISIONS:
        before = timer()
        if len(took) >= FEWEST and before - started > BUDGET_S:
            break
        _decide(policy, shown, len(took), source)
        took.append(timer() - before)
    return np.array(took)


def observed(policy: Actor, spec: Spec, *, seed: int, deterministic: bool) -> list[PolicyInput]:
    """The inputs of a policy in the first steps of an episode; it plays that alone."""
    watched = _WatchedPolicy(policy)
    with closing(Evaluator(spec, lanes=1)) as evaluator:
        evaluator.play(watched, episodes=1, seed=seed, deterministic=deterministic)
    return watched.shown


def _decide(
    policy: Actor, shown: Sequence[PolicyInput], number: int, generator: torch.Generator | None
) -> None:
    """One decision, to the action that an environment would be given."""
    decision = policy.decide(shown[number % len(shown)], generator)
    policy.to_env(decision.actions)


class _WatchedPolicy(ActorWrapper):
    """A policy that decides as it would, and what it was shown meanwhile."""

    def __init__(self, policy: Actor) -> None:
        super().__init__(policy)
        self.memory_size = policy.memory_size
        self.shown: list[PolicyInput] = []

    def decide(self, seen: PolicyInput, generator: torch.Generator | None) -> Decision:
        """The policy's decision. Environments reuse their memory, so that copies are kept."""
        if len(self.shown) < SHOWN:
            memory = None if seen.memory is None else np.array(seen.memory)
            masks = None if seen.masks is None else np.array(seen.masks)
            first, observations = np.array(seen.first), mapped(seen.observations, np.array)
            self.shown.append(PolicyInput(observations, first, memory, masks))
        return self.actor.decide(seen, generator)
