"""Children that play, and what is left when one of them dies."""

import signal
import sys
from pathlib import Path

import pytest

from rl_orch.core.policies import player_pool
from rl_orch.core.policies.player_pool import EvalWorkers
from rl_orch.errors import RlctlError
from rl_orch.records.tasks import EvaluateTask, PolicyFiles


def program(path: Path, lines: str) -> str:
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o700)
    return str(path)


def test_children_that_end_at_once_are_told_of_by_what_they_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", program(tmp_path / "it", "echo no room >&2; exit 3"))
    long = PolicyFiles(checkpoint="x" * 200_000)  # More than a pipe holds.
    with player_pool.playing(2) as both:
        children = list(both.children)
        with pytest.raises(RlctlError, match="ended with exit code 3: no room"):
            both.play(EvaluateTask(challenger=long, seed=1), 0, 10, lambda done: None)
    assert not any(child.worker.lives for child in children)


def test_all_children_are_ended_though_the_first_has_died_with_text_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = EvalWorkers()
    for name, lines in (("dead", "exit 3"), ("alive", "exec sleep 60")):
        monkeypatch.setattr(sys, "executable", program(tmp_path / name, lines))
        both.children.append(player_pool._started())
    dead, alive = (child.worker._child for child in both.children)
    dead.wait()
    dead.send("nobody reads this")
    both.end()
    assert (dead.poll(), alive.poll()) == (3, -signal.SIGTERM)
    assert both.children == []
    for child in (dead, alive):
        child.close()
