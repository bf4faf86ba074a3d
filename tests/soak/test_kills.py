"""Fifty kills of one run at random moments, the writing of checkpoints included."""

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

from rl_orch import orchestrator
from rl_orch.io.checkpoints import catalog, hash_chain
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import fold, read
from rl_orch.records import EventKind, State
from tests.integration.conftest import RESUMED, Shell, until
from tests.waiting import PATIENCE_S

KILLS = 50
LAUNCH = (*RESUMED, "train.total_timesteps=307200")


def worker(shell: Shell) -> int | None:
    """The pid of the run process that trains, if it lives."""
    training = [p.pid for p in shell.run_processes() if "rl_orch.worker.train" in p.cmdline()]
    assert len(training) <= 1
    return training[0] if training else None


def kill_by_chance(shell: Shell, directory: RunDir, chance: random.Random) -> bool:
    """Kill the root while it starts, trains or saves; False if it had ended before."""
    pid: Any = until(lambda: worker(shell))
    if chance.random() < 0.3:
        deadline = time.monotonic() + 10.0
        while time.monotonic() < deadline and not any(directory.checkpoints.glob(".tmp-*")):
            pass
    else:
        time.sleep(chance.uniform(0.0, 8.0))
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def test_fifty_kills_are_told_truly_and_change_nothing(shell: Shell) -> None:
    chance, kills = random.Random(1), 0
    whole = RunDir(Path(shell.json(*LAUNCH, timeout_s=600.0)["path"]))
    child = shell.start(*LAUNCH, "--json")
    found: Any = until(lambda: [p for p in (shell.home / "runs").iterdir() if p != whole.path])
    directory = RunDir(found[0])
    while kills < KILLS and kill_by_chance(shell, directory, chance):
        kills += 1
        child.communicate(timeout=PATIENCE_S)
        connected, asked_at = orchestrator.connect(shell.home), time.monotonic()
        shown = connected.show(directory.path.name).run
        assert time.monotonic() - asked_at < 1.0
        assert shown.state is State.FAILED
        assert "SIGKILL" in shown.reason
        assert shell.processes() == []
        assert_nothing_counted_twice(directory)
        child = shell.start("resume", directory.path.name, "--json")
    out, errors = child.communicate(timeout=900)
    assert json.loads(out)["state"] == "succeeded", errors
    assert kills == KILLS
    assert hash_chain.compare(whole, directory).difference is None
    assert sorted(p.name for p in directory.checkpoints.iterdir()) == sorted(
        p.name for p in whole.checkpoints.iterdir()
    )


def assert_nothing_counted_twice(directory: RunDir) -> None:
    """In the folded stream, steps only rise, and every event of an attempt is there once."""
    events = fold(read(directory.events))
    steps = [event.step for event in events if event.kind is EventKind.METRIC]
    assert steps == sorted(steps)
    named = [(event.attempt, event.seq) for event in events]
    assert len(set(named)) == len(named)
    updates = [e.step for e in events if e.key == "losses/policy_loss"]
    assert len(set(updates)) == len(updates)
    assert all(entry.intact for entry in catalog.listing(directory.checkpoints))
