"""Returns and advantages from rewards and value estimates. Pure functions over NumPy arrays."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


def gae(
    rewards: Floats,
    values: Floats,
    next_values: Floats,
    dones: NDArray[np.bool_],
    *,
    gamma: float,
    lam: float,
) -> NDArray[np.float64]:
    """Generalised advantage estimates (Schulman et al. 2016, eq. 11 and 16), all arrays (T, N).

        δ_t = r_t + gamma V(s_{t+1}) - V(s_t)
        A_t = δ_t + gamma λ (1 - done_t) A_{t+1}

    `next_values` holds V(s_{t+1}): 0 where the episode terminated, and the value of its final
    observation where it was truncated. `dones` is true for both: no advantage crosses an end.
    """
    deltas = rewards + gamma * next_values - values
    decay = gamma * lam * np.logical_not(dones)
    advantages = np.empty(deltas.shape, np.float64)
    following = np.zeros(deltas.shape[1:])
    for t in range(len(deltas) - 1, -1, -1):
        following = deltas[t] + decay[t] * following
        advantages[t] = following
    return advantages


def explained_variance(predictions: Floats, targets: Floats) -> float:
    """1 - Var(targets - predictions) / Var(targets); 0 where the targets do not vary."""
    variance = float(np.var(targets, dtype=np.float64))
    if variance == 0.0:
        return 0.0
    return 1.0 - float(np.var(targets - predictions, dtype=np.float64)) / variance
