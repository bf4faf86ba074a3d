"""A disk that is full while a run saves or tells: a clear end, nothing half-written, and it goes on
once there is room. The disk is a real one, small and in memory.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rl_orch.io.run.directory import RunDir
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("what", ["checkpoint", pytest.param("event", marks=pytest.mark.soak)])
def test_a_full_disk_is_a_clear_end_that_is_resumed_once_there_is_room(
    tmp_path: Path, whole: RunDir, what: str
) -> None:
    home = tmp_path / "disk"
    home.mkdir()
    own = ["--mount"] if os.geteuid() == 0 else ["--mount", "--user", "--map-root-user"]
    driver = [sys.executable, "-m", "tests.integration.full_disk", str(home), str(whole.path), what]
    done = subprocess.run(
        ["unshare", *own, *driver],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
