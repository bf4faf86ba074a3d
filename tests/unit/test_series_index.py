"""The index of a run: it says what the folded event file says, whatever has happened to it."""

import errno
import fcntl
import math
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_orch.errors import Damaged, Unavailable
from rl_orch.io.metrics import columns, event_rows, names
from rl_orch.io.metrics.index import Index
from rl_orch.io.metrics.series import Series
from rl_orch.io.run import events
from rl_orch.io.run.events import EventWriter, fold, read
from rl_orch.records import Event, EventKind

Curves = dict[str, list[tuple[int, str]]]


def expected(folder: Path) -> Curves:
    """The curves in an event file, the slow way."""
    curves: Curves = {}
    for event in fold(read(folder / "events.jsonl")):
        for key, value in names.of_event(event).items():
            curves.setdefault(key, []).append((event.step, repr(value)))
    return {key: sorted(curves[key], key=lambda point: point[0]) for key in sorted(curves)}


def shown(found: Iterable[Series]) -> Curves:
    return {
        one.key: list(zip(one.steps, map(repr, one.values), strict=True))
        for one in found
        if one.count == len(one.steps)
    }


def answer(folder: Path) -> Curves:
    return shown(Index(folder).query(points=10_000))


def tell(folder: Path, steps: Iterable[int], key: str = "k", attempt: int = 1) -> None:
    with EventWriter(folder / "events.jsonl", run="r1", attempt=attempt) as log:
        for step in steps:
            log.emit("metric", key, float(step * attempt), step=step)


def column_files(folder: Path) -> list[Path]:
    return sorted([*(folder / "index").glob("*.points"), *(folder / "index").glob("*.origins")])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of two attempts, the second of which goes on from the middle of the first."""
    with EventWriter(tmp_path / "events.jsonl", run="r1", attempt=1) as log:
        log.emit("state", "started", step=0, tags={"after": None})
        for step in range(100):
            log.emit("metric", "losses/value_loss", math.sin(step), step=step)
            log.emit("log", "charts/SPS", 1000 + step, step=step)
            log.emit("episode", "charts/episodic_return", 1.0, step=step, tags={"length": step})
    with EventWriter(tmp_path / "events.jsonl", run="r1", attempt=2) as log:
        log.emit("state", "started", step=50, tags={"after": {"attempt": 1, "seq": 150}})
        for step in range(50, 80):
            log.emit("metric", "losses/value_loss", math.cos(step), step=step)
            log.emit("eval", "eval/mean_return", float(step), step=step)
    return tmp_path


def test_the_curves_are_those_of_the_folded_history(run: Path) -> None:
    found = answer(run)
    assert list(found) == [
        "charts/SPS",
        "charts/episodic_length",
        "charts/episodic_return",
        "eval/mean_return",
        "losses/value_loss",
    ]
    assert found == expected(run)
    assert len(found["losses/value_loss"]) == 50 + 30


TAGS = st.none() | st.fixed_dictionaries({"attempt": st.integers(0, 4), "seq": st.integers(1, 12)})
VALUES = st.one_of(
    st.floats(),
    st.integers(),
    st.sampled_from([None, True, "text", "NaN", "Infinity", [1.0], {"a": 1}, 10**400]),
)
LINES = st.sampled_from(
    [
        b"",
        b"not json",
        b"{}",
        b'{"v":1,"tags":{}',
        b'{"v":1,"tags":[{}',
        b"[" * 500,
        b'{"v":1,"seq":1.0,"attempt":"1","ts":1,"run":"r","step":3,"kind":"metric","key":"k",'
        b'"value":1e400,"tags":{}}',
        b'{"seq":4,"attempt":2,"ts":1,"run":"r","step":3,"kind":"log","key":"k","value":-1}',
        b'{"v":2,"seq":1,"attempt":9,"ts":1,"run":"r","step":0,"kind":"metric","key":"k"}',
        b'{"v":1,"seq":0,"attempt":9,"ts":1,"run":"r","step":0,"kind":"metric","key":"k",'
        b'"value":1.0,"tags":{}}',
        b'{"v":1,"seq":3,"attempt":9,"ts":NaN,"run":"r","step":0,"kind":"metric","key":"k",'
        b'"value":1.0,"tags":{}}',
        b'{"v":1,"seq":3,"attempt":9,"ts":1,"run":"r","step":0,"kind":"gossip","key":"k",'
        b'"value":1.0,"tags":{}}',
    ]
)


@st.composite
def told(draw: st.DrawFn) -> bytes:
    """A line of an event file: often an event of some attempt, sometimes a start, or anything."""
    if draw(st.integers(0, 9)) == 0:
        return draw(LINES)
    is_start = draw(st.integers(0, 5)) == 0
    kind = EventKind.STATE if is_start else draw(st.sampled_from(EventKind))
    event = Event(
        seq=draw(st.integers(1, 12)),
        attempt=draw(st.integers(0, 4)),
        ts=1.5,
        run="r1",
        step=draw(st.integers(0, 20)),
        kind=kind,
        key="started" if is_start else draw(st.sampled_from(["k", "ü/ \n\0", "started"])),
        value=draw(VALUES),
        tags={"after": draw(TAGS)} if is_start else {"length": draw(VALUES)},
    )
    return event.model_dump_json().encode()


@settings(max_examples=100, deadline=None)
@given(st.lists(told(), max_size=30), st.lists(st.integers(0, 3000), max_size=4))
def test_any_file_folds_as_it_does_line_by_line_however_it_grows(
    lines: list[bytes], cuts: list[int]
) -> None:
    whole = b"".join(line + b"\n" for line in lines)
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_rows, "_SLICE", 4)
        folder = Path(name)
        for size in sorted([*(min(cut, len(whole)) for cut in cuts), len(whole)]):
            (folder / "events.jsonl").write_bytes(whole[:size])
            assert answer(folder) == expected(folder)


@settings(max_examples=30, deadline=None)
@given(st.lists(told(), max_size=30), st.integers(400, 1500))
def test_chunks_that_end_anywhere_make_no_difference(lines: list[bytes], size: int) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(events, "TAIL_BYTES", size)
        folder = Path(name)
        (folder / "events.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
        assert answer(folder) == expected(folder)


def test_what_is_new_is_added_to_what_is_there(run: Path) -> None:
    index = Index(run)
    assert index.catch_up()
    before = {path: path.read_bytes() for path in column_files(run)}
    tell(run, [200, 201], key="losses/value_loss", attempt=2)
    assert index.catch_up()
    after = {path: path.read_bytes() for path in column_files(run)}
    assert after.keys() == before.keys()
    assert all(after[path].startswith(data) for path, data in before.items())
    assert answer(run) == expected(run)


def test_a_file_that_has_not_changed_is_not_read_again(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = Index(run)
    index.catch_up()
    monkeypatch.setattr(Path, "open", lambda *_: pytest.fail("a file was opened"))
    monkeypatch.setattr(Path, "read_bytes", lambda *_: pytest.fail("a file was read"))
    assert index.catch_up()


def test_a_long_file_can_be_taken_in_bit_by_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(tmp_path, range(50))
    monkeypatch.setattr(events, "TAIL_BYTES", 500)
    index = Index(tmp_path)
    assert not index.catch_up(most_bytes=1_000)
    assert (columns.Files(tmp_path / "index").book() or columns.empty_book()).offset < 2_000
    while not index.catch_up(most_bytes=1_000):
        pass
    assert answer(tmp_path) == expected(tmp_path)


def _lose_a_column(folder: Path) -> None:
    column_files(folder)[0].unlink()


def _cut_a_column(folder: Path) -> None:
    path = column_files(folder)[0]
    path.write_bytes(path.read_bytes()[:-1])


def _flip_a_bit(folder: Path) -> None:
    for path in column_files(folder):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


def _lose_the_folder(folder: Path) -> None:
    shutil.rmtree(folder / "index")


def _lose_the_note(folder: Path) -> None:
    (folder / "index" / "note.json").unlink()


def _spoil_the_note(folder: Path) -> None:
    (folder / "index" / "note.json").write_bytes(b'{"version":1,"gener')


def _make_the_note_another_version(folder: Path) -> None:
    note = folder / "index" / "note.json"
    note.write_bytes(note.read_bytes().replace(b'"version":1', b'"version":2'))


def _make_the_note_boast(folder: Path) -> None:
    note = folder / "index" / "note.json"
    note.write_bytes(note.read_bytes().replace(b'"count":', b'"count":9999999'))


def _make_the_event_file_shorter(folder: Path) -> None:
    path = folder / "events.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:40]))


def _make_it_another_event_file(folder: Path) -> None:
    (folder / "events.jsonl").unlink()
    tell(folder, range(2_000), key="other")


@pytest.mark.parametrize(
    "damage",
    [
        _lose_a_column,
        _cut_a_column,
        _flip_a_bit,
        _lose_the_folder,
        _lose_the_note,
        _spoil_the_note,
        _make_the_note_another_version,
        _make_the_note_boast,
        _make_the_event_file_shorter,
        _make_it_another_event_file,
    ],
)
def test_an_index_that_is_lost_damaged_or_of_another_file_is_built_anew(
    run: Path, damage: Callable[[Path], None]
) -> None:
    known = Index(run)
    assert shown(known.query(points=10_000)) == expected(run)
    damage(run)
    assert shown(known.query(points=10_000)) == expected(run)
    assert answer(run) == expected(run)
    book = columns.Files(run / "index").book()
    assert book is not None
    assert len(column_files(run)) == 2 * len(book.columns), "leftovers"


class Crash(BaseException):
    """The process ends here."""


def _index_until(folder: Path, last: int, patch: pytest.MonkeyPatch) -> bool:
    """Index a run, but crash in the middle of a write; whether it came to that."""
    write, replace, left = os.pwrite, Path.replace, last

    def dying_write(fd: int, data: bytes, offset: int) -> int:
        nonlocal left
        left -= 1
        if left == 0:
            write(fd, data[: len(data) // 2], offset)
            raise Crash
        return write(fd, data, offset)

    def dying_replace(path: Path, target: Path) -> Path:
        nonlocal left
        left -= 1
        if left == 0:
            raise Crash
        return replace(path, target)

    with patch.context() as dying:
        dying.setattr(os, "pwrite", dying_write)
        dying.setattr(Path, "replace", dying_replace)
        try:
            Index(folder).catch_up()
        except Crash:
            return True
        return False


def test_a_crash_at_any_write_leaves_an_index_that_is_right(
    run: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "TAIL_BYTES", 20_000)
    wanted, crashes = expected(run), 0
    while True:
        copy = tmp_path_factory.mktemp("copy")
        shutil.copy(run / "events.jsonl", copy)
        if not _index_until(copy, crashes + 1, monkeypatch):
            break
        assert answer(copy) == wanted
        crashes += 1
    assert crashes > 20


def test_an_indexer_that_is_killed_leaves_the_rest_to_the_next(tmp_path: Path) -> None:
    tell(tmp_path, range(3_000))
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from rl_orch.io.run import events\n"
        "from rl_orch.io.metrics.index import Index\n"
        "events.TAIL_BYTES = 1 << 14\n"
        "Index(Path(sys.argv[1])).catch_up(most_bytes=1 << 16)\n"
        "real = os.pwrite\n"
        "def write(*given):\n"
        "    real(*given)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "os.pwrite = write\n"
        "Index(Path(sys.argv[1])).catch_up()\n"
    )
    assert subprocess.run([sys.executable, "-c", program, tmp_path], check=False).returncode == -9
    assert answer(tmp_path) == expected(tmp_path)


def _full(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_answered_from_the_event_file_and_made_good_later(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = Index(run)
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", _full)
        assert not index.catch_up()
        assert shown(index.query(points=10_000)) == answer(run) == expected(run)
    tell(run, [300], attempt=2)
    assert shown(index.query(points=10_000)) == expected(run)
    assert columns.Files(run / "index").book() is not None


def test_the_last_room_on_a_disk_is_left_to_the_run(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "FREE_BYTES", 1 << 60)
    assert not Index(run).catch_up()
    assert answer(run) == expected(run)
    assert not (run / "index").exists()


def test_a_folder_that_cannot_be_made_is_done_without(run: Path) -> None:
    (run / "index").write_text("in the way")
    assert not Index(run).catch_up()
    assert answer(run) == expected(run)
    assert (run / "index").read_text() == "in the way"


def test_a_whole_index_is_read_where_nothing_can_be_written(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (run / "events.jsonl").open("ab") as file:
        file.write(b'{"v":1,"torn')
    Index(run).catch_up()
    monkeypatch.setattr(columns.Files, "locked", lambda *_: pytest.fail("wanted to write"))
    monkeypatch.setattr(columns.MemoryColumns, "add", lambda *_: pytest.fail("read the event file"))
    assert answer(run) == expected(run)


def test_an_event_file_that_cannot_be_read_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").mkdir()
    assert not Index(tmp_path).catch_up()
    with pytest.raises(Damaged, match=r"events.jsonl' cannot be used: it is a folder, not a file"):
        Index(tmp_path).query()


def test_a_run_that_has_told_nothing_has_no_curves_and_gets_no_index(tmp_path: Path) -> None:
    assert Index(tmp_path).query() == ()
    assert Index(tmp_path).keys() == ()
    (tmp_path / "events.jsonl").touch()
    assert Index(tmp_path).catch_up()
    assert Index(tmp_path).query() == ()
    assert not (tmp_path / "index").exists()


def test_who_asks_while_another_indexes_is_told_so(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Index(run).catch_up()
    before = answer(run)
    with (run / "index" / "lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert answer(run) == before, "there is nothing to wait for"
        tell(run, [300], attempt=2)
        assert not Index(run).catch_up()
        monkeypatch.setattr("rl_orch.io.metrics.index.PATIENCE_S", 0.05)
        with pytest.raises(Unavailable, match="another process is indexing the metrics"):
            Index(run).query()
    assert answer(run) == expected(run)


def test_many_processes_and_threads_share_one_index(tmp_path: Path) -> None:
    tell(tmp_path, range(2_000))
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from rl_orch.io.run import events\n"
        "from rl_orch.io.metrics.index import Index\n"
        "events.TAIL_BYTES = 1 << 14\n"
        "sys.exit(Index(Path(sys.argv[1])).query(points=10_000)[0].count < 2_000)\n"
    )
    others = [subprocess.Popen([sys.executable, "-c", program, tmp_path]) for _ in range(2)]
    failures: list[Any] = []

    def ask() -> None:
        for _ in range(20):
            (found,) = Index(tmp_path).query(points=10_000)
            steps = range(len(found.steps))
            if found.steps != tuple(steps) or found.values != tuple(map(float, steps)):
                failures.append(found)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for start in range(2_000, 4_000, 100):
        tell(tmp_path, range(start, start + 100))
    for thread in threads:
        thread.join()
    assert [other.wait() for other in others] == [0, 0]
    assert not failures
    assert answer(tmp_path) == expected(tmp_path)


def test_curves_beyond_the_most_that_are_kept_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "KEYS", 3)
    with EventWriter(tmp_path / "events.jsonl", run="r1", attempt=1) as log:
        for number in range(10):
            log.emit("metric", f"k{number}", 1.0, step=0)
        log.emit("metric", "k1", 2.0, step=1)
    assert {key: len(curve) for key, curve in answer(tmp_path).items()} == {
        "k0": 1,
        "k1": 2,
        "k2": 1,
    }


@pytest.mark.parametrize("key", ["../../etc", "/", "", "\0", "a" * 256, "ü" * 200, "note.json"])
def test_a_key_may_be_any_text_and_names_no_file(tmp_path: Path, key: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    tell(folder, range(5), key=key)
    tell(folder, range(5), key="too long" * 1_000)
    assert list(answer(folder)) == [key]
    assert {path.name for path in tmp_path.iterdir()} == {"run"}
    assert len(list((folder / "index").iterdir())) == 4
