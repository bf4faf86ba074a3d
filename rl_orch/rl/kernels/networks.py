"""Translation of torch's perceptrons to the tables that kernels run."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_orch.rl.data.batch import Column
from rl_orch.rl.kernels import dense
from rl_orch.rl.kernels.dense import (
    IDENTITY,
    READS_INPUTS,
    ROLE,
    SHARES_SOURCE,
    SOURCE,
    NetworkMemory,
    Table,
)
from rl_orch.rl.policies.nets import MLP
from rl_orch.rl.policies.observations import ObservationPipeline


class Network(NamedTuple):
    """Layers as a table, and how many columns all that flows through them takes."""

    table: Table
    columns: int


def memory(size: int) -> NDArray[np.float32]:
    """Memory for numbers, from torch, since that always begins at a multiple of 64 bytes: BLAS may
    round otherwise at another place."""
    block: NDArray[np.float32] = torch.empty(size).numpy()
    return block


def inputs_of(pipeline: ObservationPipeline, observations: Column) -> NDArray[np.float32]:
    """Observations as kernels take them, (B, I); they train on single vectors alone."""
    processed = pipeline.process(observations)
    assert isinstance(processed, np.ndarray)
    return np.ascontiguousarray(processed)


def actions_of(actions: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Actions as kernels take them: choices (B,) or moves (B, A), and none of the other."""
    if actions.dtype.kind == "i":
        return actions.astype(np.int64, copy=False), np.empty((0, 0), np.float32)
    rows = actions.reshape(len(actions), -1)
    return np.empty(0, np.int64), np.ascontiguousarray(rows, np.float32)


class Flows:
    """Memory for what flows through a network, and for its slopes; it grows with the rows."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._flow = self._slopes = memory(0)

    def of(self, rows: int) -> NetworkMemory:
        """Memory for so many rows, or more."""
        size = rows * self.network.columns
        if len(self._flow) < size:
            self._flow, self._slopes = memory(size), memory(size)
        return NetworkMemory(self.network.table, self._flow, self._slopes)


class Plan:
    """Perceptrons that read the inputs of a network, or each other; laid out one after another.

    Their parameters are views of one vector.
    """

    def __init__(self, vector: Tensor, inputs: int) -> None:
        self._vector = vector
        self._rows: list[list[int]] = []
        self._columns = inputs

    def add(self, net: MLP, source: int = 0) -> int:
        """Let a perceptron read the columns from `source` on; returns where its outputs begin."""
        layers: list[Any] = [*net.layers]
        last = len(layers) - 1
        for number, layer in enumerate(layers):
            for row in self._rows:
                if row[SOURCE] == source:
                    row[ROLE] |= SHARES_SOURCE
            activated = number < last or net.activate_last
            self._rows.append(
                [
                    self._place(layer.weight),
                    self._place(layer.bias),
                    layer.in_features,
                    layer.out_features,
                    source,
                    self._columns,
                    dense.ACTIVATIONS[net.activation] if activated else IDENTITY,
                    READS_INPUTS if source == 0 else 0,
                ]
            )
            source, self._columns = self._columns, self._columns + layer.out_features
        return source

    def network(self) -> Network:
        """All that was added up to now."""
        table = np.array(self._rows, np.int64).reshape(len(self._rows), 8)
        return Network(table, self._columns)

    def _place(self, parameter: Tensor) -> int:
        return (parameter.data_ptr() - self._vector.data_ptr()) // self._vector.element_size()
