"""Kernels that are compiled before anything is trained; torch is not needed for that."""

import numpy as np

from rl_orch.rl.kernels.dense import GOALS, TO_WEIGHTS, backward, forward
from rl_orch.rl.kernels.optimizers import descend
from rl_orch.rl.learn.optimizer_arrays import OptimizerArrays


def compile_layers() -> None:
    """Compile the kernels that the updates of all algorithms call, by having nothing done."""
    none, no_layers = np.empty(0, np.float32), np.empty((0, 8), np.int64)
    forward(none, no_layers, 0, none)
    backward(none, none, no_layers, 0, none, none, GOALS[TO_WEIGHTS])
    descend(OptimizerArrays(none, none, none, none, True, 1.0, 1.0, 0.0, 0.0), 1, 0.0)
