"""A home that this user may read and not write: `python -m tests.integration.unwritable HOME`.

Started without the right to pass over permissions, which root has. Asserts; exits 0 if all held.
"""

import subprocess
import sys
from pathlib import Path

from rl_orch import orchestrator
from tests.integration.conftest import Shell
from tests.integration.read_only import said, written

OBSTACLE = "cannot be written to by"


def main(home: Path) -> None:
    """Look at a home that others may write at the same time."""
    run = orchestrator.connect(home).get("last").id
    closed = written(home, home.with_name("closed"), "WAL", "ends")
    hot = written(home, home.with_name("hot"), "DELETE", "dies")
    for each in (home, closed, hot):
        subprocess.run(["chmod", "-R", "a-w", each], check=True)
    shell = Shell(home, home.parent)
    assert run in said(shell, "ls")
    assert "intact" in said(shell, "show", run)
    for words in (("rm", run, "--yes"), ("up", "--port", "0"), ("token", "create", "me")):
        assert OBSTACLE in said(shell, *words, code=1), words
    assert OBSTACLE in said(shell, "launch", "--env", "CartPole-v1", code=2)
    assert "is left of a writer" in said(Shell(hot, home.parent), "ls", code=1)
    # Somebody else may begin to write at any moment: it is not read as if nobody could.
    assert "it has a write-ahead log" in said(Shell(closed, home.parent), "ls", code=1)
    for path in (home / "rlctl.db", home):
        path.chmod(0)
        assert "cannot be read" in said(shell, "ls", code=1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
