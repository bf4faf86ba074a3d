"""The pump: a sink may be slow, broken or hung; nobody waits for it and the loss is counted."""

import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rl_orch.io.run.events import EventWriter
from rl_orch.io.trackers import position
from rl_orch.io.trackers.position import Position
from rl_orch.io.trackers.pump import Delivered, Pump, Sink, file_of
from rl_orch.records import Event, EventKind, Run, State
from rl_orch.testing import a_run
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
        self.ends: list[State | None] = []

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

    def close(self, end: Run | None = None) -> None:
        self.closed += 1
        self.ends.append(None if end is None else end.state)

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
    return Pump(run_dir, "memory", lambda: sink, **({"poll_s": 0.001, "retry_s": 0.001} | options))


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
    path, note = tmp_path / "events.jsonl", tmp_path / "sinks" / "memory.json"
    emit(tmp_path, 1)
    pump(tmp_path, Memory(failing_flushes=10**9)).stop(0.05)
    assert position.status(tmp_path, "memory").behind_bytes == path.stat().st_size
    pump(tmp_path, Memory()).stop(PATIENCE_S)
    assert json.loads(note.read_text())["offset"] == path.stat().st_size


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
        def close(self, end: Run | None = None) -> None:
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


@pytest.mark.parametrize(
    "name", ["_mine:T", "m_ü:T", "", "../x", "a/b", ".hidden", "a\0", "..", "%2E", "m" * 300 + ":T"]
)
def test_a_sink_of_any_name_notes_its_position_in_its_folder(tmp_path: Path, name: str) -> None:
    emit(tmp_path, 1)
    assert Pump(tmp_path, name, Memory).stop(PATIENCE_S) == Delivered(written=1, dropped=0)
    (noted,) = position.noted_trackers(tmp_path)
    assert noted == name or not 0 < len(name) <= 200
    assert position.note_file(tmp_path, noted) == position.note_file(tmp_path, name)
    assert position.note_file(tmp_path, name).parent == tmp_path / "sinks"
    assert {each.name for each in tmp_path.iterdir()} == {"events.jsonl", "sinks"}
    assert position.status(tmp_path, name).behind_bytes == 0


def test_a_sink_of_a_plain_name_has_its_note_under_that_name(tmp_path: Path) -> None:
    names = ["tensorboard", "mine.trackers:T", "my-tracker_2"]
    files = [position.note_file(tmp_path, name).name for name in names]
    assert files == [f"{name}.json" for name in names]


def ended(run_dir: Path) -> Run:
    return a_run(run_dir).model_copy(update={"state": State.SUCCEEDED})


def test_a_sink_that_cannot_be_opened_at_first_misses_nothing(tmp_path: Path) -> None:
    sink, refusals = Memory(), [PermissionError("closed"), OSError("still closed")]

    def opened() -> Sink:
        if refusals:
            raise refusals.pop()
        return sink

    emit(tmp_path, 1, 2)
    running = Pump(tmp_path, "memory", opened, poll_s=0.001, retry_s=0.001)
    assert sink.flushed.wait(PATIENCE_S)
    assert running.stop(PATIENCE_S) == Delivered(written=2, dropped=0)
    assert sink.taken == [1, 2]


def test_the_position_of_a_sink_that_never_opened_does_not_move(tmp_path: Path) -> None:
    def refused() -> Sink:
        raise PermissionError("closed")

    emit(tmp_path, 1, 2)
    running = Pump(tmp_path, "memory", refused, once=True)
    until(lambda: running.done)
    assert running.stop() == Delivered(0, 2, "PermissionError: closed")
    behind = position.status(tmp_path, "memory")
    assert behind.behind_bytes == (tmp_path / "events.jsonl").stat().st_size
    assert behind.error == "PermissionError: closed"
    sink = Memory()
    assert pump(tmp_path, sink).stop(PATIENCE_S) == Delivered(written=2, dropped=0)
    assert position.status(tmp_path, "memory").error is None


def test_a_sink_is_told_of_the_end_once_and_of_no_end_while_the_run_goes_on(
    tmp_path: Path,
) -> None:
    first, second = Memory(), Memory()
    emit(tmp_path, 1)
    pump(tmp_path, first).stop(PATIENCE_S)
    assert (first.ends, position.status(tmp_path, "memory").told_end) == ([None], False)
    running = pump(tmp_path, second)
    running.finish(ended(tmp_path))
    assert running.stop(PATIENCE_S).error is None
    assert (second.ends, position.status(tmp_path, "memory").told_end) == ([State.SUCCEEDED], True)


def test_an_end_that_a_sink_did_not_take_is_told_again(tmp_path: Path) -> None:
    class Stuck(Memory):
        def close(self, end: Run | None = None) -> None:
            raise OSError("cannot close")

    emit(tmp_path, 1)
    running = pump(tmp_path, Stuck())
    running.finish(ended(tmp_path))
    running.stop(PATIENCE_S)
    assert position.status(tmp_path, "memory").is_behind


def test_two_pumps_of_one_name_do_not_deliver_at_once(tmp_path: Path) -> None:
    first, second = Memory(), Memory()
    emit(tmp_path, 1)
    holder = pump(tmp_path, first)
    assert first.flushed.wait(PATIENCE_S)
    note, end = tmp_path / "sinks" / "memory.json", (tmp_path / "events.jsonl").stat().st_size
    until(lambda: position.read(note).offset == end)
    before = note.read_bytes()
    other = pump(tmp_path, second, once=True)
    until(lambda: other.done)
    lacking = other.stop()
    assert "BlockingIOError" in str(lacking.error)
    assert (lacking.dropped, note.read_bytes()) == (0, before)
    holder.stop(PATIENCE_S)
    assert (first.taken, second.taken) == ([1], [])


def test_a_pump_that_waits_for_its_place_goes_on_where_the_other_one_left(tmp_path: Path) -> None:
    first, second = Memory(), Memory()
    emit(tmp_path, 1)
    holder = pump(tmp_path, first)
    assert first.flushed.wait(PATIENCE_S)
    waiting = pump(tmp_path, second)
    until(lambda: waiting._error is not None)
    holder.stop(PATIENCE_S)
    emit(tmp_path, 2)
    assert second.flushed.wait(PATIENCE_S)
    assert waiting.stop(PATIENCE_S) == Delivered(written=1, dropped=0)
    assert (first.taken, second.taken) == ([1], [2])


def test_positions_that_threads_note_at_once_are_whole(tmp_path: Path) -> None:
    note, names = tmp_path / "sinks" / "memory.json", set()
    replace = os.replace

    def seen(source: Path, target: Path) -> None:
        names.add(source.name)
        replace(source, target)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "replace", seen)
        threads = [
            threading.Thread(target=position.write, args=(note, Position(n), None)) for n in (1, 2)
        ]
        barrier = threading.Barrier(2)
        patched.setattr(json, "dumps", together(barrier, json.dumps))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(names) == 2


def together(barrier: threading.Barrier, act: Callable[..., str]) -> Callable[..., str]:
    """The same act, once all are there."""

    def waited(*arguments: Any) -> str:
        barrier.wait(PATIENCE_S)
        return act(*arguments)

    return waited


def test_a_position_that_cannot_be_noted_is_told(tmp_path: Path) -> None:
    (tmp_path / "sinks").write_text("a file where the folder belongs")
    emit(tmp_path, 1)
    delivered = pump(tmp_path, Memory()).stop(PATIENCE_S)
    assert delivered.written == 1
    assert delivered.error is not None
    assert "not noted" in delivered.error


def test_a_pump_without_a_name_notes_nothing_and_begins_near_the_end(tmp_path: Path) -> None:
    sink = Memory()
    emit(tmp_path, *range(10_000))
    delivered = Pump(tmp_path, None, lambda: sink).stop(PATIENCE_S)
    assert not (tmp_path / "sinks").exists()
    assert delivered.dropped == 0
    assert sink.taken == list(range(sink.taken[0], 10_000))
    assert sink.taken[0] > 0


@pytest.mark.parametrize(
    ("kind", "value", "there"),
    [
        ("checkpoint", "step_1", True),
        ("artifact", "videos/final.mp4", True),
        ("artifact", "../outside", False),
        ("artifact", "gone", False),
        ("artifact", {"odd": 1}, False),
        ("metric", "checkpoints", False),
    ],
)
def test_an_event_of_a_file_says_where_it_is(
    tmp_path: Path, kind: str, value: Any, there: bool
) -> None:
    folder = tmp_path / "run"
    for path in (folder / "checkpoints" / "step_1", folder / "videos" / "final.mp4"):
        path.mkdir(parents=True)
    (tmp_path / "outside").touch()
    event = Event(
        seq=1, attempt=1, ts=0.0, run="run", step=0, kind=EventKind(kind), key="k", value=value
    )
    found = file_of(a_run(folder), event)
    assert (found is not None and found.is_dir()) == there
