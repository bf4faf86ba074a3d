"""Raw observations to network inputs: normalise → clip → flatten or one-hot → float32.

Images stay whole numbers, channels first; networks scale them where they run. All else happens on
the host, in NumPy, and is saved with the policy: what is served is what was trained.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
import torch
from gymnasium import Space, spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_orch.rl.data.batch import Column, on_host
from rl_orch.rl.envs.leaves import Leaf, leaves_of
from rl_orch.rl.envs.observations import flat_space
from rl_orch.spec.groups import ObsGroup

Floats = NDArray[np.float64]
Process: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]
"""(B, *shape) → what networks see of it."""

FLOAT32 = np.dtype(np.float32)
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
        return np.asarray((observations - self.mean.numpy()) / self.deviation())

    def deviation(self) -> Floats:
        """The deviation to divide by, once something was counted."""
        return np.asarray(np.sqrt(self.m2.numpy() / self.count.item() + EPSILON))

    def update(self, observations: NDArray[Any]) -> None:
        """Count further observations, (B, *shape)."""
        count, size = self.count.item(), len(observations)
        if size == 0:
            return
        batch = np.asarray(observations, dtype=np.float64)
        batch_mean = batch.mean(axis=0)
        batch_m2 = np.square(batch - batch_mean).sum(axis=0)
        delta, total = batch_mean - self.mean.numpy(), count + size
        self.m2 += torch.as_tensor(batch_m2 + np.square(delta) * (count * size / total))
        self.mean += torch.as_tensor(delta * (size / total))
        self.count += size

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        """Stay on the host and in float64, wherever the rest of the policy goes: MPS has none."""
        return self


class ObservationPipeline(nn.Module):
    """Observations of one space → what networks see of them, by the rules of `Leaf`.

    Box vectors are normalised, clipped and flattened, choices become one-hot rows: (B, size),
    float32. Images become (B, C, H, W), uint8. Observations with parts are mappings of such.
    """

    normalizer: RunningNormalizer | nn.ModuleList | None

    def __init__(self, space: Space[Any], options: ObsGroup) -> None:
        super().__init__()
        flat = flat_space(space)
        parts = flat.spaces if isinstance(flat, spaces.Dict) else {"": flat}
        self.leaves = leaves_of(flat, stacked=options.stack_frames is not None)
        self.plain = not isinstance(flat, spaces.Dict)
        self.size = sum(leaf.size for leaf in self.leaves.values())
        measured = [name for name, leaf in self.leaves.items() if leaf.measured]
        names = measured if options.normalize == "running" else []
        self._normalizers = {name: RunningNormalizer(parts[name].shape or ()) for name in names}
        self.normalizer = None
        if names:
            normalizers = self._normalizers.values()
            self.normalizer = next(iter(normalizers)) if self.plain else nn.ModuleList(normalizers)
        self._processes: dict[str, Process] = {
            name: _process(parts[name], leaf, self._normalizers.get(name), options)
            for name, leaf in self.leaves.items()
        }
        self._process = self._processes[""] if self.plain else None
        self._clip_range = options.clip_range

    def process(self, observations: Column) -> NDArray[Any] | dict[str, NDArray[Any]]:
        """Network inputs for `observations`: (B, *shape) → (B, size) or (B, C, H, W), each."""
        process = self._process
        if process is not None and isinstance(observations, np.ndarray):
            return process(observations)
        seen = {name: each(_array(observations, name)) for name, each in self._processes.items()}
        return seen[""] if self.plain else seen

    def scale(self) -> tuple[Floats, Floats, float, float]:
        """The parameters of `process` for a single vector: less a mean (size,), over a
        deviation (size,), and clipped between two numbers."""
        normalizer = self._normalizers.get("")
        low, high = self._clip_range or (-math.inf, math.inf)
        if normalizer is None or normalizer.count.item() == 0:
            return np.zeros(self.size), np.ones(self.size), low, high
        return normalizer.mean.numpy().ravel(), normalizer.deviation().ravel(), low, high

    def update(self, observations: Column) -> None:
        """Let the running statistics, if there are any, count further observations."""
        for name, normalizer in self._normalizers.items():
            normalizer.update(_array(observations, name))


def _array(observations: Column, name: str) -> NDArray[Any]:
    """One array of observations, whose names are flat; "" is that of a space without parts."""
    return on_host(observations[name] if isinstance(observations, Mapping) else observations)  # type: ignore[arg-type]


def _process(
    space: Space[Any], leaf: Leaf, normalizer: RunningNormalizer | None, options: ObsGroup
) -> Process:
    if leaf.kind == "image":
        return _Pixels(leaf).process
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return _OneHot(space).process
    clip_range = options.clip_range if leaf.measured else None
    return _Numbers(leaf.size, normalizer, clip_range).process


@dataclass(slots=True)
class _Numbers:
    """Normalised, clipped, flattened."""

    size: int
    normalizer: RunningNormalizer | None
    clip_range: tuple[float, float] | None

    def process(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        if self.normalizer is not None:
            observations = self.normalizer.normalize(observations)
        if self.clip_range is not None:
            low, high = self.clip_range
            observations = np.minimum(np.maximum(observations, low), high)
        # In a rollout, asking is quicker than making an array of the shape and type it has.
        if observations.ndim != 2:
            observations = observations.reshape(len(observations), self.size)
        return observations if observations.dtype is FLOAT32 else observations.astype(FLOAT32)


class _OneHot:
    """A 1 for each choice, among as many numbers as there are to choose from."""

    def __init__(self, space: spaces.Discrete | spaces.MultiDiscrete) -> None:
        options = np.ravel(space.n if isinstance(space, spaces.Discrete) else space.nvec)
        self.size = int(options.sum())
        # Where in a row each choice's own numbers begin, less the least choice.
        self.offsets = np.cumsum(options) - options - np.ravel(space.start)
        self.offset = int(self.offsets[0])

    def process(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        count = len(observations)
        rows = np.zeros((count, self.size), dtype=np.float32)
        if observations.ndim == 1:
            rows[np.arange(count), observations + self.offset] = 1.0
        else:
            places = observations.reshape(count, len(self.offsets)) + self.offsets
            rows[np.arange(count)[:, None], places] = 1.0
        return rows


class _Pixels:
    """Channels first, the frames of a stack among them; not copied where it can be avoided."""

    def __init__(self, leaf: Leaf) -> None:
        self.shape, self.channels_last = leaf.shape, leaf.channels_last

    def process(self, observations: NDArray[Any]) -> NDArray[np.uint8]:
        if self.channels_last:
            observations = np.moveaxis(observations, -1, -3)
        return observations.reshape(len(observations), *self.shape)
