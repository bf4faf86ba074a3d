"""Encoders: from processed observations to features, as `feature.encoder` names them.

The networks are in `nets.py`; which of them can read what is in `envs/leaves.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rl_orch import plugins
from rl_orch.errors import BadInput, RlctlError
from rl_orch.rl.envs.leaves import SMALLEST_FOR_CNN, Leaf, problems
from rl_orch.rl.policies.nets import (
    MLP,
    Gru,
    ImpalaCNN,
    Lstm,
    NatureCNN,
    Net,
    RecurrentCell,
    Transformer,
    initialize,
)
from rl_orch.rl.policies.observations import ObservationPipeline
from rl_orch.rl.policies.policy import Inputs
from rl_orch.spec.groups import ENCODERS, FeatureGroup, NetworkGroup

CELLS: dict[str, type[Gru] | type[Lstm]] = {"gru": Gru, "lstm": Lstm}

SIZES = {"cnn": 512, "impala": 256, "transformer": 64, "gru": 128, "lstm": 128}
"""Features that each network makes where `feature.embed_dim` is null."""

SIZE_AMONG_OTHERS = 256
"""Features of an image that is one of several observations."""


class Unchanged(Net):
    """Vectors as they are: (B, size) → (B, size)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    # Rollouts come through here at every step, and torch's own call costs more than all this does.
    def __call__(self, inputs: Tensor) -> Tensor:
        """The inputs."""
        return inputs

    def forward(self, inputs: Tensor) -> Tensor:
        """The inputs."""
        return inputs


class FlatEncoder(Net):
    """All observations side by side, images scaled to [0, 1]; and a layer behind them if given."""

    def __init__(self, leaves: Mapping[str, Leaf], layer: Net | None = None) -> None:
        super().__init__()
        self.layer = layer
        numbers = sum(leaf.size for leaf in leaves.values())
        self.size = numbers if layer is None else layer.size
        self._highs = {
            name: leaf.high if leaf.kind == "image" else None for name, leaf in leaves.items()
        }

    def forward(self, inputs: Inputs) -> Tensor:
        """(B, size)."""
        parts = {"": inputs} if isinstance(inputs, Tensor) else inputs
        rows = [
            parts[name] if high is None else parts[name].flatten(1) / high
            for name, high in self._highs.items()
        ]
        joined = torch.cat(rows, -1)
        return joined if self.layer is None else self.layer(joined)


class Joined(Net):
    """The features of each of several observations, side by side: → (B, size)."""

    def __init__(self, parts: Mapping[str, Net]) -> None:
        super().__init__()
        self.size = sum(part.size for part in parts.values())
        self.parts = nn.ModuleList(parts.values())
        self._names = [*parts]

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """The features of all of them."""
        named = zip(self._names, self.parts, strict=True)
        return torch.cat([part(inputs[name]) for name, part in named], -1)


def build_encoder(
    pipeline: ObservationPipeline,
    feature: FeatureGroup,
    network: NetworkGroup,
    generator: torch.Generator,
) -> Net:
    """The encoder that the spec names, for what the pipeline makes of observations.

    Its weights follow from the generator alone. It may have none: vectors need no encoder.
    """
    name = feature.encoder
    if name not in ENCODERS:
        return _from_plugin(pipeline, feature, generator)
    if wrong := problems(name, pipeline.leaves):
        raise BadInput(wrong[0], path="feature.encoder")
    size = None if name in CELLS else feature.embed_dim
    make = _Maker(size, network, generator, alone=pipeline.plain)
    if name == "mlp":
        return make.flat(pipeline.leaves)
    parts = {key: make.net(_kind(name, leaf), leaf) for key, leaf in pipeline.leaves.items()}
    return parts[""] if pipeline.plain else Joined(parts)


def build_memory(
    features: int, feature: FeatureGroup, generator: torch.Generator, *, orthogonal: bool = True
) -> RecurrentCell | None:
    """The cell behind an encoder that makes so many features; None where none is named."""
    if feature.encoder not in CELLS:
        return None
    cell = CELLS[feature.encoder](features, feature.embed_dim or SIZES[feature.encoder])
    initialize(cell, generator, orthogonal=orthogonal)
    return cell


def _kind(encoder: str, leaf: Leaf) -> str:
    """The kind of network that one observation goes through."""
    if leaf.kind == "vector":
        return "transformer" if encoder == "transformer" else "mlp"
    if encoder in ("cnn", "impala"):
        return encoder
    return "cnn" if min(leaf.shape[1:]) >= SMALLEST_FOR_CNN else "impala"


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes networks and draws their weights; `alone` is false for those of one among several."""

    size: int | None
    network: NetworkGroup
    generator: torch.Generator
    alone: bool

    def flat(self, leaves: Mapping[str, Leaf]) -> Net:
        if self.alone and leaves[""].kind == "vector":
            return self.layer(leaves[""].size)
        total = sum(leaf.size for leaf in leaves.values())
        return FlatEncoder(leaves, None if self.size is None else self.layer(total))

    def net(self, kind: str, leaf: Leaf) -> Net:
        if kind == "mlp":
            return self.layer(leaf.size)
        if kind == "transformer":
            return self._drawn(Transformer(*leaf.rows, self.size or SIZES[kind]))
        channels, height, width = leaf.shape
        size = self.size or (SIZES[kind] if self.alone else SIZE_AMONG_OTHERS)
        convolutions = NatureCNN if kind == "cnn" else ImpalaCNN
        return self._drawn(convolutions((channels, height, width), size, leaf.high))

    def layer(self, numbers: int) -> Net:
        """One linear layer and an activation, if a size is asked for."""
        if self.size is None:
            return Unchanged(numbers)
        return self._drawn(MLP([numbers, self.size], self.network.activation, activate_last=True))

    def _drawn(self, net: Net) -> Net:
        orthogonal, gains = self.network.ortho_init, (net.gain, net.last_gain)
        initialize(net, self.generator, orthogonal=orthogonal, gain=gains[0], last_gain=gains[1])
        return net


def _from_plugin(
    pipeline: ObservationPipeline, feature: FeatureGroup, generator: torch.Generator
) -> Net:
    make = plugins.load("encoders", feature.encoder)
    seed = int(torch.randint(2**62, (), generator=generator))
    # Layers made in torch's usual way draw from its global generator; here they may.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        try:
            encoder: Any = make(pipeline, feature, generator)
        except RlctlError:
            raise
        except Exception as error:  # It is somebody's code.
            raise RlctlError(
                f"the encoder plugin {feature.encoder!r} could not be made: "
                f"{type(error).__name__}: {error}",
                path="feature.encoder",
                hint="It is called with the observations' pipeline, the options of feature, and a "
                "generator.",
            ) from error
    size = getattr(encoder, "size", None)
    if isinstance(encoder, nn.Module) and type(size) is int and size > 0:
        return encoder  # type: ignore[return-value]
    raise BadInput(
        f"the encoder plugin {feature.encoder!r} made a {type(encoder).__name__}; must be a torch "
        "module with `size`, the number of its features",
        path="feature.encoder",
    )
