"""`python -m rl_orch.worker.checks.device`: which devices can torch use? The answer is a line of
JSON. `python -m rl_orch.worker.checks.device NAME`: can it use this one? The answer is the exit
code.

Only torch can tell, so it is asked in a process of its own, and only where a device other than the
CPU is meant. Standard error says why not.
"""

import sys
from typing import Any

import torch

from rl_orch.errors import BadInput
from rl_orch.rl.policies.policy import usable_device
from rl_orch.worker.task import write


def devices() -> dict[str, Any]:
    """Devices of torch: its version, the names of the CUDA devices that it sees, and whether it has
    MPS."""
    return {
        "torch": torch.__version__,
        "cuda_build": torch.version.cuda,
        "cuda": [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())],
        "mps": torch.backends.mps.is_available(),
    }


def main(name: str | None = None) -> int:
    """0 if a policy could live on the device; any could on `auto`."""
    if name is None:
        write(sys.stdout, devices())
        return 0
    try:
        if name != "auto":
            usable_device(name)
    except BadInput as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
