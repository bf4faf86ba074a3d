"""Actor-critics from rollouts: what `algos/ppo.py` and `algos/a2c.py` do in torch."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rl_orch.rl.jit import Floats, kernel, part
from rl_orch.rl.kernels.dense import GOALS, TO_WEIGHTS, NetworkMemory, Table, backward, forward
from rl_orch.rl.kernels.heads import choice, choice_slopes, normal, normal_slopes
from rl_orch.rl.kernels.optimizers import descend
from rl_orch.rl.learn.optimizer_arrays import LossWeights, OptimizerArrays

POLICY_LOSS, VALUE_LOSS, ENTROPY, GRAD_NORM, KL, CLIPPED = range(6)
"""Columns of the terms of a minibatch."""


class RolloutRows(NamedTuple):
    """The columns of a rollout of B transitions that the loss reads.

    Of actions, `choices` (B,) or `moves` (B, A) counts; the other has no entries.
    """

    inputs: Floats
    choices: NDArray[np.int64]
    moves: Floats
    log_probs: Floats
    values: Floats
    advantages: Floats
    returns: Floats


class Outputs(NamedTuple):
    """The places of the policy's outputs and the value in the flow; the number of outputs; and the
    place of the deviations of Gaussian actions in the vector, -1 for choices."""

    policy: int
    value: int
    size: int
    log_std: int


@kernel
def policy_pass(
    descent: OptimizerArrays,
    steps: int,
    learning_rate: float,
    memory: NetworkMemory,
    outputs: Outputs,
    rollout: RolloutRows,
    order: NDArray[np.int64],
    bounds: NDArray[np.int64],
    weights: LossWeights,
    terms: NDArray[np.float64],
) -> int:
    """One step of gradient descent for each part of `order` between two bounds.

    `steps` is how many the optimiser has made before. `terms` (parts, 6) is filled. Returns how
    many parts were finite: the first that is not has been stepped along, and is the last.
    """
    vector, (table, flow, slopes) = descent.vector, memory
    for number in range(len(bounds) - 1):
        drawn = order[bounds[number] : bounds[number + 1]]
        rows, width = len(drawn), rollout.inputs.shape[1]
        for row in range(rows):
            for column in range(width):
                flow[row * width + column] = rollout.inputs[drawn[row], column]
        forward(vector, table, rows, flow)
        _losses(descent, outputs, flow, slopes, rollout, drawn, weights, terms[number])
        backward(vector, descent.gradient, table, rows, flow, slopes, GOALS[TO_WEIGHTS])
        terms[number, GRAD_NORM] = descend(descent, steps + number + 1, learning_rate)
        total = 0.0
        for term in range(terms.shape[1]):
            total += terms[number, term]
        if not math.isfinite(total):
            return number
    return len(bounds) - 1


@kernel
def assess(
    vector: Floats,
    table: Table,
    outputs: Outputs,
    flow: Floats,
    rollout: RolloutRows,
    size: int,
) -> None:
    """Fill in `log_probs` and `values` of a rollout as they are now; for `size` rows at a time, so
    that what flows through the network stays near the processor."""
    count, log_std, width = outputs.size, outputs.log_std, rollout.inputs.shape[1]
    shares = np.empty(count)
    for start in range(0, len(rollout.inputs), size):
        rows = min(size, len(rollout.inputs) - start)
        for row in range(rows):
            for column in range(width):
                flow[row * width + column] = rollout.inputs[start + row, column]
        forward(vector, table, rows, flow)
        for row in range(rows):
            at = rows * outputs.policy + row * count
            if log_std < 0:
                log_prob, _ = choice(flow, at, count, rollout.choices[start + row], shares)
            else:
                log_prob, _ = normal(flow, at, vector, log_std, rollout.moves[start + row])
            rollout.log_probs[start + row] = log_prob
            rollout.values[start + row] = flow[rows * outputs.value + row]


@kernel
def _losses(
    descent: OptimizerArrays,
    outputs: Outputs,
    flow: Floats,
    slopes: Floats,
    rollout: RolloutRows,
    drawn: NDArray[np.int64],
    weights: LossWeights,
    terms: NDArray[np.float64],
) -> None:
    """The terms of the loss over the rows drawn, and the slopes at the outputs."""
    rows, count, log_std = len(drawn), outputs.size, outputs.log_std
    shares = np.empty(count)
    mean, scale = _standard(rollout.advantages, drawn, weights.standardize)
    for term in range(len(terms)):
        terms[term] = 0.0
    if log_std >= 0:
        for k in range(count):
            descent.gradient[log_std + k] = 0.0
    for row in range(rows):
        source = drawn[row]
        at = rows * outputs.policy + row * count
        if log_std < 0:
            action = rollout.choices[source]
            log_prob, entropy = choice(flow, at, count, action, shares)
        else:
            moves = rollout.moves[source]
            log_prob, entropy = normal(flow, at, descent.vector, log_std, moves)
        advantage = (rollout.advantages[source] - mean) * scale
        log_ratio = log_prob - rollout.log_probs[source]
        gained, by_log_prob = advantage * log_prob, -advantage / rows
        if weights.clip < math.inf:
            ratio = math.exp(log_ratio)
            clipped = min(max(ratio, 1.0 - weights.clip), 1.0 + weights.clip)
            gained = min(ratio * advantage, clipped * advantage)
            by_log_prob *= ratio if ratio * advantage <= clipped * advantage else 0.0
            terms[CLIPPED] += abs(ratio - 1.0) > weights.clip
        terms[POLICY_LOSS] -= gained
        terms[ENTROPY] += entropy
        terms[KL] += math.expm1(log_ratio) - log_ratio
        by_entropy = -weights.entropy / rows
        if log_std < 0:
            choice_slopes(slopes, at, count, action, shares, entropy, by_log_prob, by_entropy)
        else:
            normal_slopes(flow, slopes, at, descent, log_std, moves, by_log_prob, by_entropy)
        place = rows * outputs.value + row
        error, slope = _value_error(
            flow[place], rollout.values[source], rollout.returns[source], weights.clip_values
        )
        terms[VALUE_LOSS] += error
        slopes[place] = weights.value * slope / rows
    for term in range(len(terms)):
        terms[term] /= rows


@part
def _standard(
    advantages: Floats, drawn: NDArray[np.int64], standardize: bool
) -> tuple[float, float]:
    """Offset and factor that standardise advantages."""
    if not standardize or len(drawn) < 2:
        return 0.0, 1.0
    total, squares = 0.0, 0.0
    for source in drawn:
        total += advantages[source]
    mean = total / len(drawn)
    for source in drawn:
        squares += (advantages[source] - mean) ** 2
    return mean, 1.0 / (math.sqrt(squares / (len(drawn) - 1)) + 1e-8)


@part
def _value_error(value: float, old: float, target: float, clip: float) -> tuple[float, float]:
    """The squared error of a value, and its slope."""
    error, moved = value - target, value - old
    if abs(moved) > clip:
        held = old + min(max(moved, -clip), clip) - target
        if held * held > error * error:
            return held * held, 0.0
    return error * error, 2.0 * error
