"""A run on a small disk that fills up: `python -m tests.integration.full_disk HOME RUN_PATH WHAT`.

Started in a mount namespace of its own (`unshare`), so that the disk is there for nobody else and
goes with the process. Asserts; exits 0 if all held.
"""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from rl_orch.io.checkpoints import catalog, hash_chain
from rl_orch.io.run import command_socket
from rl_orch.io.run.directory import RunDir
from tests.integration.conftest import RESUMED, Shell, until
from tests.waiting import PATIENCE_S

SIZE = "24m"
NO_SPACE = "No space left on device"


def fill(ballast: Path) -> None:
    """Take up all the room that there is."""
    with suppress(OSError), ballast.open("ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def begun(shell: Shell, what: str) -> tuple[subprocess.Popen[str], RunDir]:
    """A launch that has saved a checkpoint: its only one, where events are to meet a full disk."""
    every = ("checkpoint.every=1e9", "eval.every=1e9") if what == "event" else ()
    child = shell.start(*RESUMED, *every, "--json")
    runs = shell.home / "runs"
    until(lambda: list(runs.glob("*/control.sock")))
    directory = RunDir(next(runs.iterdir()))
    if what == "event":
        until(lambda: b'"kind":"metric"' in directory.events.read_bytes())
        assert command_socket.send(directory.path, "checkpoint")["ok"]
    until(lambda: len(catalog.listing(directory.checkpoints)) >= 1)
    return child, directory


def main(home: Path, whole: RunDir, what: str) -> None:
    """Fill the disk, see a clear end, make room, go on."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", home], check=True)
    shell = Shell(home / "rlruns", home.parent)
    child, directory = begun(shell, what)
    ballast = home / "ballast"
    fill(ballast)
    if what == "checkpoint":
        # Room for some events, and for half a checkpoint.
        os.truncate(ballast, ballast.stat().st_size - 48 * 1024)
    printed, errors = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 1, errors
    run = json.loads(printed)
    assert run["state"] == "failed", run
    noun = "checkpoint" if what == "checkpoint" else "the event file"
    assert f"cannot write {noun}" in run["reason"], run["reason"]
    assert NO_SPACE in run["reason"]
    assert "Free space" in run["reason"]

    fill(ballast)
    shown = shell.json("show", "last")
    assert (shown["state"], shown["reason"]) == ("failed", run["reason"])
    assert [entry.intact for entry in catalog.listing(directory.checkpoints)] != []
    assert all(entry.intact for entry in catalog.listing(directory.checkpoints))
    assert not [path for path in directory.path.rglob(".*") if path.name != "."]

    ballast.unlink()
    resumed = shell.json("resume", "last")
    assert (resumed["state"], resumed["resume"]) == ("succeeded", "bitwise"), resumed
    if what == "checkpoint":
        difference = hash_chain.compare(whole, directory).difference
        assert difference is None, difference
    assert resumed["env_steps"] == 12288
    assert shell.processes() == []


if __name__ == "__main__":
    os.environ.setdefault("COLUMNS", "160")
    main(Path(sys.argv[1]), RunDir(Path(sys.argv[2])), sys.argv[3])
