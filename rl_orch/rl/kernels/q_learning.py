"""Values of actions from replayed transitions: what `algos/dqn.py` and `algos/qrdqn.py` do in
torch."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rl_orch.rl.kernels.compile import Floats, kernel
from rl_orch.rl.kernels.dense import GOALS, TO_WEIGHTS, Table, backward, forward
from rl_orch.rl.kernels.descent import descend
from rl_orch.rl.optimizer import Descent

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
    """Where values begin in the flow, of how many actions, and how many quantiles there are of
    each; 0 for a single value."""

    place: int
    actions: int
    quantiles: int


@kernel
def improve_values(
    descent: Descent,
    steps: int,
    learning_rate: float,
    table: Table,
    values: Values,
    target: Floats,
    double: bool,
    drawn: Transitions,
    flow: Floats,
    slopes: Floats,
    errors: NDArray[np.float64],
    terms: NDArray[np.float64],
) -> None:
    """One step of gradient descent; `steps` is how many there were. The mean error of each row is
    left in `errors` (B,), for its priority."""
    rows, each = len(drawn.rewards), max(values.quantiles, 1)
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


@kernel
def put(inputs: Floats, flow: Floats) -> None:
    """Let rows (B, I) be what a network reads."""
    width = inputs.shape[1]
    for row in range(inputs.shape[0]):
        for column in range(width):
            flow[row * width + column] = inputs[row, column]


@kernel
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


@kernel
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

    Of a value, Huber's loss; of quantiles, Σ_i E_j[|τ̂_i - 1{u_ij < 0}| L(u_ij)].
    """
    rows, each = targets.shape
    for term in range(len(terms)):
        terms[term] = 0.0
    size = values.actions * each
    for row in range(rows):
        start = rows * values.place + row * size
        for column in range(size):
            slopes[start + column] = 0.0
        at = start + drawn.choices[row] * each
        weight, far = drawn.weights[row], 0.0
        for i in range(each):
            value, loss, slope = flow[at + i], 0.0, 0.0
            middle = (i + 0.5) / each
            for j in range(each):
                error = targets[row, j] - value
                size_of_error = abs(error)
                share = 1.0
                if values.quantiles:
                    share = (1.0 - middle if error < 0.0 else middle) / each
                near = size_of_error <= 1.0
                loss += share * (0.5 * error * error if near else size_of_error - 0.5)
                slope -= share * (error if near else math.copysign(1.0, error))
                far += size_of_error
            slopes[at + i] = weight * slope / rows
            terms[LOSS] += weight * loss / rows
            terms[VALUE] += value / (rows * each)
        errors[row] = far / (each * each)
