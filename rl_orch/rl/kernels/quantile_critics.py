"""Policies of continuous actions and critics of quantiles: what `algos/tqc.py` does in torch.

Kernels work on part of the rows drawn, as those of `twin_critics.py` do.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rl_orch.rl.jit import Floats, kernel, part
from rl_orch.rl.kernels.dense import GOALS, TO_INPUTS, backward, forward
from rl_orch.rl.kernels.q_learning import compare, put
from rl_orch.rl.kernels.twin_critics import (
    ACTOR_LOSS,
    LOG_PROB,
    Q_LOSS,
    Q_VALUE,
    Portion,
    Soft,
    back,
    put_state,
    squash,
    unsquash,
)


class Quantiles(NamedTuple):
    """Where the quantiles of each critic begin, how many it has, and how many of all are kept."""

    places: NDArray[np.int64]
    each: int
    kept: int


@kernel
def truncated_critics(
    portion: Portion, target: Floats, noise: Floats, soft: Soft, quantiles: Quantiles
) -> None:
    """The gradient of the critics, towards r + gamma (the least of all quantiles - alpha log π)."""
    drawn, actor, critics = portion.drawn, portion.actor, portion.critics
    rows = len(noise)
    targets, log_probs = np.empty((rows, quantiles.kept)), np.empty(rows)
    put(drawn.next_inputs, actor.flow)
    forward(actor.vector, actor.table, rows, actor.flow)
    for row in range(rows):
        log_probs[row] = squash(actor, critics.flow, drawn.next_inputs, row, noise, soft)
    forward(target, critics.table, rows, critics.flow)
    pool = np.empty(len(quantiles.places) * quantiles.each)
    for row in range(rows):
        _pool(critics.flow, rows, row, quantiles, pool)
        for j in range(quantiles.kept):
            value = pool[j] - soft.alpha * log_probs[row]
            targets[row, j] = drawn.rewards[row] + drawn.discounts[row] * value
    _judge(portion, targets, quantiles)


@kernel
def truncated_actor(portion: Portion, noise: Floats, soft: Soft, quantiles: Quantiles) -> None:
    """The gradient of the policy, along alpha log π less the mean of all quantiles."""
    drawn, actor, critics = portion.drawn, portion.actor, portion.critics
    share, terms = portion.share, portion.terms
    rows, count = noise.shape
    wide, each = drawn.inputs.shape[1] + count, quantiles.each
    part_of_all = 1.0 / (len(quantiles.places) * each)
    total, value = 0.0, 0.0
    put(drawn.inputs, actor.flow)
    forward(actor.vector, actor.table, rows, actor.flow)
    for row in range(rows):
        total += squash(actor, critics.flow, drawn.inputs, row, noise, soft)
    judges = critics.vector
    forward(judges, critics.table, rows, critics.flow)
    for place in quantiles.places:
        for at in range(rows * place, rows * (place + each)):
            value += critics.flow[at]
            critics.slopes[at] = -share * part_of_all
    backward(judges, judges, critics.table, rows, critics.flow, critics.slopes, GOALS[TO_INPUTS])
    actions, by_actions = np.empty((rows, count)), np.empty((rows, count))
    for row in range(rows):
        for k in range(count):
            actions[row, k] = critics.flow[(row + 1) * wide - count + k]
            by_actions[row, k] = critics.slopes[(row + 1) * wide - count + k]
    unsquash(actor, noise, soft, share, actions, by_actions)
    back(actor, rows)
    terms[ACTOR_LOSS] += (soft.alpha * total - value * part_of_all) * share
    terms[LOG_PROB] += total * share


@part
def _pool(
    flow: Floats, rows: int, row: int, quantiles: Quantiles, pool: NDArray[np.float64]
) -> None:
    """The quantiles of all critics for a row, the least first."""
    each = quantiles.each
    for number in range(len(quantiles.places)):
        at = rows * quantiles.places[number] + row * each
        for i in range(each):
            pool[number * each + i] = flow[at + i]
    pool.sort()


@part
def _judge(portion: Portion, targets: NDArray[np.float64], quantiles: Quantiles) -> None:
    """The gradient of all critics along their loss: E[w E_nij |τ̂_i - 1{u_ij < 0}| L(u_ij)]."""
    drawn, critics, share = portion.drawn, portion.critics, portion.share
    errors, terms = portion.errors, portion.terms
    rows, kept = targets.shape
    each, number = quantiles.each, len(quantiles.places)
    middles, sums = (np.arange(each) + 0.5) / each, np.empty((3, each))
    count = drawn.moves.shape[1]
    for row in range(rows):
        at = put_state(critics.flow, drawn.inputs, row, count)
        for k in range(count):
            critics.flow[at + k] = drawn.moves[row, k]
    forward(critics.vector, critics.table, rows, critics.flow)
    for row in range(rows):
        weight = share * drawn.weights[row] / (number * each * kept)
        far = 0.0
        for place in quantiles.places:
            at = rows * place + row * each
            values = critics.flow[at : at + each]
            compare(values, targets[row], middles, sums[0], sums[1], sums[2])
            for i in range(each):
                terms[Q_LOSS] += weight * sums[0, i]
                terms[Q_VALUE] += share * values[i] / (each * number)
                far += sums[2, i]
                critics.slopes[at + i] = weight * sums[1, i]
        errors[row] = far / (number * each * kept)
    back(critics, rows)
