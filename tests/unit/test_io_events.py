"""The event file: what is written is read, torn lines cost one line, and attempts fold into one."""

import errno
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_orch.errors import RlctlError
from rl_orch.io.run import events
from rl_orch.io.run.events import EventWriter, OneHistory, fold, folded, read, tail
from rl_orch.records import Event, EventKind


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "läuft hier" / "events.jsonl"


def writer(path: Path, attempt: int = 1) -> EventWriter:
    path.parent.mkdir(exist_ok=True)
    return EventWriter(path, run="r1", attempt=attempt, clock=lambda: 12.5)


def emit_three(path: Path) -> list[Event]:
    with writer(path) as log:
        return [log.emit("metric", f"k{i}", i, step=i) for i in range(3)]


def test_what_was_emitted_is_read_back_in_order(path: Path) -> None:
    emitted = emit_three(path)
    assert list(read(path)) == emitted
    assert [event.seq for event in emitted] == [1, 2, 3]


def test_a_line_has_the_fields_of_an_event_in_a_fixed_order_and_no_spaces(path: Path) -> None:
    with writer(path) as log:
        log.emit(EventKind.EPISODE, "episode", 21.0, step=7, tags={"length": 200, "env": 3})
    assert path.read_bytes() == (
        b'{"v":1,"seq":1,"attempt":1,"ts":12.5,"run":"r1","step":7,"kind":"episode",'
        b'"key":"episode","value":21.0,"tags":{"env":3,"length":200}}\n'
    )


def test_equal_values_give_equal_bytes_whatever_order_their_keys_had(tmp_path: Path) -> None:
    for name, value in (
        ("a", {"x": 1, "y": {"p": 1, "q": 2}}),
        ("b", {"y": {"q": 2, "p": 1}, "x": 1}),
    ):
        with writer(tmp_path / name / "e") as log:
            log.emit("eval", "report", value, step=0)
    assert (tmp_path / "a" / "e").read_bytes() == (tmp_path / "b" / "e").read_bytes()


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (np.float32("nan"), "NaN"),
        (np.longdouble("inf"), "Infinity"),
        (np.float32(0.5), 0.5),
        (np.float64(0.1), 0.1),
        (np.int64(2**62), 2**62),
        (2**63, 2**63),
        (np.bool_(True), True),
        (EventKind.LOG, "log"),
        (np.array([1.0, math.inf]), [1.0, "Infinity"]),
        (
            {"deep": [(math.nan, {"x": np.float32("-inf")})]},
            {"deep": [["NaN", {"x": "-Infinity"}]]},
        ),
        ({3: None}, {"3": None}),
        ("ünï \u2028 \x00 \n", "ünï \u2028 \x00 \n"),
        ("half a pair \ud800", "half a pair ?"),
    ],
)
def test_a_value_is_stored_in_plain_json(path: Path, value: Any, stored: Any) -> None:
    with writer(path) as log:
        event = log.emit("metric", "k", value, step=0, tags={"same": value})
    assert event.value == stored
    assert type(event.value) is type(stored)
    assert event.tags == {"same": stored}
    assert list(read(path)) == [event]
    json.loads(path.read_bytes(), parse_constant=lambda text: pytest.fail(f"{text} is not JSON"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@settings(max_examples=40, deadline=None)
@given(JSON, st.dictionaries(st.text(), JSON, max_size=3), st.text())
def test_any_json_value_is_read_as_it_was_emitted(value: Any, tags: Any, key: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.jsonl"
        with writer(path) as log:
            event = log.emit("log", key, value, step=0, tags=tags)
        assert list(read(path)) == [event]


@pytest.mark.parametrize("bad", [object(), {1, 2}, 1j, np.clongdouble(1j), np.datetime64(1, "s")])
def test_a_value_json_cannot_hold_is_refused_and_leaves_no_trace(path: Path, bad: Any) -> None:
    with writer(path) as log:
        with pytest.raises((TypeError, ValueError)):
            log.emit("metric", "k", bad, step=0)
        assert log.emit("metric", "k", 1, step=0).seq == 1
    assert len(list(read(path))) == 1


def test_a_negative_step_is_refused(path: Path) -> None:
    with writer(path) as log, pytest.raises(ValueError, match="has step -1; a step is 0 or more"):
        log.emit("metric", "k", 1, step=-1)


def test_a_value_that_a_reader_would_pass_over_is_refused(path: Path) -> None:
    nested: list[Any] = []
    for _ in range(300):
        nested = [nested]
    with writer(path) as log:
        with pytest.raises(ValueError, match="deeper"):
            log.emit("log", "k", nested, step=0)
        with pytest.raises(ValueError, match="at most"):
            log.emit("log", "k", "x" * events.LINE_BYTES, step=0)
    assert path.read_bytes() == b""


def test_a_copy_of_the_process_writes_nothing(path: Path) -> None:
    with writer(path) as log:
        first = log.emit("metric", "k", 1.0, step=1)
        child = os.fork()
        if child == 0:
            log.emit("metric", "k", 2.0, step=2)
            log.flush()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        second = log.emit("metric", "k", 3.0, step=3)
    assert list(read(path)) == [first, second]


def test_a_value_that_nests_too_deep_is_no_event(path: Path) -> None:
    first = emit_three(path)
    event = first[-1].model_copy(update={"seq": 4}).model_dump(mode="json") | {"value": 0}
    line = json.dumps(event).replace('"value": 0', f'"value": {"[" * 120}NaN{"]" * 120}')
    with path.open("a") as file:
        file.write(f"{line}\n")
    assert tail(path, 0).events == tuple(first)


def test_a_torn_line_is_skipped_and_the_next_one_read(path: Path) -> None:
    first = emit_three(path)
    with path.open("ab") as file:
        file.write(b'{"v":1,"seq":4,"att')
    with writer(path, attempt=2) as log:
        after = log.emit("metric", "k", 1, step=9)
    reader = read(path)
    assert list(reader) == [*first, after]
    assert reader.skipped == 1


FOREIGN = [
    b"not json",
    b"{}",
    b"[1,2]",
    b"null",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"v":2,"seq":1,"attempt":1,"ts":1,"run":"r","step":0,"kind":"metric","key":"k"}',
    b'{"v":1,"seq":1,"attempt":1,"ts":1,"run":"r","step":-1,"kind":"metric","key":"k"}',
    b'{"v":1,"seq":0,"attempt":1,"ts":1,"run":"r","step":0,"kind":"metric","key":"k"}',
    b'{"v":1,"seq":1,"attempt":1,"ts":NaN,"run":"r","step":0,"kind":"metric","key":"k"}',
    b'{"v":1,"seq":1,"attempt":1,"ts":1,"run":"r","step":0,"kind":"gossip","key":"k"}',
]


def test_foreign_lines_are_skipped_and_counted(path: Path) -> None:
    emitted = emit_three(path)
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"".join(line + b"\n" for line in [*FOREIGN, *lines, *FOREIGN]))
    reader = read(path)
    assert list(reader) == emitted
    assert reader.skipped == 2 * len(FOREIGN)


@pytest.mark.parametrize("spelled", [b"1e400", b"Infinity"])
def test_a_foreign_number_that_is_not_finite_is_read_as_its_word(
    path: Path, spelled: bytes
) -> None:
    path.parent.mkdir()
    path.write_bytes(
        b'{"seq":1,"attempt":1,"ts":1,"run":"r","step":0,"kind":"metric","key":"k",'
        b'"value":%b,"tags":{"x":[-%b]}}\n' % (spelled, spelled)
    )
    (event,) = read(path)
    assert (event.value, event.tags) == ("Infinity", {"x": ["-Infinity"]})


def test_a_missing_file_is_empty(path: Path) -> None:
    assert list(read(path)) == []
    assert tail(path, 7) == events.Tail((), 7)


def test_a_tail_never_ends_within_a_line(path: Path) -> None:
    emitted = emit_three(path)
    whole = path.read_bytes()
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        first = tail(path, 0)
        assert first.offset == whole[:size].rfind(b"\n") + 1
        path.write_bytes(whole)
        assert first.events + tail(path, first.offset).events == tuple(emitted)


def test_a_tail_stops_after_the_count_asked_for(path: Path) -> None:
    emitted = emit_three(path)
    first = tail(path, 0, count=2)
    assert first.events == tuple(emitted[:2])
    assert tail(path, first.offset, count=2).events == tuple(emitted[2:])


def test_a_tail_reads_a_bounded_number_of_bytes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emitted = emit_three(path)
    monkeypatch.setattr(events, "TAIL_BYTES", path.stat().st_size - 1)
    assert tail(path, 0).events == tuple(emitted[:2])
    assert list(read(path)) == emitted


def test_a_line_without_an_end_is_passed_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "TAIL_BYTES", 1000)
    path.parent.mkdir()
    path.write_bytes(b"x" * 2500 + b"\n")
    with writer(path) as log:
        event = log.emit("metric", "k", 1, step=0)
    reader = read(path)
    assert list(reader) == [event]
    assert reader.skipped == 1


def test_nothing_is_lost_when_a_writer_is_killed_after_a_flush(path: Path) -> None:
    path.parent.mkdir()
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from rl_orch.io.run.events import EventWriter\n"
        "log = EventWriter(Path(sys.argv[1]), run='r1', attempt=1)\n"
        "for i in range(500): log.emit('metric', 'k', i, step=i)\n"
        "log.flush()\n"
        "log.emit('metric', 'lost', 1, step=500)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert [event.value for event in read(path)] == list(range(500))


def test_each_flush_is_one_append_of_whole_lines(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended: list[bytes] = []
    real = os.write

    def write(fd: int, data: bytes) -> int:
        appended.append(bytes(data))
        return real(fd, data)

    with writer(path) as log:
        monkeypatch.setattr(os, "write", write)
        for step in range(2000):
            log.emit("metric", "k", step, step=step)
        log.flush()
    assert len(appended) > 2
    assert all(data.endswith(b"\n") for data in appended)
    assert len(list(read(path))) == 2000


def test_a_full_disk_is_a_clear_error_and_the_rest_follows_when_there_is_room(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write

    def full(fd: int, data: bytes) -> int:
        if len(data) > 20:
            return real(fd, bytes(data[:20]))
        raise OSError(errno.ENOSPC, "No space left on device")

    with writer(path) as log:
        emitted = [log.emit("metric", "k", i, step=i) for i in range(3)]
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(RlctlError, match=r"events\.jsonl: No space left on device"):
            log.flush()
        monkeypatch.undo()
        log.flush()
    assert list(read(path)) == emitted


def test_many_threads_may_emit(path: Path) -> None:
    with writer(path) as log:
        threads = [
            threading.Thread(
                target=lambda: [log.emit("metric", "k", i, step=i) for i in range(300)]
            )
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        log.sync()
    assert [event.seq for event in read(path)] == list(range(1, 1201))


def test_a_closed_writer_says_so(path: Path) -> None:
    log = writer(path)
    log.close()
    log.close()
    with pytest.raises(ValueError, match="is closed"):
        log.emit("metric", "k", 1, step=0)


def event(attempt: int, seq: int, after: Any = None, *, start: bool = False) -> Event:
    return Event(
        seq=seq,
        attempt=attempt,
        ts=0.0,
        run="r1",
        step=seq,
        kind=EventKind.STATE if start else EventKind.METRIC,
        key="started" if start else "k",
        tags={"after": after} if start else {},
    )


def attempt_of(number: int, count: int, after: Any = None) -> list[Event]:
    return [event(number, 1, after, start=True), *(event(number, s) for s in range(2, count + 1))]


def position(of: Event) -> tuple[int, int]:
    return of.attempt, of.seq


def test_a_single_attempt_folds_to_itself() -> None:
    assert fold(attempt_of(1, 5)) == attempt_of(1, 5)
    assert fold([]) == []


def test_a_resumed_attempt_supersedes_what_came_after_its_checkpoint() -> None:
    first, second = attempt_of(1, 9), attempt_of(2, 4, {"attempt": 1, "seq": 6})
    assert fold([*first, *second]) == [*first[:6], *second]


def test_an_attempt_from_scratch_supersedes_all_before() -> None:
    assert fold([*attempt_of(1, 9), *attempt_of(2, 2)]) == attempt_of(2, 2)


def test_an_attempt_may_continue_one_that_is_not_the_last() -> None:
    first = attempt_of(1, 9)
    second = attempt_of(2, 5, {"attempt": 1, "seq": 8})
    third = attempt_of(3, 2, {"attempt": 1, "seq": 4})
    assert fold([*first, *second, *third]) == [*first[:4], *third]


def test_a_late_event_of_a_superseded_attempt_is_dropped_even_if_its_number_is_low() -> None:
    start, then = attempt_of(2, 2, {"attempt": 1, "seq": 6})
    early = attempt_of(1, 3)
    assert fold([*early, start, event(1, 4), then, event(1, 9)]) == [*early, start, then]


@pytest.mark.parametrize(
    "after", ["x", 3, {}, {"attempt": 2, "seq": 1}, {"attempt": 9, "seq": 1}, {"attempt": "1"}]
)
def test_a_start_that_names_no_earlier_attempt_continues_nothing(after: Any) -> None:
    assert fold([*attempt_of(1, 3), *attempt_of(2, 3, after)]) == attempt_of(2, 3, after)


def test_events_without_any_start_are_kept() -> None:
    assert fold([event(1, 1), event(1, 2)]) == [event(1, 1), event(1, 2)]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Event], list[tuple[int, int]]]:
    """A file as attempts write it, with stragglers, and the history a trainer would tell.

    The model holds the history as a list: to resume is to cut it after a position in it.
    """
    file: list[Event] = []
    history: list[tuple[int, int]] = []
    for number in range(1, draw(st.integers(1, 5)) + 1):
        after = draw(st.none() | st.sampled_from(history)) if history else None
        history = history[: history.index(after) + 1] if after else []
        tag = {"attempt": after[0], "seq": after[1]} if after else None
        for own in attempt_of(number, draw(st.integers(1, 6)), tag):
            file.append(own)
            history.append(position(own))
            if number > 1 and draw(st.integers(0, 3)) == 0:
                file.append(event(draw(st.integers(1, number - 1)), draw(st.integers(1, 9))))
    return file, history


@given(histories())
def test_folding_agrees_with_a_history_that_is_cut_at_each_resume(
    case: tuple[list[Event], list[tuple[int, int]]],
) -> None:
    file, history = case
    assert [position(kept) for kept in fold(file)] == history


@given(histories())
def test_who_hears_of_every_start_beforehand_hears_what_folding_gives(
    case: tuple[list[Event], list[tuple[int, int]]],
) -> None:
    file, history = case
    heard = OneHistory()
    for each in file:
        heard.expect(each)
    assert [position(each) for each in file if heard.counts(each)] == history


def test_who_follows_leaves_out_what_comes_late_and_cannot_take_back_what_came_before() -> None:
    first, second = attempt_of(1, 4), attempt_of(2, 2, {"attempt": 1, "seq": 3})
    heard = OneHistory()
    file = [*first, *second, event(1, 2), event(1, 9)]
    assert [each for each in file if heard.counts(each)] == [*first, *second]


def test_folding_from_a_file_gives_what_folding_a_list_gives(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    chain: list[dict[str, int] | None] = [None, {"attempt": 1, "seq": 3}, {"attempt": 2, "seq": 2}]
    for attempt, after in enumerate(chain, start=1):
        with EventWriter(path, run="r", attempt=attempt) as writer:
            writer.emit(EventKind.STATE, "started", step=0, tags={"after": after})
            for step in range(1, 6):
                kind = EventKind.EPISODE if step % 2 else EventKind.METRIC
                writer.emit(kind, "k", float(attempt), step=step)
    for kinds in ((EventKind.EPISODE,), (EventKind.METRIC, EventKind.STATE), tuple(EventKind)):
        expected = [event for event in fold(read(path)) if event.kind in kinds]
        assert list(folded(path, kinds)) == expected
    assert list(folded(tmp_path / "none", tuple(EventKind))) == []
