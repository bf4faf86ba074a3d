"""Bring your own trainer: the page's own files, in a virtual environment that has nothing in it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from rl_orch import orchestrator
from rl_orch.io.processes import pids
from rl_orch.io.run.events import first_gap, fold, read
from tests.integration.conftest import Shell, until
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "bring-your-own-trainer.md"
FILES = ("trainer.py", "act.py", "external.yaml")
BLOCK = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
SECRET = "s3cret-0f-this-test"
FREE = ("~runner.policy", "~gates.min_return")
"""Overrides of a run that nobody judges."""

KEPT = "checkpoint.keep_training_state=always"
GOOD_STEP = 10_000
"""With the seed of the page, the first checkpoint after this step has solved the task."""

STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sleep = [sys.executable, "-c", "import signal, time; signal.signal(15, 1); time.sleep(3600)"]
subprocess.Popen(sleep)
subprocess.Popen(sleep, start_new_session=True)
print("on my way", flush=True)
time.sleep(3600)
"""
"""A program that does not mind being asked to end, with children, one in a session of its own."""


@dataclass
class Desk:
    """A folder with the files of the page, an empty virtual environment, and a home of its own."""

    shell: Shell

    def launch(self, *overrides: str, code: int = 0) -> dict[str, Any]:
        """What became of a run of the page's spec."""
        arguments = ("launch", "-f", "external.yaml", "--yes", "eval.final_episodes=20", KEPT)
        return self.shell.json(*arguments, *overrides, code=code)

    def launched(self, *overrides: str) -> tuple["subprocess.Popen[str]", Path]:
        """A run that goes on and on, and its directory, once it has kept a good checkpoint."""
        known = set((self.shell.home / "runs").glob("*"))
        arguments = ("launch", "-f", "external.yaml", "--yes", "eval.final_episodes=20", "--json")
        child = self.shell.start(*arguments, *overrides)

        def begun() -> Path | None:
            new = sorted(set((self.shell.home / "runs").glob("[!.]*")) - known)
            return new[0] if new and steps_kept(new[0])[-1:] > [GOOD_STEP] else None

        path: Path = until(begun)
        return child, path


def steps_kept(path: Path) -> list[int]:
    return sorted(int(kept.name[5:]) for kept in (path / "checkpoints").glob("step_*"))


def program_of(path: Path) -> psutil.Process:
    """The program that a run's root has started."""
    root = psutil.Process(pids.pid_of((path / "lock").read_text()))
    (program,) = root.children()
    return program


def left_of(path: Path) -> list[str]:
    return list(pids.marked(path, through=100))


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("ein Schreibtisch, ü")
    for name, body in BLOCK.findall(PAGE.read_text("utf-8")):
        (folder / name).write_text(body, "utf-8")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "bare"], check=True)
    shell = Shell(folder / "hömé", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MY_TOKEN", SECRET)
        yield Desk(shell)
    shell.close()
    for path in (shell.home / "runs").glob("*"):
        pids.sweep(path, through=100)


@pytest.fixture(scope="module")
def trained(desk: Desk) -> dict[str, Any]:
    """A run of the page's spec, with a secret besides."""
    return desk.launch("runner.env={TOKEN:'env:MY_TOKEN'}")


def test_the_page_has_the_files_of_the_example() -> None:
    blocks = dict(BLOCK.findall(PAGE.read_text("utf-8")))
    assert tuple(blocks) == FILES
    for name, body in blocks.items():
        assert body == (ROOT / "examples" / "external" / name).read_text("utf-8")


def test_the_trainer_has_thirty_lines() -> None:
    text = (ROOT / "examples" / "external" / "trainer.py").read_text()
    code = re.sub(r'""".*?"""', "", text, flags=re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) == 30


def test_its_environment_knows_nothing_of_us(desk: Desk) -> None:
    python = desk.shell.folder / "bare" / "bin" / "python"
    command = [str(python), "-E", "-c", "import rl_orch"]
    done = subprocess.run(command, cwd=desk.shell.folder, capture_output=True, check=False)
    assert b"No module named 'rl_orch'" in done.stderr


def test_a_run_of_it_passes_a_gate_on_the_policy_that_it_serves(trained: dict[str, Any]) -> None:
    assert (trained["state"], trained["verdict"], trained["algo"]) == (
        "succeeded",
        "passed",
        "external",
    )
    assert (trained["eval"]["n"], trained["eval"]["unit"]) == (20, "episodes")
    assert trained["eval"]["ci95"][0] >= 475
    assert trained["env_steps"] >= 200_000
    assert trained["resume"] == "approximate"
    assert trained["sps"] > 0


def test_the_policy_that_it_serves_is_played_again_and_beside_an_earlier_one(
    desk: Desk, trained: dict[str, Any]
) -> None:
    path = Path(trained["path"])
    first = path / "checkpoints" / f"step_{steps_kept(path)[0]:012}"
    found = desk.shell.json("eval", trained["id"], "--against", str(first), "-n", "10")
    assert found["eval"]["mean"] >= 475
    assert found["comparison"]["difference"]["ci95"][0] > 0
    assert left_of(path) == []


def test_it_is_listed_shown_and_has_a_log_and_a_curve(desk: Desk, trained: dict[str, Any]) -> None:
    listed = desk.shell.json("ls")["runs"]
    assert trained["id"] in [run["id"] for run in listed]
    shown = desk.shell.json("show", trained["id"])
    assert all(entry["intact"] for entry in shown["checkpoints"])
    assert shown["exactness"]["level"] == "approximate"
    text = desk.shell.run("show", trained["id"]).stdout
    assert "environment steps" in text
    log = desk.shell.run("logs", trained["id"]).stdout
    assert "attempt ended how=trained" in log
    assert "checkpoint evaluated" in log


def test_its_secret_is_in_no_file(desk: Desk, trained: dict[str, Any]) -> None:
    files = [path for path in desk.shell.home.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    assert "env:MY_TOKEN" in (Path(trained["path"]) / "spec.yaml").read_text()


def test_nobody_runs_it_unseen(desk: Desk) -> None:
    done = desk.shell.run("launch", "-f", "external.yaml")
    assert done.returncode == 2
    assert '["bare/bin/python", "trainer.py"]' in done.stderr


def test_one_without_a_policy_succeeds_unjudged_and_is_compared_all_the_same(
    desk: Desk, trained: dict[str, Any]
) -> None:
    run = desk.launch(*FREE, "train.total_timesteps=20000", "name=free")
    assert (run["state"], run["verdict"], run["eval"]) == ("succeeded", None, None)
    assert run["reason"].endswith("no policy was given to evaluate")
    compared = desk.shell.json("compare", trained["id"], run["id"])
    paths = {row["path"] for row in compared["difference"]}
    assert {"runner.policy", "gates.min_return", "train.total_timesteps"} <= paths


def test_a_stop_ends_it(desk: Desk) -> None:
    child, path = desk.launched("train.total_timesteps=1e12", "name=long")
    stopped = desk.shell.json("stop", path.name)
    assert stopped["state"] == "stopped"
    assert stopped["reason"].endswith("as it was asked to")
    child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 4
    assert left_of(path) == []


def test_a_kill_fails_it_and_the_next_attempt_goes_on_to_the_gate(desk: Desk) -> None:
    child, path = desk.launched("train.total_timesteps=1e12", "name=killed")
    program_of(path).send_signal(signal.SIGKILL)
    child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 1
    failed = desk.shell.json("show", path.name)
    assert failed["state"] == "failed"
    assert failed["reason"].startswith("its program was killed by SIGKILL")
    enough = f"train.total_timesteps={failed['env_steps'] + 1}"
    run = desk.shell.json("resume", path.name, "--set", enough)
    assert (run["state"], run["verdict"], run["attempt"]) == ("succeeded", "passed", 2)
    history = fold(read(path / "events.jsonl"))
    assert first_gap(history) is None
    start = [event for event in history if event.key == "started"][-1]
    assert start.step == max(steps_kept(path))
    steps = [event.step for event in history if event.kind == "episode"]
    assert steps == sorted(set(steps))


def test_one_that_ignores_the_signal_is_killed_with_its_children_and_that_is_said(
    desk: Desk,
) -> None:
    (desk.shell.folder / "stubborn.py").write_text(STUBBORN)
    words = "runner.command=[bare/bin/python,stubborn.py]"
    child = desk.shell.start(
        "launch", "-f", "external.yaml", "--yes", words, "runner.stop_grace_s=1", "name=stubborn"
    )
    path: Path = until(lambda: next((desk.shell.home / "runs").glob("stubborn-*"), None))
    until(lambda: "on my way" in (path / "log.txt").read_text())
    assert len(left_of(path)) == 4
    stopped = desk.shell.json("stop", path.name)
    assert stopped["state"] == "stopped"
    assert stopped["reason"] == (
        "its program ignored SIGTERM for 1 s and was killed at step 0; "
        "killed with it: 2 processes that it had started"
    )
    child.communicate(timeout=PATIENCE_S)
    assert left_of(path) == []


def test_a_root_that_is_killed_takes_its_program_with_it(desk: Desk) -> None:
    child, path = desk.launched("train.total_timesteps=1e12", "name=rootless")
    os.kill(pids.pid_of((path / "lock").read_text()), signal.SIGKILL)
    child.communicate(timeout=PATIENCE_S)
    run = orchestrator.connect(desk.shell.home).get(path.name)
    assert run.state == "failed"
    assert "killed with it: 1 process that it had started" in run.reason
    assert left_of(path) == []


def test_a_service_starts_it_again_after_a_kill(desk: Desk) -> None:
    assert desk.shell.run("up", "--port", "0", "--detach", "--spares", "0").returncode == 0
    try:
        spec = ("-f", "external.yaml", "--yes", *FREE, "schedule.backoff_s=0.1", "name=served")
        desk.shell.json("launch", *spec, "train.total_timesteps=1000000", "--detach")
        path: Path = until(lambda: next((desk.shell.home / "runs").glob("served-*"), None))
        until(lambda: steps_kept(path))
        program_of(path).send_signal(signal.SIGKILL)
        run = desk.shell.json("wait", path.name)
    finally:
        desk.shell.run("down")
    assert (run["state"], run["attempt"], run["retries"]) == ("succeeded", 2, 1)
    assert first_gap(fold(read(path / "events.jsonl"))) is None
