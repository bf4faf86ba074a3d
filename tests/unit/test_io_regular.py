"""Regular files: what has the name of one and is none is an error, never something to wait for."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rl_orch.api.feeds import LONGEST_LINE, Part, Starts, StreamPosition
from rl_orch.api.feeds import read as read_feed
from rl_orch.api.routes.streams import event_frames
from rl_orch.core.ports import Task
from rl_orch.core.registry.verdicts import digest
from rl_orch.errors import Damaged, RlctlError
from rl_orch.io import service_note
from rl_orch.io.checkpoints import catalog, external
from rl_orch.io.files import regular
from rl_orch.io.metrics.index import Index
from rl_orch.io.policies.episode_records import read_records
from rl_orch.io.run import gate_evidence, history, logs
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.disk_reserve import reserved
from rl_orch.io.run.events import EventWriter, read
from rl_orch.io.trackers.pump import Pump
from rl_orch.records import EventKind
from rl_orch.runners.local import LocalRunner
from tests.odd_files import HUGE, KINDS, a_hole, in_place
from tests.unit.test_io_telemetry import Memory


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "use",
    [regular.opened, regular.read, regular.reader, lambda path: regular.write(path, b"")],
)
def test_what_is_no_file_is_an_error_that_says_what_it_is(
    tmp_path: Path, kind: str, use: Callable[[Path], Any]
) -> None:
    with pytest.raises(regular.NotRegular, match=f"^it is {kind}, not a file$"):
        use(in_place(tmp_path / "x", kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "use",
    [regular.appendable, regular.appender, regular.size, lambda path: regular.part(path, 0, 10)],
)
def test_where_a_run_needs_a_file_that_is_damage(
    tmp_path: Path, kind: str, use: Callable[[Path], Any]
) -> None:
    path = in_place(tmp_path / "x", kind)
    with pytest.raises(Damaged, match=f"'{path}' cannot be used: it is {kind}, not a file"):
        use(path)


def test_a_folder_is_no_file_and_a_link_to_a_fifo_is_none_either(tmp_path: Path) -> None:
    in_place(tmp_path / "x", "a FIFO")
    (tmp_path / "link").symlink_to("x")
    with pytest.raises(regular.NotRegular, match="it is a FIFO"):
        regular.read(tmp_path / "link")
    with pytest.raises(regular.NotRegular, match="it is a link"):
        regular.opened(tmp_path / "link", os.O_RDONLY | os.O_NOFOLLOW)
    with pytest.raises(regular.NotRegular, match="it is a folder"):
        regular.read(tmp_path)


def test_a_file_is_read_up_to_its_bound_and_no_further(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(100_000))
    assert regular.read(path, 100_000) == path.read_bytes()
    with pytest.raises(regular.TooLong, match="it has 100,000 bytes; at most 99,999 are read"):
        regular.read(path, 99_999)
    with pytest.raises(regular.TooLong, match="it has 500,000,000,000 bytes"):
        regular.read(a_hole(path))


def test_a_file_that_is_opened_is_as_others_open_it(tmp_path: Path) -> None:
    with regular.appender(tmp_path / "x") as file:
        file.write(b"one")
        assert os.get_blocking(file.fileno())
    with regular.appender(tmp_path / "x") as file:
        file.write(b"two")
    assert (tmp_path / "x").read_bytes() == b"onetwo"
    assert regular.part(tmp_path / "x", 2, 3) == b"etw"
    assert regular.part(tmp_path / "nothing", 2, 3) == b""


READERS: dict[str, tuple[str, Callable[[RunDir], Any]]] = {
    "spec": ("spec.yaml", lambda run: run.spec()),
    "manifest": ("manifest.json", lambda run: run.manifest()),
    "report": ("evals/final.json", lambda run: run.read_report("final")),
    "digest": ("evals/final.json", lambda run: digest(run.report_file("final"))),
    "certificate": ("certificate.json", lambda run: run.read_certificate()),
    "records": ("evals/a.json", lambda run: read_records(run.path / "evals/a.json")),
    "pinned": ("pinned", lambda run: run.pinned()),
    "holder": ("lock", lambda run: run.lock_holder()),
    "lock": ("lock", lambda run: run.locked().__enter__()),
    "stop": ("stop", lambda run: run.request_stop(force=True)),
    "events": ("events.jsonl", lambda run: list(read(run.events))),
    "history": ("events.jsonl", lambda run: history.of_run(run.events)),
    "curves": ("events.jsonl", lambda run: Index(run.path).query()),
    "writer": ("events.jsonl", lambda run: EventWriter(run.events, run="r", attempt=1)),
    "starts": ("events.jsonl", lambda run: Starts(run.events).place(1)),
    "log": ("log.txt", lambda run: logs.part(run.log)),
    "checkpoint": (
        "checkpoints/x/state.json",
        lambda run: catalog.verify(run.path / "checkpoints/x"),
    ),
    "deposit": ("checkpoints/x/deposit.json", lambda run: external.load(run.checkpoints / "x")),
    "database": ("database", lambda run: service_note.noted_database(run.path)),
}
"""What is asked → the file that it is asked of, and how."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("asked", READERS)
def test_whoever_reads_a_run_directory_gets_a_sentence(
    tmp_path: Path, kind: str, asked: str
) -> None:
    name, ask = READERS[asked]
    (tmp_path / "checkpoints" / "x").mkdir(parents=True)
    for needed in ("MANIFEST.json", "tensors.safetensors"):
        (tmp_path / "checkpoints" / "x" / needed).touch()
    in_place(tmp_path / name, kind)
    with pytest.raises(RlctlError):
        ask(RunDir(tmp_path))


@pytest.mark.parametrize("kind", KINDS)
def test_notes_that_nobody_needs_count_as_none(tmp_path: Path, kind: str) -> None:
    run = RunDir(tmp_path)
    for name in ("gpus", "attempt", "evals/problem.txt", "evals/wanted.json", "evals/doing.txt"):
        in_place(tmp_path / name, kind)
    for name in ("metrics.db", "metrics.db-journal", "sinks/memory.json", ".reserve"):
        in_place(tmp_path / name, kind)
    assert (run.gpus(), run.noted_attempt(), run.evaluation_problem()) == ((), 0, None)
    assert not gate_evidence.asked(run, "x").anything
    assert gate_evidence.said(run) is None
    with EventWriter(run.events, run="r", attempt=1) as writer:
        writer.emit(EventKind.METRIC, "loss", 1.5, step=1)
    assert [(each.key, each.values) for each in Index(tmp_path).query()] == [("loss", (1.5,))]
    assert Pump(tmp_path, "memory", Memory).stop().written == 1
    with reserved(tmp_path):
        pass


def test_a_run_process_is_not_started_where_its_log_is_a_fifo(tmp_path: Path) -> None:
    in_place(tmp_path / "log.txt", "a FIFO")
    with pytest.raises(Damaged, match=r"log\.txt' cannot be used: it is a FIFO"):
        LocalRunner().start(tmp_path, Task(attempt=1))


def tell(path: Path, *values: float, attempt: int = 1) -> None:
    with EventWriter(path, run="r", attempt=attempt) as writer:
        if attempt > 1:
            writer.emit(EventKind.STATE, "started", step=0, tags={"after": None})
        for value in values:
            writer.emit(EventKind.METRIC, "loss", value, step=1)


def test_a_hole_in_an_event_file_is_passed_over_at_once(tmp_path: Path) -> None:
    path = RunDir(tmp_path).events
    tell(path, 1.0)
    begun = path.stat().st_size
    a_hole(path)
    assert [event.value for event in read(path)] == [1.0]
    assert Starts(path).place(HUGE) == StreamPosition(HUGE, 0)
    part = read_feed(path, StreamPosition(begun), begun + LONGEST_LINE, event_frames)
    assert part == Part(b"", StreamPosition(HUGE - 1))
    tell(path, 2.0, 3.0, attempt=2)
    assert [event.value for event in read(path)] == [1.0, None, 2.0, 3.0]
    assert [each.values for each in Index(tmp_path).query()] == [(2.0, 3.0)]
    assert Starts(path).place(path.stat().st_size).attempt == 2


def test_what_follows_a_hole_on_its_line_is_no_event_as_without_holes(tmp_path: Path) -> None:
    tell(tmp_path / "one", 1.0)
    line = (tmp_path / "one").read_bytes()
    size = (16 << 20) + 4096
    for name in ("sparse", "filled"):
        (tmp_path / name).write_bytes(bytes(size) if name == "filled" else b"")
        with (tmp_path / name).open("r+b") as file:
            file.seek(size)
            file.write(line + line)
    found = [[event.value for event in read(tmp_path / name)] for name in ("sparse", "filled")]
    assert found == [[1.0], [1.0]]


def test_a_hole_in_a_log_is_passed_over_at_once(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("before\n")
    a_hole(path)
    with path.open("ab") as file:
        file.write(b"\nafter\n")
    text, offset = "", 0
    while (part := logs.part(path, offset, ended=True)).offset != offset:
        text, offset = text + part.text, part.offset
    assert text == "before\n\nafter\n"
