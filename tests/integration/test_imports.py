"""Runs and policies that are brought in: killed in the middle, side by side, and onto disks that
are too small. The disk is a real one, small and in memory.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rl_orch.io.run.directory import RunDir
from tests.foreign import FOLDER
from tests.integration.conftest import RLCTL, Shell

ROOT = Path(__file__).parents[2]


def files(folder: Path) -> dict[str, bytes]:
    """The files of a run that is not at work, but for its final evaluation, which is set aside."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.parent != folder and not path.name.startswith("final")
    }


def paused(shell: Shell, source: Path) -> subprocess.Popen[str]:
    """An import that has copied some of a run, and waits."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.import_paused", str(shell.home), str(source)],
        env=shell.environment | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    shell._children.append(child)
    assert child.stdout is not None
    assert child.stdout.readline() == "in its middle\n"
    return child


def test_an_import_that_was_killed_is_swept_by_the_next_which_is_whole(
    shell: Shell, whole: RunDir
) -> None:
    child = paused(shell, whole.path)
    child.kill()
    child.communicate()
    (left,) = (shell.home / "runs").iterdir()
    assert left.name.startswith(".importing-")
    run = shell.json("import-run", str(whole.path))
    assert os.listdir(shell.home / "runs") == [run["id"]]
    assert files(Path(run["path"])) == files(whole.path)
    assert [each["id"] for each in shell.json("ls")["runs"]] == [run["id"]]


def test_an_import_that_lives_is_left_alone_by_others(
    shell: Shell, whole: RunDir, tmp_path: Path
) -> None:
    other = Path(shutil.copytree(whole.path, tmp_path / "other"))
    facts = json.loads((other / "manifest.json").read_text())
    (other / "manifest.json").write_text(json.dumps(facts | {"run_id": "another"}))
    child = paused(shell, whole.path)
    shell.json("import-run", str(other))
    names = os.listdir(shell.home / "runs")
    assert "another" in names
    assert len(names) == 2
    child.communicate("go on\n")
    assert child.returncode == 0
    assert sorted(os.listdir(shell.home / "runs")) == sorted(["another", whole.path.name])
    assert files(shell.home / "runs" / whole.path.name) == files(whole.path)


def test_ctrl_c_in_its_middle_leaves_nothing(shell: Shell, whole: RunDir) -> None:
    child = paused(shell, whole.path)
    child.send_signal(2)
    child.communicate()
    assert child.returncode != 0
    assert not (shell.home / "runs").exists()


def test_a_disk_that_is_too_small_is_told_before_a_byte_and_one_that_fills_up_has_nothing_left(
    tmp_path: Path, whole: RunDir
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    own = ["--mount"] if os.geteuid() == 0 else ["--mount", "--user", "--map-root-user"]
    words = [str(disk), str(whole.path), str(FOLDER / "sb3-dqn.zip")]
    done = subprocess.run(
        ["unshare", *own, sys.executable, "-m", "tests.integration.small_disk", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_spec_may_come_through_a_pipe(shell: Shell) -> None:
    """As a shell hands it over: `-f <(…)`."""
    reading, writing = os.pipe()
    os.write(writing, b"env: {id: CartPole-v1, seed: 7}\n")
    os.close(writing)
    done = subprocess.run(
        [*RLCTL, "check", "-f", f"/dev/fd/{reading}", "--json"],
        env=shell.environment | {"PYTHONPATH": str(ROOT)},
        pass_fds=[reading],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    os.close(reading)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["seeds"] == [7]


@pytest.mark.parametrize("name", ["in.npy", "in.npz", "in.jsonl", "in.parquet"])
def test_observations_from_a_fifo_are_refused(shell: Shell, whole: RunDir, name: str) -> None:
    os.mkfifo(shell.folder / name)
    best = next(iter(sorted(whole.checkpoints.iterdir())))
    done = shell.run("infer", str(best), "--input", name)
    assert done.returncode == 2
    assert f"{name}' cannot be read: it is a FIFO, not a file" in done.stderr
