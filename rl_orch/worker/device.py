"""`python -m rl_orch.worker.device NAME`: can torch use this device? The answer is the exit code.

Only torch can tell, so the check asks it in a process of its own, and only for devices that are
not the CPU.
"""

import sys

import torch


def available(name: str) -> bool:
    """Whether a tensor can be put on the device."""
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:
        sys.stderr.write(f"{str(error).splitlines()[0]}\n")
        return False
    return True


if __name__ == "__main__":
    sys.exit(0 if available(sys.argv[1]) else 1)
