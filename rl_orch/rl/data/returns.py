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


def n_step(
    rewards: Floats, terminated: NDArray[np.bool_], ended: NDArray[np.bool_], gamma: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sums of up to n discounted rewards (Sutton & Barto 2018, eq. 7.1) and the discounts of what
    comes after; all arrays (B, n), a window of n rows each → (B,), (B,).

        R = Σ_{i<k} gamma^i r_i,  discount = gamma^k, or 0 where the window terminated

    A window counts k rows: all n, or those up to the first that `ended` its episode, terminated or
    truncated. What stands behind that row is passed over.
    """
    if rewards.shape[1] == 1:
        return rewards[:, 0].astype(np.float64), np.where(terminated[:, 0], 0.0, gamma)
    counts = np.ones(rewards.shape, np.bool_)
    np.logical_not(np.logical_or.accumulate(ended[:, :-1], axis=1), out=counts[:, 1:])
    powers = gamma ** np.arange(rewards.shape[1] + 1, dtype=np.float64)
    sums = (rewards * np.where(counts, powers[:-1], 0.0)).sum(axis=1)
    discounts = np.where((terminated & counts).any(axis=1), 0.0, powers[counts.sum(axis=1)])
    return sums, discounts


def explained_variance(predictions: Floats, targets: Floats) -> float:
    """1 - Var(targets - predictions) / Var(targets); 0 where the targets do not vary."""
    variance = float(np.var(targets, dtype=np.float64))
    if variance == 0.0:
        return 0.0
    return 1.0 - float(np.var(targets - predictions, dtype=np.float64)) / variance
