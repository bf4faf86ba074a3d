"""Initial states and observations of episodes, as Gymnasium would draw them.

NumPy does the drawing and the first sines and cosines, as it does there: so first observations are
Gymnasium's to the last bit.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

DrawStart: TypeAlias = Callable[[np.random.Generator], tuple[NDArray[Any], Any]]
"""Draws a state; returns it and the first observation."""


def _cartpole(generator: np.random.Generator) -> tuple[NDArray[Any], Any]:
    state = generator.uniform(low=-0.05, high=0.05, size=(4,))
    return state, state


def _mountain_car(generator: np.random.Generator) -> tuple[NDArray[Any], Any]:
    state = np.array([generator.uniform(low=-0.6, high=-0.4), 0])
    return state, state


def _acrobot(generator: np.random.Generator) -> tuple[NDArray[Any], Any]:
    state = generator.uniform(low=-0.1, high=0.1, size=(4,)).astype(np.float32)
    one, two, *velocities = state
    return state, (np.cos(one), np.sin(one), np.cos(two), np.sin(two), *velocities)


def _pendulum(generator: np.random.Generator) -> tuple[NDArray[Any], Any]:
    state = generator.uniform(low=-_WIDEST, high=_WIDEST)
    theta, velocity = state
    return state, (np.cos(theta), np.sin(theta), velocity)


_WIDEST = np.array([np.pi, 1.0])

STARTS: dict[str, DrawStart] = {
    "cartpole": _cartpole,
    "mountain_car": _mountain_car,
    "mountain_car_continuous": _mountain_car,
    "acrobot": _acrobot,
    "pendulum": _pendulum,
}
"""By the name of the dynamics."""
