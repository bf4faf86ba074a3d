"""The entry point of `rlctl`: Ctrl-C is answered from here on, also while the rest is loaded."""

import sys

try:
    from rl_orch.cli.rlctl import main
except KeyboardInterrupt:
    sys.stderr.write("interrupted\n")
    sys.exit(130)

__all__ = ["main"]
