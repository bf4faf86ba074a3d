"""Values of actions from replayed transitions: what `algos/dqn.py` and `algos/qrdqn.py` do in
torch."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rl_orch.rl.jit import Floats, kernel, part
from rl_orch.rl.kernels.dense import GOALS, TO_WEIGHTS, NetworkMemory, backward, forward
from rl_orch.rl.kernels.optimizers import descend
from rl_orch.rl.learn.optimizer_arrays import OptimizerArrays

LOSS, VALUE, GRAD_NORM = range(3)
"""The terms of an update."""


class Transitions(NamedTuple):
    """B transitions as they were drawn: choices (B,), or actions (B, A) in [-1, 1]."""

    inputs: Floats
    choices: NDArray[np.int64]
    moves: Floats
    rewards: Floats
    next_inputs: Floats
    discounts: Floats
    weights: Floats


class Values(NamedTuple):
    """The place of values in the flow; the number of actions, and of quantiles of each, 0 for a
    single value."""

    place: int
    actions: int
    quantiles: int


@kernel
def improve_values(
    descent: OptimizerArrays,
    steps: int,
    learning_rate: float,
    memory: NetworkMemory,
    values: Values,
    target: Floats,
    double: bool,
    drawn: Transitions,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """One step of gradient descent; `steps` is how many there were. Returns the terms, and the mean
    error of each row (B,), for its priority."""
    table, flow, slopes = memory
    rows, each = len(drawn.rewards), max(values.quantiles, 1)
    errors, terms = np.empty(rows), np.empty(3)
    best = np.empty(rows, np.int64)
    targets = np.empty((rows, each))
    if double:
        put(drawn.next_inputs, flow)
        forward(descent.vector, table, rows, flow)
        _find_best(values, rows, flow, best)
    put(drawn.next_inputs, flow)
    forward(target, table, rows, flow)
    if not double:
        _find_best(values, rows, flow, best)
    for row in range(rows):
        at = rows * values.place + (row * values.actions + best[row]) * each
        for j in range(each):
            targets[row, j] = drawn.rewards[row] + drawn.discounts[row] * flow[at + j]
    put(drawn.inputs, flow)
    forward(descent.vector, table, rows, flow)
    _losses(values, drawn, targets, flow, slopes, errors, terms)
    backward(descent.vector, descent.gradient, table, rows, flow, slopes, GOALS[TO_WEIGHTS])
    terms[GRAD_NORM] = descend(descent, steps + 1, learning_rate)
    return terms, errors


@part
def put(inputs: Floats, flow: Floats) -> None:
    """Let rows (B, I) be what a network reads."""
    width = inputs.shape[1]
    for row in range(inputs.shape[0]):
        for column in range(width):
            flow[row * width + column] = inputs[row, column]


@part
def _find_best(values: Values, rows: int, flow: Floats, best: NDArray[np.int64]) -> None:
    """The action of the greatest value, or mean of quantiles, in each row."""
    each = max(values.quantiles, 1)
    for row in range(rows):
        at = rows * values.place + row * values.actions * each
        greatest = -math.inf
        best[row] = 0
        for j in range(values.actions):
            total = 0.0
            for k in range(each):
                total += flow[at + j * each + k]
            if total > greatest:
                greatest, best[row] = total, j


@part
def _losses(
    values: Values,
    drawn: Transitions,
    targets: NDArray[np.float64],
    flow: Floats,
    slopes: Floats,
    errors: NDArray[np.float64],
    terms: NDArray[np.float64],
) -> None:
    """The terms over all rows, and the slopes at the values.

    Of a value, Huber's loss L; of quantiles, Σ_i E_j[|τ̂_i - 1{u_ij < 0}| L(u_ij)].
    """
    rows, each = targets.shape
    size, sums = values.actions * each, np.empty((3, each))
    middles = (np.arange(each) + 0.5) / each
    # The only quantile is the median, whose errors count half.
    share = 1.0 / each if values.quantiles else 2.0
    for term in range(len(terms)):
        terms[term] = 0.0
    for row in range(rows):
        start = rows * values.place + row * size
        for column in range(size):
            slopes[start + column] = 0.0
        at = start + drawn.choices[row] * each
        weight = share * drawn.weights[row] / rows
        compare(flow[at : at + each], targets[row], middles, sums[0], sums[1], sums[2])
        far = 0.0
        for i in range(each):
            terms[LOSS] += weight * sums[0, i]
            terms[VALUE] += flow[at + i] / (rows * each)
            slopes[at + i] = weight * sums[1, i]
            far += sums[2, i]
        errors[row] = far / (each * each)


@part
def compare(
    values: Floats,
    targets: NDArray[np.float64],
    middles: NDArray[np.float64],
    losses: NDArray[np.float64],
    slopes: NDArray[np.float64],
    distances: NDArray[np.float64],
) -> None:
    """Sum loss, slope and distance of each value over all targets. Loss and slope are those of the
    quantile that the value is of them."""
    for i in range(len(values)):
        losses[i], slopes[i], distances[i] = 0.0, 0.0, 0.0
    for target in targets:
        # Over values within, so that no sum waits for the one before.
        for i in range(len(values)):
            error = target - values[i]
            distance = abs(error)
            held = distance if distance < 1.0 else 1.0
            share = 1.0 - middles[i] if error < 0.0 else middles[i]
            losses[i] += share * held * (distance - 0.5 * held)
            slopes[i] -= share * (held if error > 0.0 else -held)
            distances[i] += distance
