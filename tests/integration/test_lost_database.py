"""A home whose database was lost is put together again from its run directories."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from rl_orch import orchestrator
from rl_orch.io.run.directory import RunDir
from tests.integration.conftest import Shell


def test_a_home_without_its_database_says_how_its_runs_are_taken_in_again(
    whole: RunDir, shell: Shell
) -> None:
    shutil.copytree(whole.path.parents[1], shell.home)
    connected = orchestrator.connect(shell.home)
    known = {whole.path.name, connected.create(connected.show("last").spec).id}
    connected.store.close()
    (shell.home / "rlctl.db").unlink()
    told = shell.run("ls")
    assert (told.returncode, "has 2 run directories" in told.stderr) == (0, True)
    assert not (shell.home / "rlctl.db").exists()
    loop = re.search(r"for run in .*; done", told.stderr)
    assert loop is not None, told.stderr
    folders = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["sh", "-c", loop[0]], env=shell.environment | {"PATH": folders}, check=True, timeout=120
    )
    assert {run["id"] for run in shell.json("ls")["runs"]} == known
    assert "intact" in shell.run("show", whole.path.name).stdout
