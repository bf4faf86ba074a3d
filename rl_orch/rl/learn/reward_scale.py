"""Rewards as learners see them: normalised by the deviation of the return, then clipped.

What is reported of episodes is always the environment's own reward.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_orch.rl.data.batch import Batch, on_host
from rl_orch.rl.data.state import StateTree
from rl_orch.rl.policies.observations import EPSILON, RunningNormalizer
from rl_orch.spec.model import Spec

LONGEST = 10.0
"""Bound of a normalised reward, in deviations of the return."""


class RewardScale:
    """The scaling of an environment's rewards to those that are learned from.

    With `train.normalize_reward`, r / √(Var G + ε), where G_t = gamma G_{t-1} + r_t is the
    discounted sum of rewards so far in each copy (Engstrom et al. 2020). Then `train.clip_reward`.
    """

    def __init__(self, spec: Spec) -> None:
        self._gamma = spec.train.gamma
        self._bounds = spec.train.clip_reward
        self._statistics = RunningNormalizer(()) if spec.train.normalize_reward else None
        self._sums = np.zeros(spec.env.num_envs)

    def observe(self, batch: Batch) -> None:
        """Count the rewards of new experience, whose rows come by copy, then time."""
        if self._statistics is None:
            return
        copies = len(self._sums)
        rewards = on_host(batch.column("rewards")).reshape(copies, -1)
        dones = on_host(batch.dones).reshape(copies, -1)
        valid = on_host(batch.column("valid")).reshape(copies, -1)
        sums = np.empty(rewards.shape)
        for t in range(rewards.shape[1]):
            self._sums = self._gamma * self._sums + rewards[:, t]
            sums[:, t] = self._sums
            self._sums = np.where(dones[:, t], 0.0, self._sums)
        self._statistics.update(sums[valid])

    def transform(self, rewards: NDArray[Any]) -> NDArray[Any]:
        """The rewards to learn from, of any shape."""
        if self._statistics is not None:
            count = max(self._statistics.count.item(), 1.0)
            deviation = np.sqrt(self._statistics.m2.item() / count + EPSILON)
            rewards = np.clip(rewards / deviation, -LONGEST, LONGEST)
        return rewards if self._bounds is None else np.clip(rewards, *self._bounds)

    def state(self) -> StateTree:
        """The statistics so far; copies."""
        if self._statistics is None:
            return StateTree()
        statistics = self._statistics.state_dict()
        counted = {name: value.numpy().copy() for name, value in statistics.items()}
        return StateTree(counted | {"sums": self._sums.copy()})

    def load_state(self, state: StateTree) -> None:
        """Go on from what `state` returned."""
        if self._statistics is None:
            return
        for name, value in self._statistics.state_dict().items():
            value.numpy()[...] = state.tensors[name]
        self._sums = state.tensors["sums"].copy()
