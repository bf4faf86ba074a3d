"""Returns and advantages from rewards and value estimates. Pure functions over NumPy arrays."""

from typing import Any, NamedTuple

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


class NStep(NamedTuple):
    """For each row t, its window of k ≤ n rows: the target is `returns` + `discounts` V(s_{t+k}).

    `steps` holds k; s_{t+k} is what row t + k - 1 led to. All have the shape of the rewards.
    """

    returns: NDArray[np.float64]
    discounts: NDArray[np.float64]
    steps: NDArray[np.int64]


def n_step_returns(
    rewards: Floats,
    terminated: NDArray[np.bool_],
    ended: NDArray[np.bool_],
    gamma: float,
    n: int,
) -> NStep:
    """Sums of up to n discounted rewards (Sutton & Barto 2018, eq. 7.1), all arrays (T, ...).

        R_t = Σ_{i<k} gamma^i r_{t+i},  discount_t = gamma^k, or 0 where the window terminated

    A window stops at n rows, at the first row that `ended` an episode (terminated or truncated),
    or at the last row there is, whichever comes first; `steps` tells how long it became.
    """
    returns = np.zeros(rewards.shape, np.float64)
    discounts = np.ones(rewards.shape, np.float64)
    steps = np.zeros(rewards.shape, np.int64)
    going = np.ones(rewards.shape, np.bool_)
    for i in range(min(n, len(rewards))):
        rows, ahead = slice(0, len(rewards) - i), slice(i, len(rewards))
        within = going[rows]
        returns[rows] += np.where(within, discounts[rows] * rewards[ahead], 0.0)
        discounts[rows] *= np.where(within, gamma * np.logical_not(terminated[ahead]), 1.0)
        steps[rows] += within
        going[rows] = within & ~(ended[ahead] | terminated[ahead])
    return NStep(returns, discounts, steps)


def explained_variance(predictions: Floats, targets: Floats) -> float:
    """1 - Var(targets - predictions) / Var(targets); 0 where the targets do not vary."""
    variance = float(np.var(targets, dtype=np.float64))
    if variance == 0.0:
        return 0.0
    return 1.0 - float(np.var(targets - predictions, dtype=np.float64)) / variance
