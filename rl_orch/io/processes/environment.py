"""The environment variables that processes are started with: ours, and programs of others."""

import os
from collections.abc import Mapping

from rl_orch.io.processes import import_path

FIXED_VARIABLES = {"PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0"}
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
DEVICES = "CUDA_VISIBLE_DEVICES"

KEYS = (
    *("RL_REGISTRY_DB", "RL_REGISTRY_DB_PATH", "RLCTL_TOKEN", "RLCTL_SERVER"),
    import_path.VARIABLE,
)
"""Variables that open the control plane, and what is said to processes of ours alone: trainers have
no business there."""


def harmless(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that a program of a run may have."""
    return {name: value for name, value in variables.items() if name not in KEYS}


def program_variables(
    *, threads: int | None = None, gpus: tuple[str, ...] | None = None
) -> dict[str, str]:
    """The variables of a process of ours: where it searches for modules, its threads, its GPUs.

    Without `threads` it has what this process has; with them the order of a set of strings is the
    same in every attempt, too.
    """
    inherited = import_path.absolute(harmless(os.environ)) | import_path.variable()
    return inherited | pinned(threads, gpus)


def pinned(threads: int | None, gpus: tuple[str, ...] | None = None) -> dict[str, str]:
    """The variables that make what a process computes repeatable."""
    visible = {} if gpus is None else {DEVICES: ",".join(gpus)}
    if threads is None:
        return visible
    return dict.fromkeys(THREAD_VARIABLES, str(threads)) | visible | FIXED_VARIABLES
