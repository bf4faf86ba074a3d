"""From raw observations to what a network sees: normalise → clip → flatten or one-hot → float32.

This runs on the host, in NumPy, and is saved with the policy: what is served is what was trained.
"""

import math
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from gymnasium import Space, spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_orch.spec.groups import ObsGroup

Floats = NDArray[np.float64]

EPSILON = 1e-8


class RunningNormalizer(nn.Module):
    """Running mean and variance of each component, in float64.

    Batches are merged by the parallel update of Chan, Golub and LeVeque (1979):
    δ = mean_b - mean,  mean += δ n_b / n,  M2 += M2_b + δ² n_a n_b / n,  variance = M2 / n.
    """

    mean: Tensor
    m2: Tensor
    count: Tensor

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("m2", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def normalize(self, observations: NDArray[Any]) -> Floats:
        """(x - mean) / deviation; the identity before the first update."""
        count = self.count.item()
        if count == 0:
            return observations.astype(np.float64)
        deviation = np.sqrt(self.m2.numpy() / count + EPSILON)
        return np.asarray((observations - self.mean.numpy()) / deviation)

    def update(self, observations: NDArray[Any]) -> None:
        """Count further observations, (B, *shape)."""
        count, size = self.count.item(), len(observations)
        if size == 0:
            return
        batch = np.asarray(observations, dtype=np.float64)
        batch_mean = batch.mean(axis=0)
        batch_m2 = np.square(batch - batch_mean).sum(axis=0)
        delta, total = batch_mean - self.mean.numpy(), count + size
        self.m2 += torch.from_numpy(batch_m2 + np.square(delta) * (count * size / total))
        self.mean += torch.from_numpy(delta * (size / total))
        self.count += size

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        """Stay on the host and in float64, wherever the rest of the policy goes: MPS has none."""
        return self


class ObservationPipeline(nn.Module):
    """Observations of one space → rows of float32, (B, `size`).

    Box observations are normalised, clipped and flattened; Discrete ones become one-hot rows.
    """

    normalizer: RunningNormalizer | None

    def __init__(self, space: Space[Any], options: ObsGroup) -> None:
        super().__init__()
        self.start = int(space.start) if isinstance(space, spaces.Discrete) else None
        self.size = _size(space)
        self.clip_range = options.clip_range
        running = options.normalize == "running" and self.start is None
        self.normalizer = RunningNormalizer(space.shape or ()) if running else None

    def process(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """What the network sees of `observations`, (B, *shape) → (B, size)."""
        if self.start is not None:
            return self._one_hot(observations)
        if self.normalizer is not None:
            observations = self.normalizer.normalize(observations)
        if self.clip_range is not None:
            observations = np.clip(observations, *self.clip_range)
        return observations.reshape(len(observations), self.size).astype(np.float32, copy=False)

    def update(self, observations: NDArray[Any]) -> None:
        """Let the running statistics, if there are any, count further observations."""
        if self.normalizer is not None:
            self.normalizer.update(observations)

    def _one_hot(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        rows = np.zeros((len(observations), self.size), dtype=np.float32)
        rows[np.arange(len(observations)), observations - self.start] = 1.0
        return rows


def _size(space: Space[Any]) -> int:
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.Box):
        return math.prod(space.shape)
    raise TypeError(f"{type(space).__name__} observations; must be Box or Discrete")
