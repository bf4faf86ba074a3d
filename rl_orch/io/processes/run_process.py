"""`python -m rl_orch.io.processes.run_process LINE STRAYS MODULE ARGUMENTS`: a run process.

It leads a session, below a subreaper where there are such, and both outlive their starter, who is
told its pid on the line, a descriptor. The file of strays is for the subreaper (`RunClaim`).
"""

import os
import runpy
import sys
from contextlib import suppress
from pathlib import Path

from rl_orch.io.processes.subreaper import RunClaim, contain, set_name

NAME = "rlctl-run"


def main() -> None:
    """Tell who it is, and be the program."""
    line, strays, module, *arguments = sys.argv[1:]
    claim = RunClaim()
    claim.make(Path(strays))
    if sys.platform == "linux":
        contain(os.getppid(), claim)
    set_name(NAME)
    with suppress(BrokenPipeError):  # Then whoever started it is gone.
        os.write(int(line), str(os.getpid()).encode())
    os.close(int(line))
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
