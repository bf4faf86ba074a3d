"""Imports to a small disk: `python -m tests.integration.small_disk FOLDER RUN_PATH POLICY`.

Started in a mount namespace of its own (`unshare`), so that the disk is there for nobody else and
goes with the process. Asserts; exits 0 if all held.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rl_orch import orchestrator
from rl_orch.core.policy_import import PolicyImportRequest, import_policy
from rl_orch.errors import RlctlError
from rl_orch.io.run.directory import RunDir
from tests.integration.full_disk import NO_SPACE, fill
from tests.odd_files import HUGE, a_hole

MIB = 1 << 20
SIZE = "128m"


def refused(act: Callable[[], object], *words: str) -> None:
    """Raise unless that is refused in these words."""
    with pytest.raises(RlctlError) as caught:
        act()
    assert all(word in caught.value.message for word in words), caught.value.message
    assert "Free space" in str(caught.value.hint)


def left(home: Path) -> list[str]:
    """What is in the folder of runs."""
    return sorted(os.listdir(home / "runs")) if (home / "runs").exists() else []


def main(disk: Path, whole: Path, policy: Path) -> None:
    """A run that is too large, one that seems to be, and a disk that fills up meanwhile."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", disk], check=True)
    source = Path(shutil.copytree(whole, disk.parent / "source"))
    home = disk / "home"
    here = orchestrator.connect(home)

    ballast = source / "ballast"
    ballast.write_bytes(os.urandom(MIB) * 128)
    before = shutil.disk_usage(disk).free
    refused(lambda: here.import_run(source), "takes 1", "64 MiB stay free", "MiB left")
    assert shutil.disk_usage(disk).free > before - 2 * MIB  # There is a database by then.
    assert not (home / "runs").exists()
    refused(lambda: here.import_run(source, move=True), "takes 1", "64 MiB stay free")
    assert RunDir(source).spec_file.exists()

    ballast.write_bytes(bytes(16 * MIB))

    def fills(doing: str, done: float) -> None:
        if doing == "copying" and not (disk / "full").exists():
            fill(disk / "full")

    refused(lambda: here.import_run(source, watch=fills), "cannot be brought here", NO_SPACE)
    assert left(home) == []
    refused(
        lambda: import_policy(here, policy, PolicyImportRequest(env="CartPole-v1")), "MiB stay free"
    )
    assert left(home) == []
    (disk / "full").unlink()

    ballast.unlink()
    a_hole(source / "evals" / "sparse")
    run = here.import_run(source, move=True)
    assert left(home) == [run.id]
    assert (Path(run.path) / "evals" / "sparse").stat().st_size == HUGE
    assert not source.exists()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
