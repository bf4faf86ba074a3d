"""`python -m rl_orch.worker.device NAME`: can torch use this device? The answer is the exit code.

Only torch can tell, so the check asks it in a process of its own, and only for devices that are
not the CPU. Standard error says why not.
"""

import sys

from rl_orch.errors import BadInput
from rl_orch.rl.policy import usable_device


def main(name: str) -> int:
    """0 if a policy could live on the device."""
    try:
        usable_device(name)
    except BadInput as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
