"""The pump: a sink may be slow, broken or hung; nobody waits for it and the loss is counted."""

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rl_orch.errors import BadInput
from rl_orch.io.run.events import EventWriter
from rl_orch.io.trackers.pump import Delivered, Pump, Sink
from rl_orch.records import Event
from tests.integration.conftest import until
from tests.waiting import PATIENCE_S


class Memory:
    """A sink that remembers, and that fails as often as it is told to."""

    def __init__(self, failing_writes: int = 0, failing_flushes: int = 0) -> None:
        self.failing_writes = failing_writes
        self.failing_flushes = failing_flushes
        self.taken: list[Any] = []
        self.flushed = threading.Event()
        self.failed = threading.Event()
        self.failures = 0
        self.closed = 0

    def write(self, batch: Sequence[Event]) -> None:
        if self.failing_writes:
            self.failing_writes -= 1
            self._fail()
        self.taken += [event.value for event in batch]

    def flush(self) -> None:
        if self.failing_flushes:
            self.failing_flushes -= 1
            self._fail()
        self.flushed.set()

    def close(self) -> None:
        self.closed += 1

    def _fail(self) -> None:
        self.failures += 1
        self.failed.set()
        raise ConnectionError("backend is down")


class Hanging(Memory):
    """A sink that never returns from a write, until the test ends."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.released = threading.Event()

    def write(self, batch: Sequence[Event]) -> None:
        self.entered.set()
        self.released.wait(PATIENCE_S)


def emit(run_dir: Path, *values: Any, attempt: int = 1) -> None:
    with EventWriter(run_dir / "events.jsonl", run="r1", attempt=attempt) as log:
        for value in values:
            log.emit("metric", "k", value, step=0)


def pump(run_dir: Path, sink: Sink, **options: Any) -> Pump:
    return Pump(run_dir, "memory", sink, **({"poll_s": 0.001, "retry_s": 0.001} | options))


def test_every_event_reaches_the_sink_in_order(tmp_path: Path) -> None:
    sink = Memory()
    emit(tmp_path, *range(1000))
    assert pump(tmp_path, sink).stop(PATIENCE_S) == Delivered(written=1000, dropped=0)
    assert sink.taken == list(range(1000))
    assert sink.closed == 1


def test_events_are_delivered_while_the_run_goes_on(tmp_path: Path) -> None:
    sink = Memory()
    running = pump(tmp_path, sink)
    emit(tmp_path, 1)
    assert sink.flushed.wait(PATIENCE_S)
    assert sink.taken == [1]
    assert running.stop(PATIENCE_S).written == 1


def test_the_next_pump_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    first, second = Memory(), Memory()
    emit(tmp_path, 1, 2)
    pump(tmp_path, first).stop(PATIENCE_S)
    emit(tmp_path, 3)
    assert pump(tmp_path, second).stop(PATIENCE_S) == Delivered(written=1, dropped=0)
    assert (first.taken, second.taken) == ([1, 2], [3])


@pytest.mark.parametrize("note", [b"", b"[]", b'{"offset":-3,"attempt":1}', b'{"offset":"x"}'])
def test_a_note_that_cannot_be_read_means_from_the_beginning(tmp_path: Path, note: bytes) -> None:
    (tmp_path / "sinks").mkdir()
    (tmp_path / "sinks" / "memory.json").write_bytes(note)
    emit(tmp_path, 1)
    assert pump(tmp_path, Memory()).stop(PATIENCE_S).written == 1


def test_the_position_is_noted_only_after_a_flush(tmp_path: Path) -> None:
    note = tmp_path / "sinks" / "memory.json"
    emit(tmp_path, 1)
    pump(tmp_path, Memory(failing_flushes=10**9)).stop(0.05)
    assert not note.exists()
    pump(tmp_path, Memory()).stop(PATIENCE_S)
    assert json.loads(note.read_text())["offset"] == (tmp_path / "events.jsonl").stat().st_size


def test_a_sink_that_fails_for_a_while_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    sink = Memory(failing_writes=3, failing_flushes=2)
    emit(tmp_path, 1, 2, 3)
    running = pump(tmp_path, sink)
    assert sink.flushed.wait(PATIENCE_S)
    assert running.stop(PATIENCE_S) == Delivered(written=3, dropped=0)
    assert sink.taken == [1, 2, 3]
    assert sink.failures == 5


def test_a_sink_that_always_fails_is_given_up_and_the_loss_counted(tmp_path: Path) -> None:
    sink = Memory(failing_writes=10**9)
    emit(tmp_path, *range(1000))
    running = pump(tmp_path, sink, longest_retry_s=60.0)
    until(lambda: sink.failures > 1)  # What it said the first time is known by then.
    delivered = running.stop(0.05)
    assert delivered == Delivered(0, 1000, "ConnectionError: backend is down")


def test_a_long_wait_before_the_next_try_does_not_delay_the_end(tmp_path: Path) -> None:
    sink = Memory(failing_writes=1)
    emit(tmp_path, 1)
    running = pump(tmp_path, sink, retry_s=3600.0)
    assert sink.failed.wait(PATIENCE_S)
    assert running.stop(PATIENCE_S) == Delivered(written=1, dropped=0)


def test_a_sink_that_hangs_is_left_behind_and_the_loss_counted(tmp_path: Path) -> None:
    sink = Hanging()
    emit(tmp_path, *range(700))
    running = pump(tmp_path, sink)
    assert sink.entered.wait(PATIENCE_S)
    assert running.stop(0.05) == Delivered(0, 700, "the sink was not done within 0.05 s")
    sink.released.set()


def test_a_sink_that_exits_the_program_is_a_failing_sink(tmp_path: Path) -> None:
    class Exiting(Memory):
        def write(self, batch: Sequence[Event]) -> None:
            self.failures += 1
            raise SystemExit(3)

    sink = Exiting()
    emit(tmp_path, 1)
    running = pump(tmp_path, sink)
    until(lambda: sink.failures > 1)
    assert running.stop(0.05) == Delivered(0, 1, "SystemExit: 3")


def test_a_sink_that_cannot_close_is_an_error_without_a_loss(tmp_path: Path) -> None:
    class Stuck(Memory):
        def close(self) -> None:
            raise OSError("cannot close")

    emit(tmp_path, 1)
    assert pump(tmp_path, Stuck()).stop(PATIENCE_S) == Delivered(1, 0, "OSError: cannot close")


def test_a_run_without_events_delivers_nothing(tmp_path: Path) -> None:
    assert pump(tmp_path, Memory()).stop(PATIENCE_S) == Delivered(0, 0)


def test_an_event_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").mkdir()
    delivered = pump(tmp_path, Memory()).stop(PATIENCE_S)
    assert delivered.error is not None
    assert "it is a folder, not a file" in delivered.error


def test_late_events_of_a_superseded_attempt_are_left_out_even_by_the_next_pump(
    tmp_path: Path,
) -> None:
    first, second = Memory(), Memory()
    emit(tmp_path, "first", attempt=1)
    with EventWriter(tmp_path / "events.jsonl", run="r1", attempt=2) as log:
        log.emit("state", "started", step=0, tags={"after": None})
        log.emit("metric", "k", "second", step=1)
    pump(tmp_path, first).stop(PATIENCE_S)
    emit(tmp_path, "late", attempt=1)
    assert pump(tmp_path, second).stop(PATIENCE_S) == Delivered(written=0, dropped=0)
    assert first.taken == ["first", None, "second"]
    assert second.taken == []


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a\0", "..", "ü"])
def test_a_sink_is_never_named_outside_its_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match="cannot be named"):
        Pump(tmp_path, name, Memory())
