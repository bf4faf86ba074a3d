"""Stacks of linear layers, found among tensors by their names and put under others."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_orch.errors import BadInput

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class DenseLayer:
    """Weights (after, before) and a bias (after,), and the names that they were found under."""

    weight: Array
    bias: Array
    name: str

    @property
    def names(self) -> tuple[str, str]:
        """The two tensors."""
        return f"{self.name}.weight", f"{self.name}.bias"


@dataclass(frozen=True, slots=True)
class Stack:
    """Layers that follow one another."""

    layers: tuple[DenseLayer, ...]

    @property
    def hidden(self) -> list[int]:
        """The width of each layer but the last."""
        return [len(layer.weight) for layer in self.layers[:-1]]

    @property
    def names(self) -> set[str]:
        """The tensors that it is made of."""
        return {name for layer in self.layers for name in layer.names}

    def under(self, prefix: str) -> dict[str, Array]:
        """Its tensors as an MLP of ours has them."""
        found = {}
        for number, layer in enumerate(self.layers):
            found[f"{prefix}.layers.{number}.weight"] = layer.weight
            found[f"{prefix}.layers.{number}.bias"] = layer.bias
        return found


def stack(tensors: Mapping[str, Array], *places: str) -> Stack:
    """The layers at some places, in order. A place that ends in a dot has numbered ones, with gaps
    where activations are; it may have none."""
    found: list[DenseLayer] = []
    for place in places:
        names = numbered(tensors, place) if place.endswith(".") or not place else [place]
        found += [_layer(tensors, name) for name in names]
    if not found:
        raise BadInput(f"there are no layers under {' and '.join(places)}")
    for before, after in pairwise(found):
        if after.weight.shape[1] != len(before.weight):
            raise BadInput(
                f"{after.name}.weight has the shape {list(after.weight.shape)}, but {before.name} "
                f"gives it {len(before.weight)} numbers; must be [·, {len(before.weight)}]",
                hint="Layers must follow one another with nothing but activations between them.",
            )
    return Stack(tuple(found))


def numbered(tensors: Iterable[str], place: str, part: str = "weight") -> list[str]:
    """Names of the numbered layers at a place that have such a part, in order."""
    pattern = re.compile(re.escape(place) + rf"([0-9]{{1,4}})\.{part}")
    numbers = sorted(int(match[1]) for name in tensors if (match := pattern.fullmatch(name)))
    return [f"{place}{number}" for number in numbers]


def side_by_side(one: DenseLayer, other: DenseLayer) -> DenseLayer:
    """A layer that gives what two give, the first one's numbers first."""
    weight, bias = ((one.weight, other.weight), (one.bias, other.bias))
    return DenseLayer(np.concatenate(weight), np.concatenate(bias), one.name)


def _layer(tensors: Mapping[str, Array], name: str) -> DenseLayer:
    weight, bias = tensors.get(f"{name}.weight"), tensors.get(f"{name}.bias")
    if weight is None or bias is None:
        missing = "weight" if weight is None else "bias"
        raise BadInput(f"there is no {name}.{missing}; a layer has a weight and a bias")
    if weight.ndim != 2 or bias.shape != weight.shape[:1]:
        raise BadInput(
            f"{name}.weight has the shape {list(weight.shape)} and {name}.bias {list(bias.shape)}; "
            "must be [after, before] and [after]",
            hint="Perceptrons can be imported; convolutions and memory cells cannot.",
        )
    return DenseLayer(weight, bias, name)
