"""Estimate of how much a run will write, from its spec alone.

Pure, and meant to be right within a factor of four, for environments whose observations are
vectors.

Assumed, since only the environment could tell: observations of 64 numbers, 8 actions, episodes of
100 steps. The sizes below were measured on runs of CartPole and Pendulum.
"""

from dataclasses import dataclass
from itertools import pairwise

from rl_orch.spec.algorithms import BUILT_IN
from rl_orch.spec.model import Spec

OBSERVATION, ACTIONS, EPISODE_STEPS = 64, 8, 100

WEIGHT_BYTES = 3 * 4
"""A weight and Adam's two moments of it."""

COPY_BYTES = 5_000
"""State of one copy of the environment in a checkpoint."""

ROW_BYTES = 4 * (OBSERVATION + ACTIONS) + 25
"""A row of a replay buffer: observation, actions, reward, flags, and the row before it."""

PRIORITY_BYTES = 4
"""The priority of a row, in every checkpoint."""

UPDATE_BYTES, EPISODE_BYTES = 2_600, 300
"""Events and TensorBoard points of one report on updates, and of one episode."""

EVALUATION_BYTES, RETURN_BYTES = 2_000, 30
"""The report of an evaluation, and of each episode in it."""

FIXED_BYTES = 1 << 20
"""Spec, manifest, log, room set aside for last words, and the run's share of the database."""

PROGRAM_BYTES = 64 << 20
"""What a program that knows nothing of us may write: a guess."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Disk space of a run, in bytes.

    `checkpoint` is that of one, `checkpoints` how many there are at once, `replay` that of the
    segments that they share, and `rest` that of everything else.
    """

    checkpoint: int
    checkpoints: int
    rest: int
    replay: int = 0

    @property
    def total(self) -> int:
        """Bytes of a run when it has ended."""
        return self.checkpoint * self.checkpoints + self.replay + self.rest


def footprint(spec: Spec) -> Footprint:
    """Disk space that one run of the spec will take."""
    if not spec.runner.traits.trains_here:
        return Footprint(0, 0, PROGRAM_BYTES)
    total, rollout = spec.train.total_timesteps, spec.rollout_size
    evaluations = total // max(spec.eval.every, rollout) + 1
    saves = evaluations + total // max(spec.checkpoint.every or total + 1, rollout)
    # Besides those to keep, the best one, and the one that is being written.
    checkpoints = min(saves, spec.checkpoint.keep_last + 2)
    rest = (
        FIXED_BYTES
        + UPDATE_BYTES * -(-total // max(rollout, spec.train.report_every))
        + EPISODE_BYTES * -(-total // EPISODE_STEPS)
        + EVALUATION_BYTES * evaluations
        + RETURN_BYTES * (spec.eval.episodes * evaluations + spec.eval.final_episodes)
    )
    return Footprint(_checkpoint_bytes(spec), checkpoints, rest, _replay_bytes(spec))


def _checkpoint_bytes(spec: Spec) -> int:
    priorities = _kept_rows(spec) if spec.buffer.prioritized else 0
    return (
        WEIGHT_BYTES * _weights(spec) + COPY_BYTES * spec.env.num_envs + PRIORITY_BYTES * priorities
    )


def _replay_bytes(spec: Spec) -> int:
    """The newest checkpoints share nearly all segments; the best one may be so old as to share
    none with them."""
    return ROW_BYTES * min(2 * _kept_rows(spec), spec.train.total_timesteps)


def _kept_rows(spec: Spec) -> int:
    traits = BUILT_IN.get(spec.agent.algorithm)
    if traits is None or not traits.off_policy:
        return 0
    return min(spec.buffer.size, spec.train.total_timesteps)


def _weights(spec: Spec) -> int:
    """Weights of the policy and the value function, in one network or in two."""
    widths = (OBSERVATION * (spec.obs.stack_frames or 1), *spec.agent.network.hidden_sizes)
    trunk = sum((before + 1) * after for before, after in pairwise(widths))
    heads = (widths[-1] + 1) * (ACTIONS + 1)
    return trunk * (1 if spec.agent.network.shared else 2) + heads
