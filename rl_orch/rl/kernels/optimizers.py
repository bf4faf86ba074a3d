"""Optimisers over flat vectors, as in `rl/learn/optimizer.py`."""

import math

import numpy as np

from rl_orch.rl.jit import Floats, kernel, part
from rl_orch.rl.learn.optimizer_arrays import OptimizerArrays


@kernel
def descend(descent: OptimizerArrays, steps: int, learning_rate: float) -> float:
    """Take the step of that number, from 1 on, along the gradient that is there; after it is scaled
    down. Returns its norm before."""
    vector, gradient = descent.vector, descent.gradient
    mean, square = descent.mean, descent.square
    number = gradient.dtype.type
    norm = math.sqrt(squares(gradient))
    scale = number(min(descent.most / (norm + 1e-6), 1.0))
    keep, eps = number(descent.beta_2), number(descent.eps)
    new_1, new_2 = number(1.0 - descent.beta_1), number(1.0 - descent.beta_2)
    if descent.adam:
        widen = number(1.0 / math.sqrt(1.0 - descent.beta_2**steps))
        rate = number(learning_rate / (1.0 - descent.beta_1**steps))
        for i in range(len(vector)):
            g = gradient[i] * scale
            mean[i] += (g - mean[i]) * new_1
            square[i] = square[i] * keep + g * g * new_2
            vector[i] -= rate * mean[i] / (np.sqrt(square[i]) * widen + eps)
    else:
        rate = number(learning_rate)
        for i in range(len(vector)):
            g = gradient[i] * scale
            square[i] = square[i] * keep + g * g * new_2
            vector[i] -= rate * g / (np.sqrt(square[i]) + eps)
    return norm


@part
def squares(x: Floats) -> float:
    """Σ x², in eight sums that can be added up side by side."""
    sums = np.zeros(8)
    whole = len(x) - len(x) % 8
    for i in range(0, whole, 8):
        for lane in range(8):
            sums[lane] += x[i + lane] * x[i + lane]
    for i in range(whole, len(x)):
        sums[0] += x[i] * x[i]
    total = 0.0
    for lane in range(8):
        total += sums[lane]
    return total
