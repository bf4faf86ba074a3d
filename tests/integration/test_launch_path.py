"""The path of a launch: nothing is fetched twice. Counted in the real processes."""

import subprocess
from pathlib import Path

from tests.integration.conftest import RLCTL, SMALL, Shell
from tests.opened import OpenedFiles
from tests.waiting import PATIENCE_S


def carried_out(shell: Shell, opened: OpenedFiles, *words: str) -> None:
    """Carry a command out by processes that note what they open."""
    done = subprocess.run(
        [*RLCTL, *words],
        env=opened.variables(shell.environment),
        cwd=shell.folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout


def test_every_process_of_a_launch_reads_the_spec_once(shell: Shell, tmp_path: Path) -> None:
    opened = OpenedFiles(tmp_path)
    carried_out(
        shell, opened, "launch", "--env", "CartPole-v1", *SMALL, "train.total_timesteps=1024"
    )
    (spec,) = (shell.home / "runs").glob("*/spec.yaml")
    counts = [files[str(spec)] for files in opened.by_process("spec.yaml").values()]
    assert counts == [1, 1, 1]  # Who trains, who evaluates, who supervises and sums up.
