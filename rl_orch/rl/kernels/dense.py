"""Networks of dense layers as a table, which kernels run forwards and backwards.

For B rows, all that flows through a network stands in one flat array, `flow`, in columns: first its
inputs, then the outputs of each layer. Columns c to c + w are a block (B, w) that begins at B · c.
Gradients stand at the same places of an array of the same size, `slopes`. Weights and their
gradients are in flat vectors too. So branches are a matter of which columns a layer reads.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from rl_orch.rl.jit import (
    A_TRANSPOSED,
    ADDED,
    B_TRANSPOSED,
    Floats,
    kernel,
    part,
    product,
)

Table = NDArray[np.int64]
"""(layers, 8); a row for each layer, in the order in which they run."""


class NetworkMemory(NamedTuple):
    """The layers of a network, what flows through them, and the slopes there."""

    table: Table
    flow: Floats
    slopes: Floats


WEIGHTS, BIASES, INPUTS, OUTPUTS, SOURCE, PLACE, ACTIVATION, ROLE = range(8)
"""Columns of a table: where weights (O, I) and biases (O,) begin in the vector, I and O, the
columns that are read and written, the activation and the role."""

IDENTITY, TANH, RELU = range(3)
ACTIVATIONS = {"tanh": TANH, "relu": RELU}

READS_INPUTS, SHARES_SOURCE = 1, 2
"""Roles, which add up: the layer reads the inputs of the network; a later layer reads the same."""

GOALS = np.array([0, 1])
TO_WEIGHTS, TO_INPUTS = range(2)
"""Where `backward` goes; from an array for the same reason as the forms of products."""


FORMS = np.array([B_TRANSPOSED, A_TRANSPOSED, 0, ADDED])
OUTPUT_OF, WEIGHTS_OF, INPUTS_OF = range(3)
"""The forms of the products of a layer. Taken from an array they are no literals, for each of which
Numba would compile the product anew."""


@kernel
def forward(vector: Floats, table: Table, rows: int, flow: Floats) -> None:
    """Run all layers over the inputs in `flow`."""
    for number in range(len(table)):
        inputs, outputs = table[number, INPUTS], table[number, OUTPUTS]
        source, place = rows * table[number, SOURCE], rows * table[number, PLACE]
        weights, biases = table[number, WEIGHTS], table[number, BIASES]
        form = FORMS[OUTPUT_OF]
        product(form, flow, source, vector, weights, flow, place, rows, outputs, inputs)
        block = flow[place : place + rows * outputs]
        _finish(block, vector[biases : biases + outputs], table[number, ACTIVATION])


@kernel
def backward(
    vector: Floats,
    gradient: Floats,
    table: Table,
    rows: int,
    flow: Floats,
    slopes: Floats,
    goal: int,
) -> None:
    """Turn the slopes at the outputs into the gradient of the weights; or into the slopes at the
    inputs, as the goal says. `flow` is what `forward` left, and is used up."""
    for number in range(len(table) - 1, -1, -1):
        inputs, outputs = table[number, INPUTS], table[number, OUTPUTS]
        source, place = rows * table[number, SOURCE], rows * table[number, PLACE]
        weights, biases, role = table[number, WEIGHTS], table[number, BIASES], table[number, ROLE]
        block = slopes[place : place + rows * outputs]
        _unfinish(flow[place : place + rows * outputs], block, table[number, ACTIVATION])
        if goal == TO_WEIGHTS:
            _pull(slopes, place, flow, source, gradient, weights, outputs, inputs, rows)
            _sum_rows(block, gradient[biases : biases + outputs])
        if goal == TO_INPUTS or not role & READS_INPUTS:
            form = FORMS[INPUTS_OF + (role & SHARES_SOURCE) // SHARES_SOURCE]
            product(form, slopes, place, vector, weights, slopes, source, rows, inputs, outputs)


@part
def _pull(
    slopes: Floats,
    place: int,
    flow: Floats,
    source: int,
    gradient: Floats,
    weights: int,
    outputs: int,
    inputs: int,
    rows: int,
) -> None:
    """The gradient (O, I) of the weights of a layer.

    BLAS is slow where a product has few columns. There it is asked for (I, O), which goes where
    the outputs of the layer stood.
    """
    form = FORMS[WEIGHTS_OF]
    if inputs < outputs and inputs <= rows:
        product(form, flow, source, slopes, place, flow, place, inputs, outputs, rows)
        pulled = flow[place : place + inputs * outputs]
        for output in range(outputs):
            row = gradient[weights + output * inputs : weights + (output + 1) * inputs]
            for i in range(inputs):
                row[i] = pulled[i * outputs + output]
    else:
        product(form, slopes, place, flow, source, gradient, weights, outputs, inputs, rows)


# Of a slice Numba knows that no index is negative: only so do the loops below become vector code.


@part
def _finish(block: Floats, biases: Floats, activation: int) -> None:
    """Add the biases (O,) to a block (B, O), flat, and activate it, in place."""
    zero, outputs = block.dtype.type(0), len(biases)
    for start in range(0, len(block), outputs):
        row = block[start : start + outputs]
        if activation == RELU:
            for column in range(outputs):
                value = row[column] + biases[column]
                row[column] = zero if value < zero else value
        else:
            for column in range(outputs):
                row[column] += biases[column]
    if activation == TANH:
        for i in range(len(block)):
            block[i] = tanh(block[i])


@part
def _unfinish(values: Floats, slopes: Floats, activation: int) -> None:
    """The slopes before an activation from those behind it; in place, where its values are so."""
    zero, one = values.dtype.type(0), values.dtype.type(1)
    if activation == TANH:
        for i in range(len(values)):
            slopes[i] *= one - values[i] * values[i]
    elif activation == RELU:
        for i in range(len(values)):
            slopes[i] = slopes[i] if values[i] > zero else zero


@part
def _sum_rows(block: Floats, sums: Floats) -> None:
    """The sums over a block (B, O), flat, (O,)."""
    zero, outputs = block.dtype.type(0), len(sums)
    for column in range(outputs):
        sums[column] = zero
    for start in range(0, len(block), outputs):
        row = block[start : start + outputs]
        for column in range(outputs):
            sums[column] += row[column]


def tanh(x: Any) -> Any:
    """tanh of a number; in float32 without a branch, so that a loop over it can be vectorised."""
    return math.tanh(x)


_f = np.float32
_ODD = tuple(map(_f, (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2)))
_ODD_LAST = tuple(map(_f, (1.33314422036e-1, -3.33332819422e-1)))
_EXP = tuple(map(_f, (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3)))
_EXP_LAST = tuple(map(_f, (4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)))
_LOG2_E, _LN2_HIGH, _LN2_LOW = map(_f, (1.44269504088896341, 0.693359375, -2.12194440e-4))
_ONE, _TWO, _HALF, _SMALL, _FLAT = map(_f, (1.0, 2.0, 0.5, 0.625, 40.0))
_EXPONENT_BIAS, _MANTISSA_BITS = np.int32(127), np.int32(23)


def _tanh_float32(x: Any) -> Any:
    """Moshier's Cephes: an odd polynomial near 0, else 1 - 2 / (exp(2 |x|) + 1); to 1 ulp.

    exp(y) = 2ⁿ exp(r), with y = n ln 2 + r and |r| ≤ ½ ln 2, exp(r) by a polynomial.
    """
    size, square = abs(x), x * x
    near = ((_ODD[0] * square + _ODD[1]) * square + _ODD[2]) * square
    near = ((near + _ODD_LAST[0]) * square + _ODD_LAST[1]) * square * x + x
    y = min(size + size, _FLAT)
    n = np.floor(y * _LOG2_E + _HALF)
    r = (y - n * _LN2_HIGH) - n * _LN2_LOW
    power = ((_EXP[0] * r + _EXP[1]) * r + _EXP[2]) * r
    power = ((power + _EXP_LAST[0]) * r + _EXP_LAST[1]) * r + _EXP_LAST[2]
    power = power * r * r + r + _ONE
    power *= np.int32((np.int32(n) + _EXPONENT_BIAS) << _MANTISSA_BITS).view(np.float32)
    far = _ONE - _TWO / (power + _ONE)
    far = -far if x < 0 else far
    return near if size < _SMALL else far


def _tanh_float64(x: Any) -> Any:
    return math.tanh(x)


@overload(tanh)
def _tanh(x: Any) -> Any:
    return _tanh_float32 if x == types.float32 else _tanh_float64
