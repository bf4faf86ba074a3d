"""Optimisers as kernels take them; apart, since compiling kernels takes no torch."""

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
