"""Real runs and a real service in homes that nobody else can read, whatever the umask is."""

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_orch import orchestrator
from rl_orch.client import Client
from rl_orch.io.run.directory import RunDir
from tests.faults import programs
from tests.faults.lab import Lab
from tests.integration.conftest import SMALL, Shell, until

LAUNCH = ("launch", "--env", "CartPole-v1", *SMALL, "train.total_timesteps=512", "eval.every=256")


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    """A user who lets everybody read and write; what is started has that from here."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def open_to_others(root: Path) -> list[str]:
    """What under a folder, itself included, others than its user may use."""
    found = [root, *root.rglob("*")]
    return [f"{mode(path):o} {path}" for path in found if mode(path) & 0o077]


def test_a_launch_and_what_is_done_with_it_leave_nothing_for_others_but_what_is_carried_away(
    shell: Shell,
) -> None:
    shell.folder.chmod(0o755)
    run = shell.json(*LAUNCH)
    shell.json("eval", "last", "-n", "2", "--jobs", "1")
    shell.json("export", "last", "--format", "torchscript", "--rows", "10")
    assert open_to_others(shell.home) == []
    evals = {path.name for path in (Path(run["path"]) / "evals").iterdir()}
    assert {"eval-1.parquet", "curve.svg"} <= evals
    assert list((Path(run["path"]) / "exports").iterdir())
    os.umask(0o022)
    shell.json("eval", "last", "-n", "2", "--jobs", "1", "--out", "played")
    shell.json("export", "last", "--format", "torchscript", "--rows", "10", "--out", "p.ts")
    for path in (shell.folder / "played" / "evals" / "eval-1.json", shell.folder / "p.ts"):
        assert mode(path) == 0o644
    assert mode(shell.folder / "played") == 0o755


def test_a_service_and_its_runs_leave_nothing_for_others(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.service.home.rmdir()
    assert lab.service.run("up", "--detach", "--spares", "0", "--port", "0").returncode == 0
    try:
        with Client.of_home(lab.service.home) as client:
            spec = programs.a_count(lab.program, gate=programs.Gate(tmp_path / "never", step=8))
            run = client.submit(spec, consent=True).runs[0]
            until((Path(run.path) / "control.sock").exists)
            until(lambda: list(RunDir.of(run).checkpoints.glob("step_*")))
            until((Path(run.path) / "sinks" / "tensorboard.json").exists)
            assert open_to_others(lab.service.home) == []
            client.stop(run.id, force=True)
        assert open_to_others(lab.service.home) == []
    finally:
        lab.service.run("down")
        lab.close()


def test_a_program_of_somebodys_own_has_their_umask_in_a_folder_of_their_own(shell: Shell) -> None:
    words = [sys.executable, "-S", "-c", "open('made', 'w').close()"]
    (shell.folder / "theirs").mkdir()
    for name, overrides in (("ours", ()), ("theirs", (f"runner.cwd={shell.folder / 'theirs'}",))):
        spec = programs.external(words, *overrides, name=name)
        assert orchestrator.run(spec, home=shell.home).succeeded
    assert mode(shell.folder / "theirs" / "made") == 0o666
    assert len(list(shell.home.glob("runs/ours-*/work/made"))) == 1
    assert open_to_others(shell.home) == []


def test_the_doctor_tells_of_a_home_that_is_open_to_others(shell: Shell) -> None:
    shell.home.mkdir()
    shell.home.chmod(0o755)
    findings = {finding["name"]: finding for finding in shell.json("doctor")["findings"]}
    assert findings["privacy"]["level"] == "warn"
    assert findings["privacy"]["fix"].endswith(f"chmod -R go= {shell.home}")
