"""A database on a small disk that fills up: `python -m tests.faults.full_database FOLDER`.

Started in a mount namespace of its own (`unshare`), so that the disk is there for nobody else and
goes with the process. Asserts; exits 0 if all held.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from rl_orch.errors import Unavailable
from rl_orch.records import State
from tests.faults import programs
from tests.faults.checker import check
from tests.faults.lab import Lab
from tests.integration.conftest import until
from tests.integration.full_disk import fill

SIZE = "4m"


def main(folder: Path) -> None:
    """Fill the disk while a run is at work, see clear answers, make room, see all of it go on."""
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", disk], check=True)
    lab = Lab(folder, database=str(disk / "rlctl.db"))
    try:
        lab.service.start()
        lab.watcher.start()
        meets_a_full_disk(lab, disk / "ballast")
        check(lab, {})
    finally:
        lab.close()


def meets_a_full_disk(lab: Lab, ballast: Path) -> None:
    gate = programs.Gate(lab.folder / "gate")
    held, spec = programs.a_count(lab.program, gate=gate), programs.a_count(lab.program)
    client = lab.client()
    first = client.submit(held, consent=True).runs[0]
    until(lambda: client.get(first.id).state is State.RUNNING)
    fill(ballast)
    with pytest.raises(Unavailable, match="database or disk is full"):
        client.submit(spec, consent=True)
    folders = {path.name for path in Path(first.path).parent.iterdir()}
    assert folders == {first.id}, "a refused submission left something behind"
    assert [run.id for run in client.ls().runs] == [first.id]
    assert client.get(first.id).active
    assert client.ready()
    gate.open()
    until(lambda: not lab.watcher.marked())
    assert client.get(first.id).active, "nobody could have noted its end"
    assert "database or disk is full" in lab.service.told()
    ballast.unlink()
    until(lambda: client.get(first.id).state is State.SUCCEEDED)
    second = client.submit(spec, consent=True).runs[0]
    until(lambda: client.get(second.id).state is State.SUCCEEDED)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
