"""The `Collector` seam: a source of experience, here or elsewhere, found by name.

What is worked out from experience (values, log-probabilities, returns) is the learners' business.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from gymnasium import Space

from rl_orch import plugins
from rl_orch.rl.data.batch import Batch
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.envs.state.capture import Method
from rl_orch.rl.policies.policy import Actor, Traced, untraced
from rl_orch.spec.model import Spec
from rl_orch.spec.part_traits import OVERLAPPING

Weights: TypeAlias = Callable[[], StateTree]
"""Gives what an actor is, so that a copy of it can act elsewhere (`learn/policy_copy.py`)."""


@dataclass(frozen=True, slots=True)
class Episode:
    """A finished episode; `step` counts the environment steps of all copies up to its end.

    `metrics` are what its infos told, by name: see `InfoMetrics`.
    """

    step: int
    env: int
    ret: float
    length: int
    metrics: Mapping[str, float] = field(default_factory=dict)


class Collector(Protocol):
    """A source of experience, with environments of its own; one that works ahead can `settle`."""

    observation_space: Space[Any]
    """Of one copy, as the environment has it; what is handed out is flat."""

    action_space: Space[Any]
    """Of one copy."""

    @property
    def env_steps(self) -> int:
        """Environment steps of what was handed out."""

    def collect(self, actor: Actor, n: int, weights: Weights) -> Batch:
        """`n` steps of every environment copy, by an actor of this process; or by a copy of it,
        which asks for the weights.

        Rows are ordered by copy, then time: the first `n` are those of copy 0. Where an episode
        ended, `next_observations` has its last observation. Extras: `valid`, false for rows in
        which a copy only reset itself; `first`, where an episode begins; `masks` and `next_masks`
        if actions are masked; `memories` and `next_memories`, before and after the row, if the
        actor remembers; `log_probs` of actions that an older policy took.
        """

    def drain_episodes(self) -> list[Episode]:
        """The episodes that ended in what was handed out since the last call, in order."""

    def state(self) -> StateTree:
        """The snapshot of every copy and its present episode; copies."""

    def load_state(self, state: StateTree) -> bool:
        """Go on from a state; whether episodes had to begin anew."""

    def close(self) -> None:
        """Close the environments, and let go of what else is held."""


def build_collector(spec: Spec, method: Method, traced: Traced = untraced) -> Collector:
    """The collector that the spec names; `method` is how its environments are remembered, and
    `traced` hears of their steps ("env"), of decisions ("policy") and of both ("together")."""
    name = OVERLAPPING if spec.rollout.overlap else spec.rollout.collector
    made: Collector = plugins.load("collectors", name)(spec, method, traced)
    return made


def settle(collector: Collector) -> None:
    """Return once nothing is being collected, until `collect` is called again.

    Environments may draw from the process-wide generators: an evaluation, which seeds them and puts
    them back, must not fall into the middle of it. One that steps environments of this process
    while others are at work has a method of this name; all others are still anyway.
    """
    if callable(finish := getattr(collector, "settle", None)):
        finish()
