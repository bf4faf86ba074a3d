"""Commands, one after the other: `python -m tests.integration.odd_directory < lines.json`.

Each line is the words of a command; for each, a line of JSON is printed with its exit code and what
it said. A command that waits for ever makes this process do so, and whoever started it sees that.
"""

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout

from rl_orch.cli import rlctl


def carried_out(words: list[str]) -> tuple[int, str]:
    """The exit code of a command, and its errors."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = rlctl.run(words)
    return code, err.getvalue()


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(carried_out(json.loads(line))) + "\n")
        sys.stdout.flush()
