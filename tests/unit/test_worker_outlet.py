"""What the worker keeps of a training, and the orders that it takes."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from rl_orch.io.checkpoints import catalog, checkpoint_files
from rl_orch.io.checkpoints.checkpoint_retention import CheckpointRetention
from rl_orch.io.run import events
from rl_orch.io.run.command_socket import COMMANDS, Request
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import EventWriter
from rl_orch.records import EvalReport, EventKind
from rl_orch.rl.snapshot import TrainingSnapshot
from rl_orch.testing import a_report, a_spec
from rl_orch.worker.attempt.commands import PendingCommands
from rl_orch.worker.attempt.recorder import FileRecorder


@pytest.fixture
def directory(tmp_path: Path) -> RunDir:
    made = RunDir(tmp_path / "run")
    made.create(a_spec(), {"run_id": "run"})
    return made


@pytest.fixture
def orders() -> PendingCommands:
    return PendingCommands()


def an_outlet(directory: RunDir, orders: PendingCommands, *, keep_last: int = 3) -> FileRecorder:
    """An recorder of the first attempt."""
    writer = EventWriter(directory.events, run="run", attempt=1)
    exact = {"level": "bitwise", "method": "captured", "reason": None, "pure_reset": True}
    meta = {"run_id": "run", "attempt": 1, "resume": exact}
    spec = a_spec(f"checkpoint.keep_last={keep_last}")
    return FileRecorder(directory, spec, writer, orders, meta=meta, kept=CheckpointRetention())


def a_snapshot(step: int) -> TrainingSnapshot:
    document: dict[str, Any] = {"trainer_state": {}, "replay_meta": {}, "rng_state": {}}
    return TrainingSnapshot({"policy/w": np.zeros(1)}, document, step=step)


def test_what_the_registry_needs_outlives_what_training_keeps(
    directory: RunDir, orders: PendingCommands
) -> None:
    recorder = an_outlet(directory, orders, keep_last=1)
    recorder.save(a_snapshot(1), None)
    directory.pin([catalog.name_of(1)])
    for step in (2, 3):
        recorder.save(a_snapshot(step), None)
    assert catalog.all_names(directory.checkpoints) == [catalog.name_of(1), catalog.name_of(3)]
    directory.pin([])
    recorder.save(a_snapshot(4), None)
    assert catalog.all_names(directory.checkpoints) == [catalog.name_of(4)]


def test_stop_beats_whatever_was_ordered_before_it(orders: PendingCommands) -> None:
    for name in ("checkpoint", "pause", "stop"):
        orders.give(name)
    assert orders.next() == "stop"


def test_stop_is_not_forgotten(orders: PendingCommands) -> None:
    orders.give("stop")
    assert [orders.next(), orders.next()] == ["stop", "stop"]


def test_one_checkpoint_waits_however_often_it_was_ordered(orders: PendingCommands) -> None:
    orders.give("checkpoint")
    orders.give("checkpoint")
    assert [orders.next(), orders.next()] == ["checkpoint", None]


def test_a_paused_loop_waits_until_it_may_go_on(orders: PendingCommands) -> None:
    orders.give("pause")
    with after(0.1, lambda: orders.give("unpause")):
        assert orders.next() is None


def test_a_signal_reaches_a_loop_that_is_paused(orders: PendingCommands) -> None:
    orders.give("pause")
    with after(0.1, lambda: orders.give("stop")):
        assert orders.next() == "stop"


def test_every_command_of_the_socket_is_accepted(orders: PendingCommands) -> None:
    for name in COMMANDS:
        if name not in ("set", "load"):  # Which take arguments: test_live_changes.py.
            assert orders.handle(Request(name, {})) == {"accepted": name}
    assert orders.next() == "stop"


@pytest.mark.parametrize("evaluated", [False, True])
def test_a_checkpoint_knows_the_last_event_before_it(
    directory: RunDir, orders: PendingCommands, evaluated: bool
) -> None:
    recorder = an_outlet(directory, orders)
    recorder.emit(EventKind.METRIC, "losses/value_loss", 1.0, step=16)
    recorder.save(a_snapshot(16), a_report([1.0]) if evaluated else None)
    saved = list(events.read(directory.events))[-1]
    assert (saved.key, saved.tags["evaluated"]) == ("saved", evaluated)
    meta = checkpoint_files.load(directory.checkpoints / str(saved.value)).document["meta"]
    assert (meta["seq"], meta["saved"]) == (saved.seq - 1, saved.tags)


def test_a_checkpoint_holds_the_report_that_was_made_of_it(
    directory: RunDir, orders: PendingCommands
) -> None:
    recorder, report, name = an_outlet(directory, orders), a_report([1.0]), "step_000000000016"
    recorder.save(a_snapshot(16), report)
    meta = checkpoint_files.load(directory.checkpoints / name).document["meta"]
    named = report.model_copy(update={"checkpoint": name})
    assert EvalReport.model_validate(meta["report"]) == named
    directory.report_file(name).unlink()
    recorder.announce(name, 16, meta)
    assert directory.read_report(name) == named


def test_the_newest_and_the_best_outlive_the_others(
    directory: RunDir, orders: PendingCommands
) -> None:
    recorder = an_outlet(directory, orders, keep_last=2)
    for step, mean in ((1, 5.0), (2, 9.0), (3, 1.0), (4, None), (5, 2.0)):
        recorder.save(a_snapshot(step), None if mean is None else a_report([mean]))
    told = [event.tags for event in events.read(directory.events)]
    assert [tags["best"] for tags in told] == [True, True, False, False, False]
    removed = [name for tags in told for name in tags["removed"]]
    assert [int(name[-1]) for name in removed] == [1, 3]
    assert [entry.step for entry in catalog.listing(directory.checkpoints)] == [2, 4, 5]


def test_whoever_goes_on_from_a_checkpoint_keeps_what_the_attempt_before_would_have(
    directory: RunDir, orders: PendingCommands
) -> None:
    recorder = an_outlet(directory, orders, keep_last=2)
    for step in (1, 2, 3):
        recorder.save(a_snapshot(step), a_report([float(step == 1)]))
    kept = CheckpointRetention.of(
        checkpoint_files.load(directory.checkpoints / "step_000000000003").document["meta"]
    )
    assert kept == CheckpointRetention(
        ("step_000000000001", "step_000000000002", "step_000000000003"), "step_000000000001", 1.0
    )
    assert kept.after_evaluation("step_000000000004", None, last=2).names == (
        "step_000000000001",
        "step_000000000003",
        "step_000000000004",
    )


def test_a_doubt_is_told_once_and_is_in_every_checkpoint_that_follows(
    directory: RunDir, orders: PendingCommands
) -> None:
    recorder = an_outlet(directory, orders)
    for reason in ("it cannot be copied", "another one"):
        recorder.mark_inexact(reason, step=8)
    recorder.save(a_snapshot(16), None)
    told = [event for event in events.read(directory.events) if event.key == "resume"]
    assert [(event.value, event.tags["reason"]) for event in told] == [
        ("approximate", "it cannot be copied")
    ]
    meta = checkpoint_files.load(directory.checkpoints / "step_000000000016").document["meta"]
    assert (meta["resume"]["level"], meta["resume"]["reason"]) == (
        "approximate",
        "it cannot be copied",
    )


def test_of_two_that_are_as_good_the_newer_is_the_best() -> None:
    kept = CheckpointRetention().after_evaluation("step_000000000001", 1.0, last=3)
    assert kept.after_evaluation("step_000000000002", 1.0, last=3).best == "step_000000000002"


@contextmanager
def after(seconds: float, action: Callable[[], None]) -> Iterator[None]:
    """Carry something out in a signal handler, a little later."""

    def handler(_number: int, _frame: FrameType | None) -> None:
        action()

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
