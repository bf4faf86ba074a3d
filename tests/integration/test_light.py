"""What a part of ours does without, asked of a process that has loaded nothing else."""

import subprocess
import sys

import pytest

WITHOUT = {
    "a listing of checkpoints": (("rl_orch.io.checkpoints.catalog",), ("numpy",)),
    "what a run writes": (
        (
            "rl_orch.io.trackers.tensorboard",
            "rl_orch.io.checkpoints.checkpoint_files",
            "rl_orch.io.run.command_socket",
        ),
        ("torch", "tensorflow"),
    ),
    "the names of curves": (
        ("rl_orch.io.metrics.series", "rl_orch.io.metrics.recent"),
        ("numpy", "tensorboard"),
    ),
    "the index of metrics": (("rl_orch.io.metrics.index",), ("torch",)),
    "the description of an environment": (
        ("rl_orch.rl.envs.describe", "rl_orch.rl.envs.leaves"),
        ("torch",),
    ),
    "whoever looks at environments": (
        (
            "rl_orch.worker.checks.environment",
            "rl_orch.rl.envs.state.capture",
            "rl_orch.spec.native",
        ),
        ("numba",),
    ),
}
"""Part → its modules, and the libraries that they must not load."""


@pytest.mark.parametrize("part", WITHOUT)
def test_a_part_is_loaded_without_what_it_does_not_need(part: str) -> None:
    modules, libraries = WITHOUT[part]
    asked = f"{set(libraries)} & sys.modules.keys()"
    program = f"import sys, {', '.join(modules)}; print(*{asked})"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
