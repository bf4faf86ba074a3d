"""A disk that is full for the database: clear answers, and all goes on once there is room. The disk
is a real one, small and in memory.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]


def test_a_full_disk_of_the_database_is_told_clearly_and_survived(tmp_path: Path) -> None:
    own = ["--mount"] if os.geteuid() == 0 else ["--mount", "--user", "--map-root-user"]
    driver = [sys.executable, "-m", "tests.faults.full_database", str(tmp_path)]
    done = subprocess.run(
        ["unshare", *own, *driver],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
