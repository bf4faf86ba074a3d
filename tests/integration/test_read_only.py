"""A home that cannot be written: what only reads works, and the rest says why not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from rl_orch.io.run.directory import RunDir

ROOT = Path(__file__).parents[2]


RIGHTS = "-dac_override,-dac_read_search"
"""What lets root pass over permissions."""


def test_a_home_that_is_mounted_read_only_can_be_looked_at_and_says_why_it_cannot_be_changed(
    whole: RunDir, tmp_path: Path
) -> None:
    own = ["--mount"] if os.geteuid() == 0 else ["--mount", "--user", "--map-root-user"]
    driven(["unshare", *own], "read_only", str(copied(whole, tmp_path)), str(tmp_path))


def test_a_home_of_somebody_else_can_be_looked_at_and_says_why_it_cannot_be_changed(
    whole: RunDir, tmp_path: Path
) -> None:
    without = ["setpriv", "--bounding-set", RIGHTS] if os.geteuid() == 0 else []
    driven(without, "unwritable", str(copied(whole, tmp_path)))


def copied(whole: RunDir, to: Path) -> Path:
    """A home with one run that has ended."""
    shutil.copytree(whole.path.parents[1], to / "home")
    return to / "home"


def driven(start: list[str], module: str, *words: str) -> None:
    """Carry a driver out in a process of its own."""
    done = subprocess.run(
        [*start, sys.executable, "-m", f"tests.integration.{module}", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
