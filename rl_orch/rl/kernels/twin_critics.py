"""Policies of continuous actions and twin critics: what `algos/sac.py` and `algos/td3.py` do in
torch. Critics read the inputs of a state and an action behind them, (B, I + A).

Each kernel works on part of the rows drawn: it leaves their part of the gradient, and adds their
part to the terms. `share` is what a row counts for in a mean over all of them.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rl_orch.rl.jit import Floats, kernel, part
from rl_orch.rl.kernels.dense import (
    GOALS,
    INPUTS,
    OUTPUTS,
    PLACE,
    TO_INPUTS,
    TO_WEIGHTS,
    Table,
    backward,
    forward,
    tanh,
)
from rl_orch.rl.kernels.heads import LOG_2PI
from rl_orch.rl.kernels.q_learning import Transitions, put

LOG_2 = math.log(2.0)

Q_LOSS, Q_VALUE, ACTOR_LOSS, LOG_PROB = range(4)
"""The terms of an update."""


class Layers(NamedTuple):
    """A network, its weights and their gradient, what flows through it, and where its outputs
    begin; those of the first two for critics."""

    vector: Floats
    gradient: Floats
    table: Table
    flow: Floats
    slopes: Floats
    place: int
    second: int


class Portion(NamedTuple):
    """Part of the rows drawn, the memory that it is worked on in, and what becomes of it."""

    drawn: Transitions
    actor: Layers
    critics: Layers
    share: float
    errors: NDArray[np.float64]
    terms: NDArray[np.float64]


class Soft(NamedTuple):
    """SAC's numbers: the temperature, and where log deviations are kept."""

    alpha: float
    low: float
    high: float


class Delayed(NamedTuple):
    """TD3's numbers: the deviation of the noise on target actions, and its bound."""

    deviation: float
    clip: float


@kernel
def soft_critics(portion: Portion, target: Floats, noise: Floats, soft: Soft) -> None:
    """The gradient of the critics, towards r + gamma (min Q' - alpha log π)."""
    drawn, actor, critics = portion.drawn, portion.actor, portion.critics
    rows = len(noise)
    log_probs, targets = np.empty(rows), np.empty(rows)
    put(drawn.next_inputs, actor.flow)
    forward(actor.vector, actor.table, rows, actor.flow)
    for row in range(rows):
        log_probs[row] = squash(actor, critics.flow, drawn.next_inputs, row, noise, soft)
    forward(target, critics.table, rows, critics.flow)
    for row in range(rows):
        first, second = rows * critics.place + row, rows * critics.second + row
        least = min(critics.flow[first], critics.flow[second])
        targets[row] = least - soft.alpha * log_probs[row]
    _judge(portion, targets, 0.5)


@kernel
def soft_actor(portion: Portion, alone: tuple[Table, Table], noise: Floats, soft: Soft) -> None:
    """The gradient of the policy, along alpha log π - min Q; `alone` has the layers of each critic
    once more."""
    drawn, actor, critics = portion.drawn, portion.actor, portion.critics
    share, terms = portion.share, portion.terms
    rows, count = noise.shape
    total, loss = 0.0, 0.0
    put(drawn.inputs, actor.flow)
    forward(actor.vector, actor.table, rows, actor.flow)
    for row in range(rows):
        log_prob = squash(actor, critics.flow, drawn.inputs, row, noise, soft)
        total += log_prob
        loss += soft.alpha * log_prob
    forward(critics.vector, critics.table, rows, critics.flow)
    least = np.empty(rows, np.int64)
    for row in range(rows):
        first, second = rows * critics.place + row, rows * critics.second + row
        least[row] = 0 if critics.flow[first] <= critics.flow[second] else 1
        loss -= min(critics.flow[first], critics.flow[second])
    actions, by_actions = np.empty((rows, count)), np.empty((rows, count))
    _along_the_least(critics, alone, least, -share, actions, by_actions)
    unsquash(actor, noise, soft, share, actions, by_actions)
    back(actor, rows)
    terms[ACTOR_LOSS] += loss * share
    terms[LOG_PROB] += total * share


@kernel
def delayed_critics(
    portion: Portion, policy: Floats, target: Floats, noise: Floats, delayed: Delayed
) -> None:
    """The gradient of the critics, towards r + gamma min Q'; at the slow policy's noisy action."""
    drawn, actor, critics = portion.drawn, portion.actor, portion.critics
    rows, count = noise.shape
    targets = np.empty(rows)
    put(drawn.next_inputs, actor.flow)
    forward(policy, actor.table, rows, actor.flow)
    for row in range(rows):
        at = put_state(critics.flow, drawn.next_inputs, row, count)
        for k in range(count):
            pushed = delayed.deviation * noise[row, k]
            pushed = min(max(pushed, -delayed.clip), delayed.clip)
            action = tanh(actor.flow[rows * actor.place + row * count + k]) + pushed
            critics.flow[at + k] = min(max(action, -1.0), 1.0)
    forward(target, critics.table, rows, critics.flow)
    for row in range(rows):
        targets[row] = min(
            critics.flow[rows * critics.place + row], critics.flow[rows * critics.second + row]
        )
    _judge(portion, targets, 1.0)


@kernel
def delayed_actor(portion: Portion, alone: tuple[Table, Table]) -> None:
    """The gradient of the policy, up the first critic."""
    drawn, actor, critics = portion.drawn, portion.actor, portion.critics
    judges, share = critics.vector, portion.share
    rows, count = drawn.moves.shape
    wide = drawn.inputs.shape[1] + count
    loss = 0.0
    put(drawn.inputs, actor.flow)
    forward(actor.vector, actor.table, rows, actor.flow)
    for row in range(rows):
        at = put_state(critics.flow, drawn.inputs, row, count)
        for k in range(count):
            critics.flow[at + k] = tanh(actor.flow[rows * actor.place + row * count + k])
    forward(judges, alone[0], rows, critics.flow)
    for row in range(rows):
        loss -= critics.flow[rows * critics.place + row]
        critics.slopes[rows * critics.place + row] = -share
    backward(judges, judges, alone[0], rows, critics.flow, critics.slopes, GOALS[TO_INPUTS])
    for row in range(rows):
        for k in range(count):
            given = row * wide + wide - count + k
            action = critics.flow[given]
            actor.slopes[rows * actor.place + row * count + k] = critics.slopes[given] * (
                1.0 - action * action
            )
    back(actor, rows)
    portion.terms[ACTOR_LOSS] += loss * share


@part
def back(layers: Layers, rows: int) -> None:
    """The gradient of the weights of a network, from the slopes at its outputs."""
    goal = GOALS[TO_WEIGHTS]
    vector, gradient, table = layers.vector, layers.gradient, layers.table
    backward(vector, gradient, table, rows, layers.flow, layers.slopes, goal)


@part
def squash(
    actor: Layers, given: Floats, inputs: Floats, row: int, noise: Floats, soft: Soft
) -> float:
    """Give the critics a state and tanh of the noisy action in it; returns log π.

    log π = Σ [log N(ε) - log std - log(1 - tanh² u)], u = mean + std ε, and
    log(1 - tanh² u) = 2 (log 2 - u - softplus(-2u)).
    """
    rows, count = noise.shape
    at = rows * actor.place + row * 2 * count
    to = put_state(given, inputs, row, count)
    log_prob = 0.0
    for k in range(count):
        log_std = min(max(actor.flow[at + count + k], soft.low), soft.high)
        drawn = noise[row, k]
        u = actor.flow[at + k] + math.exp(log_std) * drawn
        fall = math.log1p(math.exp(-2.0 * abs(u))) + max(-2.0 * u, 0.0)
        log_prob -= 0.5 * drawn * drawn + log_std + 0.5 * LOG_2PI
        log_prob -= 2.0 * (LOG_2 - u - fall)
        given[to + k] = math.tanh(u)
    return log_prob


@part
def unsquash(
    actor: Layers,
    noise: Floats,
    soft: Soft,
    share: float,
    actions: NDArray[np.float64],
    by_actions: NDArray[np.float64],
) -> None:
    """The slopes of alpha log π + J at the policy's outputs, from those of J at actions (B, A)."""
    rows, count = noise.shape
    for row in range(rows):
        at = rows * actor.place + row * 2 * count
        for k in range(count):
            action = actions[row, k]
            raw = actor.flow[at + count + k]
            pushed = noise[row, k] * math.exp(min(max(raw, soft.low), soft.high))
            slope = by_actions[row, k] * (1.0 - action * action)
            slope += 2.0 * action * soft.alpha * share
            free = soft.low <= raw <= soft.high
            actor.slopes[at + k] = slope
            actor.slopes[at + count + k] = slope * pushed - soft.alpha * share if free else 0.0


@part
def _along_the_least(
    critics: Layers,
    alone: tuple[Table, Table],
    least: NDArray[np.int64],
    slope: float,
    actions: NDArray[np.float64],
    by_actions: NDArray[np.float64],
) -> None:
    """The actions (B, A) that the critics were given, and the slopes at them; of the critic whose
    value is least, if that at its value is `slope`.

    Each critic goes back over its own rows alone, which are moved up: a row begins no later where
    there are fewer of them, so none is overwritten before it has moved.
    """
    rows, count = actions.shape
    wide = alone[0][0, INPUTS]
    judges, flow, slopes = critics.vector, critics.flow, critics.slopes
    for row in range(rows):
        for k in range(count):
            actions[row, k] = flow[(row + 1) * wide - count + k]
    for which in range(2):
        table, own = alone[which], np.flatnonzero(least == which)
        for number in range(len(table) - 1):
            width, place = table[number, OUTPUTS], table[number, PLACE]
            for to in range(len(own)):
                start, end = rows * place + own[to] * width, len(own) * place + to * width
                flow[end : end + width] = flow[start : start + width]
        for to in range(len(own)):
            slopes[len(own) * table[-1, PLACE] + to] = slope
        if len(own):
            backward(judges, judges, table, len(own), flow, slopes, GOALS[TO_INPUTS])
        for to in range(len(own)):
            for k in range(count):
                by_actions[own[to], k] = slopes[(to + 1) * wide - count + k]


@part
def put_state(given: Floats, inputs: Floats, row: int, count: int) -> int:
    """Give the critics a state; returns where its action goes."""
    width: int = inputs.shape[1]
    at = row * (width + count)
    for column in range(width):
        given[at + column] = inputs[row, column]
    return at + width


@part
def _judge(portion: Portion, targets: NDArray[np.float64], factor: float) -> None:
    """The gradient of both critics along their loss: Σ_j E[w (Q_j - y)²], times a factor,
    y = r + gamma targets."""
    drawn, critics, share = portion.drawn, portion.critics, portion.share
    errors, terms = portion.errors, portion.terms
    rows, count = drawn.moves.shape
    for row in range(rows):
        at = put_state(critics.flow, drawn.inputs, row, count)
        for k in range(count):
            critics.flow[at + k] = drawn.moves[row, k]
    forward(critics.vector, critics.table, rows, critics.flow)
    for row in range(rows):
        errors[row] = 0.0
        target = drawn.rewards[row] + drawn.discounts[row] * targets[row]
        for place in (critics.place, critics.second):
            q = critics.flow[rows * place + row]
            error, weight = q - target, factor * share * drawn.weights[row]
            critics.slopes[rows * place + row] = 2.0 * weight * error
            terms[Q_LOSS] += weight * error * error
            terms[Q_VALUE] += 0.5 * share * q
            errors[row] += 0.5 * abs(error)
    back(critics, rows)
