"""Distributions over one row's outputs: log π(a | s), entropy, and their slopes."""

import math

import numpy as np
from numpy.typing import NDArray

from rl_orch.rl.jit import Floats, part
from rl_orch.rl.learn.optimizer_arrays import OptimizerArrays

LOG_2PI = math.log(2.0 * math.pi)


@part
def choice(
    flow: Floats, at: int, count: int, action: int, shares: NDArray[np.float64]
) -> tuple[float, float]:
    """log π(a) and H of the logits (n,) of a row; its probabilities are left in `shares`."""
    greatest, total, entropy = flow[at], 0.0, 0.0
    for j in range(1, count):
        greatest = max(greatest, flow[at + j])
    for j in range(count):
        shares[j] = math.exp(flow[at + j] - greatest)
        total += shares[j]
    log_total = math.log(total)
    for j in range(count):
        shares[j] /= total
        entropy -= shares[j] * (flow[at + j] - greatest - log_total)
    return flow[at + action] - greatest - log_total, entropy


@part
def choice_slopes(
    slopes: Floats,
    at: int,
    count: int,
    action: int,
    shares: NDArray[np.float64],
    entropy: float,
    by_log_prob: float,
    by_entropy: float,
) -> None:
    """The slopes at the logits, from those at log π(a) and H; after `choice`.

    ∂ log π(a) / ∂z_j = 1{j = a} - π_j,  ∂H / ∂z_j = -π_j (log π_j + H).
    """
    for j in range(count):
        log_share = math.log(shares[j]) if shares[j] > 0.0 else 0.0
        slope = -by_log_prob - by_entropy * (log_share + entropy)
        slopes[at + j] = shares[j] * slope + (by_log_prob if j == action else 0.0)


@part
def normal(
    flow: Floats, at: int, vector: Floats, log_std: int, action: Floats
) -> tuple[float, float]:
    """log π(a) and H of a row's means (A,), with deviations (A,) in the vector."""
    log_prob, entropy = 0.0, 0.0
    for k in range(len(action)):
        z = (action[k] - flow[at + k]) * math.exp(-vector[log_std + k])
        log_prob -= 0.5 * z * z + vector[log_std + k] + 0.5 * LOG_2PI
        entropy += 0.5 + 0.5 * LOG_2PI + vector[log_std + k]
    return log_prob, entropy


@part
def normal_slopes(
    flow: Floats,
    slopes: Floats,
    at: int,
    descent: OptimizerArrays,
    log_std: int,
    action: Floats,
    by_log_prob: float,
    by_entropy: float,
) -> None:
    """The slopes at the means, from those at log π(a) and H; adds to the gradient of log std.

    ∂ log π / ∂ mean = z / std,  ∂ log π / ∂ log std = z² - 1,  ∂H / ∂ log std = 1.
    """
    vector, gradient = descent.vector, descent.gradient
    for k in range(len(action)):
        narrow = math.exp(-vector[log_std + k])
        z = (action[k] - flow[at + k]) * narrow
        slopes[at + k] = by_log_prob * z * narrow
        gradient[log_std + k] += by_log_prob * (z * z - 1.0) + by_entropy
