"""What networks see of raw observations, as modules that can be exported.

The same rules as `rl/policies/observations.py` has in NumPy, in the same number formats: normalise
→ clip → flatten or one-hot → float32, and images as whole numbers, channels first.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rl_orch.rl.envs.leaves import Leaf
from rl_orch.rl.policies.observations import ObservationPipeline, RunningNormalizer
from rl_orch.spec.groups import ObsGroup


class NumberView(nn.Module):
    """Normalised in float64, clipped, flattened: (B, *shape) → (B, size) float32."""

    mean: Tensor
    deviation: Tensor

    def __init__(
        self,
        size: int,
        normalizer: RunningNormalizer | None,
        clip_range: tuple[float, float] | None,
    ) -> None:
        super().__init__()
        self.size, self.clip_range = size, clip_range
        self.normalized = normalizer is not None and normalizer.count.item() > 0
        if normalizer is not None and self.normalized:
            self.register_buffer("mean", normalizer.mean.clone())
            self.register_buffer("deviation", torch.from_numpy(normalizer.deviation()))

    def forward(self, x: Tensor) -> Tensor:
        """What networks see of it."""
        if self.normalized:
            x = (x.double() - self.mean) / self.deviation
        if self.clip_range is not None:
            # NumPy compares whole numbers with the bounds in float64.
            x = x if x.is_floating_point() else x.double()
            x = x.clamp(*self.clip_range)
        return x.reshape(-1, self.size).float()


class OneHot(nn.Module):
    """A 1 for each choice, among as many numbers as there are to choose from: → (B, size)."""

    offsets: Tensor
    columns: Tensor

    def __init__(self, space: spaces.Discrete | spaces.MultiDiscrete) -> None:
        super().__init__()
        counts = np.ravel(space.n if isinstance(space, spaces.Discrete) else space.nvec)
        offsets = np.cumsum(counts) - counts - np.ravel(space.start)
        self.register_buffer("offsets", torch.as_tensor(offsets, dtype=torch.int64))
        self.register_buffer("columns", torch.arange(int(counts.sum())))

    def forward(self, x: Tensor) -> Tensor:
        """What networks see of it."""
        places = x.long().reshape(-1, len(self.offsets)) + self.offsets
        return (places.unsqueeze(-1) == self.columns).float().sum(1)


class Pixels(nn.Module):
    """Channels first, the frames of a stack among them: → (B, C, H, W), uint8."""

    def __init__(self, leaf: Leaf) -> None:
        super().__init__()
        self.shape, self.channels_last = leaf.shape, leaf.channels_last

    def forward(self, x: Tensor) -> Tensor:
        """What networks see of it."""
        x = x.movedim(-1, -3) if self.channels_last else x
        return x.reshape(-1, *self.shape)


def views_of(
    pipeline: ObservationPipeline, parts: Mapping[str, Space[Any]], options: ObsGroup
) -> dict[str, nn.Module]:
    """What a policy's pipeline does to each of its observations, by name."""
    normalizers = normalizers_of(pipeline)
    return {
        name: _view(parts[name], leaf, normalizers.get(name), options)
        for name, leaf in pipeline.leaves.items()
    }


def normalizers_of(pipeline: ObservationPipeline) -> dict[str, RunningNormalizer]:
    """The running statistics of each observation that is measured, by name; none where none run."""
    names = [name for name, leaf in pipeline.leaves.items() if leaf.measured]
    modules = [each for each in pipeline.modules() if isinstance(each, RunningNormalizer)]
    return dict(zip(names, modules, strict=True)) if modules else {}


def _view(
    space: Space[Any], leaf: Leaf, normalizer: RunningNormalizer | None, options: ObsGroup
) -> nn.Module:
    if leaf.kind == "image":
        return Pixels(leaf)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return OneHot(space)
    return NumberView(leaf.size, normalizer, options.clip_range if leaf.measured else None)
