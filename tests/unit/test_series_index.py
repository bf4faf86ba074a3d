"""The index of a run: it says what the folded event file says, whatever has happened to it."""

import json
import math
import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_orch.errors import Damaged
from rl_orch.io.metrics import database, event_rows, names, snapshot
from rl_orch.io.metrics.index import Index
from rl_orch.io.metrics.series import Series
from rl_orch.io.run import events, history
from rl_orch.io.run.events import EventWriter, fold, read
from rl_orch.records import Event, EventKind
from rl_orch.stats import summarize
from tests.odd_files import KINDS, in_place

Curves = dict[str, list[tuple[int, str]]]


def expected(folder: Path) -> Curves:
    """The curves in an event file, the slow way."""
    curves: Curves = {}
    for event in fold(read(folder / "events.jsonl")):
        for key, value in names.of_event(event):
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


def stored(folder: Path) -> tuple[int, int]:
    """How far the index of a run came, and how many pieces it has."""
    with closing(sqlite3.connect(folder / "metrics.db")) as sql:
        ((document,),) = sql.execute("SELECT document FROM head").fetchall() or [('{"offset": 0}',)]
        ((chunks,),) = sql.execute("SELECT COUNT(*) FROM chunks")
    return json.loads(document)["offset"], chunks


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


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run that is indexed."""
    folder = tmp_path_factory.mktemp("indexed")
    tell(folder, range(30))
    with EventWriter(folder / "events.jsonl", run="r1", attempt=2) as log:
        log.emit("state", "started", step=20, tags={"after": {"attempt": 1, "seq": 20}})
        log.emit("episode", "charts/episodic_return", 1.0, step=21, tags={"length": 7, "env": 3})
        log.emit("eval", "eval/mean_return", 2.0, step=22, tags={"summary": a_summary()})
    assert Index(folder).catch_up()
    return folder


def a_summary() -> dict[str, Any]:
    return summarize([1.0, 3.0]).model_dump(mode="json")


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
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for size in sorted([*(min(cut, len(whole)) for cut in cuts), len(whole)]):
            (folder / "events.jsonl").write_bytes(whole[:size])
            assert answer(folder) == expected(folder)
            told = fold(read(folder / "events.jsonl"))
            few = [event for event in told if event.kind in event_rows.WHOLE]
            assert Index(folder).events(*event_rows.WHOLE) == few
            assert repr(Index(folder).history()) == repr(history.of_events(told))


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
    before, pieces = stored(run)
    tell(run, [200, 201], key="losses/value_loss", attempt=2)
    with EventWriter(run / "events.jsonl", run="r1", attempt=2) as log:
        log.emit("checkpoint", "saved", "step_201", step=201)
    assert index.catch_up()
    assert stored(run)[0] > before
    assert stored(run)[1] == pieces + 3, "points, origins and lines"
    assert answer(run) == expected(run)


def test_a_file_that_has_not_changed_is_not_read_again(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Index(run).catch_up()
    monkeypatch.setattr(events, "parse", lambda _: pytest.fail("lines were parsed"))
    assert Index(run).catch_up()
    assert Index(run).keys()


def test_a_long_file_can_be_taken_in_bit_by_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(tmp_path, range(50))
    monkeypatch.setattr(events, "TAIL_BYTES", 500)
    index = Index(tmp_path)
    assert not index.catch_up(most_bytes=1_000)
    assert 0 < stored(tmp_path)[0] < 2_000
    while not index.catch_up(most_bytes=1_000):
        pass
    assert answer(tmp_path) == expected(tmp_path)


def _lose_the_file(folder: Path) -> None:
    (folder / "metrics.db").unlink()


def _cut_the_file(folder: Path) -> None:
    path = folder / "metrics.db"
    path.write_bytes(path.read_bytes()[:-5_000])


def _empty_the_file(folder: Path) -> None:
    (folder / "metrics.db").write_bytes(b"")


def _make_it_another_kind_of_file(folder: Path) -> None:
    (folder / "metrics.db").write_bytes(b"no database" * 1_000)


def _change(statement: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        with closing(sqlite3.connect(folder / "metrics.db")) as sql, sql:
            assert sql.execute(statement).rowcount != 0

    return change


def _make_it_ask_for_ever(folder: Path) -> None:
    endless = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r)"
    with closing(sqlite3.connect(folder / "metrics.db")) as sql, sql:
        sql.execute("DROP TABLE head")
        sql.execute(
            f"CREATE VIEW head AS {endless} SELECT x AS document, 1 AS crc FROM r WHERE x < 0"
        )


def _make_the_event_file_shorter(folder: Path) -> None:
    path = folder / "events.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:40]))


def _make_it_another_event_file(folder: Path) -> None:
    (folder / "events.jsonl").unlink()
    tell(folder, range(2_000), key="other")


@pytest.mark.parametrize(
    "damage",
    [
        _lose_the_file,
        _cut_the_file,
        _empty_the_file,
        _make_it_another_kind_of_file,
        _make_it_ask_for_ever,
        _change("DROP TABLE streams"),
        _change("ALTER TABLE chunks RENAME COLUMN data TO content"),
        _change("DELETE FROM chunks WHERE number = 3"),
        _change("UPDATE chunks SET data = zeroblob(length(data)) WHERE number = 3"),
        _change("UPDATE chunks SET data = 7"),
        _change("UPDATE streams SET size = 8 * size"),
        _change("UPDATE streams SET name = name || '!'"),
        _change("DELETE FROM streams WHERE number = 3"),
        _change("DELETE FROM head"),
        _change("UPDATE head SET document = replace(document, '150', '151')"),
        _change("UPDATE head SET document = replace(document, '\"version\":2', '\"version\":3')"),
        _make_the_event_file_shorter,
        _make_it_another_event_file,
    ],
)
def test_an_index_that_is_lost_damaged_or_of_another_file_is_built_anew(
    run: Path, damage: Callable[[Path], None]
) -> None:
    told = Index(run).events(*event_rows.WHOLE)
    assert answer(run) == expected(run)
    damage(run)
    assert answer(run) == expected(run)
    if "event_file" not in damage.__name__:
        assert Index(run).events(*event_rows.WHOLE) == told
    assert stored(run)[0] == (run / "events.jsonl").stat().st_size
    assert {path.name for path in run.iterdir()} == {"events.jsonl", "metrics.db"}


@settings(max_examples=200, deadline=None)
@given(st.floats(0, 1, exclude_max=True), st.integers(0, 7))
def test_a_flipped_bit_is_noticed_wherever_it_is(indexed: Path, place: float, bit: int) -> None:
    good = (indexed / "metrics.db").read_bytes()
    data = bytearray(good)
    data[int(place * len(data))] ^= 1 << bit
    (indexed / "metrics.db").write_bytes(data)
    try:
        assert answer(indexed) == expected(indexed)
        assert Index(indexed).history() == history.of_run(indexed / "events.jsonl")
    finally:
        (indexed / "metrics.db-journal").unlink(missing_ok=True)
        (indexed / "metrics.db").write_bytes(good)


def _index_within(folder: Path, most_bytes: int, *, dying: bool) -> int:
    """How a process ends that indexes a run, but can write no file beyond some bytes: there it
    dies, or gets an error as on a full disk."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if dying else signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))
        os._exit(0 if Index(folder).catch_up() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("dying", [True, False])
def test_an_indexer_that_ends_at_any_write_leaves_an_index_that_is_right(
    run: Path, monkeypatch: pytest.MonkeyPatch, dying: bool
) -> None:
    monkeypatch.setattr(events, "TAIL_BYTES", 20_000)
    wanted, ends = expected(run), []
    for most_bytes in range(0, 200_000, 3_000):
        ends.append(_index_within(run, most_bytes, dying=dying))
        half = Index(run).events(EventKind.STATE)
        assert [event.attempt for event in half] == [1, 2]
        assert answer(run) == wanted
        database.discard(run)
    assert set(ends[:10]) == ({-signal.SIGXFSZ} if dying else {1})
    assert ends[-1] == 0


def test_who_is_killed_leaves_what_was_done_and_the_rest_to_the_next(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "TAIL_BYTES", 20_000)
    assert not Index(run).catch_up(most_bytes=1)
    done = stored(run)[0]
    size = (run / "metrics.db").stat().st_size
    assert _index_within(run, size, dying=True) == -signal.SIGXFSZ
    read_from: list[int] = []
    read_rows = event_rows.read

    def noted(path: Path, offset: int, lineage: event_rows.Lineage) -> event_rows.EventRows:
        read_from.append(offset)
        return read_rows(path, offset, lineage)

    monkeypatch.setattr(event_rows, "read", noted)
    assert answer(run) == expected(run)
    assert min(read_from) >= done, "what was done is not done again"


def test_a_full_disk_is_answered_from_the_event_file_and_made_good_later(run: Path) -> None:
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
        os._exit(0 if answer(run) == expected(run) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    tell(run, [300], attempt=2)
    assert answer(run) == expected(run)
    assert stored(run)[0] == (run / "events.jsonl").stat().st_size


def test_the_last_room_on_a_disk_is_left_to_the_run(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "FREE_BYTES", 1 << 60)
    assert not Index(run).catch_up()
    assert answer(run) == expected(run)
    assert not (run / "metrics.db").exists()


@pytest.mark.parametrize("name", ["metrics.db", "metrics.db-journal"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_in_the_way_of_an_index_is_left_alone(run: Path, name: str, kind: str) -> None:
    in_place(run / name, kind)
    before = (run / name).lstat()
    assert not Index(run).catch_up()
    assert answer(run) == expected(run)
    assert (run / name).lstat().st_ino == before.st_ino


def test_columns_of_an_older_release_make_room_for_the_new_index(run: Path) -> None:
    (run / "index").mkdir()
    for name in ("note.json", "lock", "0a1b2c3d-0.points", "0a1b2c3d-0.origins"):
        (run / "index" / name).write_bytes(b"of no use")
    assert answer(run) == expected(run)
    assert not (run / "index").exists()


def test_an_index_is_as_private_as_its_folder(run: Path) -> None:
    run.chmod(0o700)
    assert Index(run).catch_up()
    assert stat.S_IMODE((run / "metrics.db").stat().st_mode) == 0o600


def test_a_whole_index_is_read_where_nothing_can_be_written(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (run / "events.jsonl").open("ab") as file:
        file.write(b'{"v":1,"torn')
    Index(run).catch_up()
    monkeypatch.setattr(database, "FREE_BYTES", 1 << 60)
    monkeypatch.setattr(event_rows._Sorter, "take", lambda *_: pytest.fail("read the file"))
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
    assert not (tmp_path / "metrics.db").exists()


def test_who_cannot_wait_for_another_answers_from_the_event_file(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Index(run).catch_up()
    before = answer(run)
    monkeypatch.setattr(database, "PATIENCE_S", 0.05)
    with closing(sqlite3.connect(run / "metrics.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert answer(run) == before, "there is nothing to wait for"
        tell(run, [300], attempt=2)
        assert not Index(run).catch_up()
        assert answer(run) == expected(run) != before
        other.execute("ROLLBACK")
        other.execute("BEGIN EXCLUSIVE")
        assert answer(run) == expected(run)
    assert answer(run) == expected(run)
    assert stored(run)[0] == (run / "events.jsonl").stat().st_size


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
    monkeypatch.setattr(snapshot, "KEYS", 3)
    with EventWriter(tmp_path / "events.jsonl", run="r1", attempt=1) as log:
        for number in range(10):
            log.emit("metric", f"k{number}", 1.0, step=0)
        log.emit("metric", "k1", 2.0, step=1)
    assert {key: len(curve) for key, curve in answer(tmp_path).items()} == {
        "k0": 1,
        "k1": 2,
        "k2": 1,
    }


@pytest.mark.parametrize("key", ["../../etc", "/", "", "\0", "a" * 256, "ü" * 200, "points of k"])
def test_a_key_may_be_any_text_and_names_no_file(tmp_path: Path, key: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    tell(folder, range(5), key=key)
    tell(folder, range(5), key="too long" * 1_000)
    assert list(answer(folder)) == [key]
    assert {path.name for path in tmp_path.iterdir()} == {"run"}
    assert {path.name for path in folder.iterdir()} == {"events.jsonl", "metrics.db"}
