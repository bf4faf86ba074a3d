"""What `show`, `ls` and the end of a launch read of a long event file: bytes are counted."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rl_orch import orchestrator
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.ports import Task
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import EventWriter
from rl_orch.records import EventKind
from rl_orch.testing import FakeRunner, a_report, a_spec, seal_checkpoint
from tests.conftest import Ran

Rlctl = Callable[..., Ran]
LAST = 6_000
CHECKPOINT = f"step_{LAST:012}"
TAIL = 4_096
"""Bytes of an event file that may be read of one that is indexed: whether it is still the same."""


class CountedReads:
    """Bytes that the main thread has read of event files; trackers read in threads of their own."""

    def __init__(self) -> None:
        self.bytes = 0
        self._pread = os.pread

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        data = self._pread(fd, size, offset)
        is_ours = threading.current_thread() is threading.main_thread()
        if is_ours and os.readlink(f"/proc/self/fd/{fd}").endswith("events.jsonl"):
            self.bytes += len(data)
        return data


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> CountedReads:
    counted = CountedReads()
    monkeypatch.setattr(os, "pread", counted.pread)
    return counted


def long_training(directory: RunDir, task: Task) -> int:
    """A training of many events, and its evaluation."""
    if task.checkpoint is not None:
        directory.write_report("final", a_report([400.0] * 12, checkpoint=task.checkpoint))
        return 0
    with EventWriter(directory.events, run=directory.path.name, attempt=task.attempt) as writer:
        writer.emit(EventKind.STATE, "started", step=0, tags={"after": None})
        tags: dict[str, Any] = {"method": "copied", "reason": "the environment says so"}
        writer.emit(EventKind.STATE, "resume", "approximate", step=0, tags=tags)
        for step in range(1, LAST):
            writer.emit(EventKind.METRIC, "losses/value_loss", 1 / step, step=step)
            if step % 5 == 0:
                tags = {"length": 5, "env": step % 3}
                writer.emit(EventKind.EPISODE, "episode", float(step), step=step, tags=tags)
        report = a_report([400.0] * 12, step=LAST, checkpoint=CHECKPOINT)
        summary = {"summary": report.summary.model_dump(mode="json"), "mean_length": 10.0}
        for step in range(300, LAST + 1, 300):
            writer.emit(EventKind.EVAL, "eval/mean_return", 400.0, step=step, tags=summary)
        directory.write_report(CHECKPOINT, report)
        seal_checkpoint(directory, CHECKPOINT)
        tags = {"best": True, "evaluated": True, "removed": []}
        writer.emit(EventKind.CHECKPOINT, "saved", CHECKPOINT, step=LAST, tags=tags)
        writer.emit(EventKind.STATE, "ended", "trained", step=LAST, tags={"reason": "trained"})
    return 0


def events_of(home: Path) -> Path:
    (file,) = home.glob("runs/*/events.jsonl")
    return file


def test_the_end_of_a_launch_passes_once_over_the_events_and_show_not_at_all(
    rlctl: Rlctl, reads: CountedReads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def script(directory: RunDir, task: Task) -> int:
        if task.checkpoint is not None:
            reads.bytes = 0
        return long_training(directory, task)

    made = Orchestrator(tmp_path / "rlruns", FakeRunner(script))
    with monkeypatch.context() as faked:
        faked.setattr(orchestrator, "connect", lambda *_args, **_kw: made)
        gates = (
            "gates.min_return=1",
            "gates.converged=true",
            "gates.guardrail_clean=true",
            "eval.every=300",
            f"train.total_timesteps={LAST}",
        )
        ran = rlctl("launch", "--env", "x", *gates)
    assert ran.code == 0, ran.err
    assert "approximate: the environment says so" in ran.out
    size = events_of(tmp_path / "rlruns").stat().st_size
    assert 0 < reads.bytes <= size + TAIL

    for words in (["show", "last"], ["show", "last", "--json"], ["compare", "last", "last"]):
        reads.bytes = 0
        ran = rlctl(*words, "--home", "rlruns")
        assert ran.code == 0, ran.err
        assert reads.bytes <= 4 * TAIL, words
    reads.bytes = 0
    assert rlctl("ls", "--home", "rlruns").code == 0
    assert reads.bytes == 0


def test_show_of_a_run_without_an_index_passes_once_over_its_events(
    rlctl: Rlctl, reads: CountedReads, tmp_path: Path
) -> None:
    run = Orchestrator(tmp_path / "rlruns", FakeRunner(long_training)).launch(a_spec()).run
    file = RunDir.of(run).events
    (file.parent / "metrics.db").unlink(missing_ok=True)
    for words, most in ((["show", "last"], file.stat().st_size), (["show", "last", "--json"], 0)):
        reads.bytes = 0
        ran = rlctl(*words, "--home", "rlruns")
        assert ran.code == 0, ran.err
        assert reads.bytes <= most + 4 * TAIL
    document = json.loads(ran.out)
    assert document["exactness"]["reason"] == "the environment says so"
