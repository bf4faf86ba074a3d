"""Optimisers and weights of losses as kernels take them; apart, since compiling takes no torch."""

from typing import Any, NamedTuple

from numpy.typing import NDArray


class OptimizerArrays(NamedTuple):
    """The vectors of an optimiser in memory, and its options.

    `most` is the greatest norm of a gradient, ∞ for any.
    """

    vector: NDArray[Any]
    gradient: NDArray[Any]
    mean: NDArray[Any]
    square: NDArray[Any]
    adam: bool
    eps: float
    most: float
    beta_1: float
    beta_2: float


class LossWeights(NamedTuple):
    """Weights and clip ranges, ∞ for none, of the terms of an actor-critic's loss.

    Where the ratio of probabilities is not clipped, the loss is that of the plain policy gradient.
    """

    clip: float
    clip_values: float
    value: float
    entropy: float
    standardize: bool
