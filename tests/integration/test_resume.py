"""Runs that were interrupted go on, bit for bit, from wherever they are."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import pytest

from rl_orch import orchestrator
from rl_orch.core.orchestrator import RunResult
from rl_orch.io.checkpoints import catalog, hash_chain
from rl_orch.io.checkpoints import checkpoint_files as checkpoints
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import fold, read
from rl_orch.records import Event
from tests.integration.conftest import RESUMED, Shell, until
from tests.integration.test_endings import worker_pid
from tests.waiting import PATIENCE_S


def begun(shell: Shell, *more: str, checkpoints: int = 2) -> tuple[subprocess.Popen[str], RunDir]:
    """A launch under way that has saved some checkpoints."""
    child = shell.start(*RESUMED, *more)
    runs = shell.home / "runs"

    def saved() -> Path | None:
        for run in runs.iterdir() if runs.exists() else ():
            if len(list((run / "checkpoints").glob("step_*"))) >= checkpoints:
                return run
        return None

    return child, RunDir(until(saved))


def killed(shell: Shell, *more: str) -> RunDir:
    """A run whose worker was killed."""
    child, directory = begun(shell, *more)
    os.kill(worker_pid({"path": directory.path}), signal.SIGKILL)
    child.communicate(timeout=PATIENCE_S)
    return directory


def power_cut(child: subprocess.Popen[str], directory: RunDir) -> None:
    root = psutil.Process(worker_pid({"path": directory.path}))
    child.kill()
    root.kill()
    root.wait(timeout=PATIENCE_S)  # A signal is on its way before it is felt.


def gone_on_with(shell: Shell, run: str, *overrides: str) -> RunResult:
    """What becomes of a resumed run, in this process, which has torch: for tests that are not about
    bits, which depend on how a process calculates."""
    return orchestrator.resume(run, overrides=overrides, home=shell.home, in_process=True)


def interrupt(child: subprocess.Popen[str], _directory: RunDir) -> None:
    child.send_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("how", "state"),
    [(power_cut, "lost"), pytest.param(interrupt, "stopped", marks=pytest.mark.soak)],
)
def test_an_interrupted_run_goes_on_bit_for_bit(
    shell: Shell,
    whole: RunDir,
    how: Callable[[subprocess.Popen[str], RunDir], None],
    state: str,
) -> None:
    child, directory = begun(shell)
    how(child, directory)
    child.communicate(timeout=PATIENCE_S)
    assert orchestrator.connect(shell.home).show("last").run.state == state
    result = orchestrator.resume(directory.path.name, home=shell.home)
    assert result.succeeded
    assert result.report is not None
    assert (result.run.attempt, result.run.resume, result.run.env_steps) == (2, "bitwise", 12288)
    if state == "stopped":
        # The last checkpoint of a run that was asked to end is one that nobody else has.
        digests = [hash_chain.digests(checkpoints.load(newest(run))) for run in (whole, directory)]
        assert digests[0] == digests[1]
    else:
        assert hash_chain.compare(whole, directory).difference is None
    events = shell.run("logs", "last", "--events").stdout.splitlines()
    assert [Event.model_validate_json(line) for line in events] == fold(read(directory.events))
    assert shell.processes() == []


def newest(directory: RunDir) -> Path:
    path = catalog.newest(directory.checkpoints).path
    assert path is not None
    return path


def test_a_run_that_outlived_its_launch_is_taken_over_as_it_is(shell: Shell, whole: RunDir) -> None:
    child, directory = begun(shell)
    root, connected = worker_pid({"path": directory.path}), orchestrator.connect(shell.home)
    os.kill(root, signal.SIGSTOP)  # Else it may have ended before anybody takes it over.
    child.kill()
    child.communicate(timeout=PATIENCE_S)
    before = connected.store.lease_of(directory.path.name)
    taking = shell.start("resume", "last", "--json")
    until(lambda: connected.store.lease_of(directory.path.name) != before)
    os.kill(root, signal.SIGCONT)
    resumed = json.loads(taking.communicate(timeout=PATIENCE_S)[0])
    assert (resumed["state"], resumed["attempt"]) == ("succeeded", 1)
    assert hash_chain.compare(whole, directory).difference is None


def test_only_one_of_two_resumes_wins_and_the_other_says_who_has_it(shell: Shell) -> None:
    directory = killed(shell, "train.total_timesteps=1e9", "eval.every=1e9")
    both = [shell.start("resume", "last", "--json") for _ in range(2)]
    loser: subprocess.Popen[str] = until(
        lambda: next((child for child in both if child.poll() is not None), None)
    )
    winner = both[1 - both.index(loser)]
    error = json.loads(loser.communicate(timeout=PATIENCE_S)[0])["error"]
    assert (loser.returncode, error["code"]) == (2, "run_locked")
    assert f"by process {winner.pid} now" in error["message"]
    until(lambda: shell.json("show", "last")["state"] == "running")
    assert len(shell.run_processes()) == 1
    assert shell.json("stop", "last")["attempt"] == 2
    assert winner.wait(timeout=PATIENCE_S) == 4
    assert directory.lock_holder() is None


def test_a_run_directory_that_somebody_holds_is_not_resumed(shell: Shell) -> None:
    directory = killed(shell)
    with directory.locked():
        error = shell.json("resume", "last", code=2)["error"]
    assert error["code"] == "run_locked"
    assert str(os.getpid()) in error["message"]
    assert shell.json("show", "last")["state"] == "failed"


def test_a_moved_run_goes_on_bit_for_bit_in_another_home(
    shell: Shell, whole: RunDir, tmp_path: Path
) -> None:
    directory = killed(shell)
    home = tmp_path / "ein anderes Zuhause – été"
    stick = tmp_path / "an USB stick" / "läuft"
    stick.parent.mkdir()
    shutil.move(directory.path, stick)
    other = Shell(home, shell.folder)
    imported = other.json("import-run", str(stick))
    assert (imported["id"], imported["state"]) == (directory.path.name, "lost")
    assert Path(imported["path"]).parent == home / "runs"
    resumed = other.json("resume", imported["id"])
    assert (resumed["state"], resumed["resume"]) == ("succeeded", "bitwise")
    assert hash_chain.compare(whole, RunDir(Path(resumed["path"]))).difference is None
    assert other.json("import-run", str(stick), code=2)["error"]["code"] == "conflict"
    other.close()


def test_a_finished_run_is_evaluated_again_where_it_is_imported(
    shell: Shell, whole: RunDir
) -> None:
    imported = shell.json("import-run", str(whole.path))
    assert (imported["state"], imported["verdict"]) == ("lost", None)
    resumed = gone_on_with(shell, "last").run
    assert (resumed.state, resumed.attempt, resumed.env_steps) == ("succeeded", 2, 12288)
    shown = shell.json("show", "last")
    assert shown["model_id"] in [model["id"] for model in shown["models"]]
    reports = [run.read_report("final") for run in (RunDir.of(resumed), whole)]
    played = [report.model_dump(exclude={"digest"}) for report in reports if report is not None]
    assert len(played) == 2
    assert played[0] == played[1]
    assert shell.json("resume", "last", code=2)["error"]["code"] == "conflict"


def test_another_fingerprint_is_said_to_be_approximate(shell: Shell) -> None:
    directory = killed(shell, "train.total_timesteps=6144")
    path = newest(directory)
    known = checkpoints.load(path)
    meta = known.document["meta"]
    meta["fingerprint"]["torch"] = "1.0.0"
    document = {key: known.document[key] for key in ("trainer_state", "replay_meta", "rng_state")}
    checkpoints.save(
        directory.checkpoints, step=known.step, tensors=known.tensors, document=document, meta=meta
    )
    resumed = gone_on_with(shell, "last").run
    assert (resumed.state, resumed.resume) == ("succeeded", "approximate")
    shown = shell.run("show", "last").stdout
    assert f"torch 1.0.0 → {version('torch')}" in shown


def test_a_longer_budget_is_gone_on_with_and_noted(shell: Shell) -> None:
    directory = killed(shell)
    refused = shell.json("resume", "last", "--set", "train.gamma=0.5", code=2)["error"]
    assert refused["path"] == "train.gamma"
    assert "train.total_timesteps" in refused["message"]
    refused = shell.json("resume", "last", "--set", "train.total_timesteps=1", code=2)["error"]
    assert "is at step" in refused["message"]
    resumed = gone_on_with(shell, "last", "train.total_timesteps=14336").run
    assert (resumed.env_steps, resumed.total_timesteps) == (14336, 14336)
    manifest: dict[str, Any] = json.loads(directory.manifest_file.read_text())
    (change,) = manifest["changes"]
    assert change["attempt"] == 2
    assert change["set"] == {"train.total_timesteps": [12288, 14336]}
    assert directory.spec().train.total_timesteps == 14336
