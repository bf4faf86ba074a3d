"""What an external program says: lines that are understood, lines that are not, their events."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from rl_orch.io.run.events import EventWriter, read
from rl_orch.io.run.history import of_run
from rl_orch.records import EventKind
from rl_orch.worker.external.line_protocol import Saved, Teller, understood
from rl_orch.worker.external.line_reader import CHUNK_BYTES, LINE_BYTES, LineReader
from rl_orch.worker.external.tensorboard_files import Scalar

RETURN, LENGTH = "charts/episodic_return", "charts/episodic_length"


def line(**said: Any) -> bytes:
    return json.dumps(said).encode()


def told(tmp_path: Path, *numbers: Scalar) -> list[tuple[str, str, int, Any, dict[str, Any]]]:
    """The events that some numbers make."""
    with EventWriter(tmp_path / "events.jsonl", run="r", attempt=1) as writer:
        teller = Teller(writer)
        for number in numbers:
            assert teller.tell(number)
        teller.flush()
    events = read(tmp_path / "events.jsonl")
    return [(str(e.kind), e.key, e.step, e.value, e.tags) for e in events]


def test_a_number_is_understood() -> None:
    assert understood(line(step=8, key="losses/td", value=0.5)) == Scalar(8, "losses/td", 0.5)
    assert understood(line(step=8.0, key="k", value=3)) == Scalar(8, "k", 3.0)


def test_a_checkpoint_is_understood() -> None:
    assert understood(line(step=8, checkpoint="a/b.pt")) == Saved(8, "a/b.pt", best=False)
    assert understood(line(step=8, checkpoint="b.pt", best=True)) == Saved(8, "b.pt", best=True)
    assert understood(line(step=8, checkpoint="b.pt", best=1)) == Saved(8, "b.pt", best=False)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"epoch 3: loss 0.2",
        b'{"step": 8, "key": "k", "value": 0.',
        b"[1, 2]",
        b"\xff\xfe{}",
        b"[" * 200_000,
        line(key="k", value=1),
        line(step=-1, key="k", value=1),
        line(step=1.5, key="k", value=1),
        line(step=True, key="k", value=1),
        line(step=10**12, key="k", value=1),
        line(step=1e300, key="k", value=1),
        line(step="8", key="k", value=1),
        line(step=8, key=3, value=1),
        line(step=8, key="k", value="fine"),
        line(step=8, key="k", value=True),
        line(step=8, key="k", value=None),
        line(step=8, key="k", value=[1]),
        line(step=8, key="k"),
        line(step=8, checkpoint=""),
        line(step=8, checkpoint=["a"]),
        line(step=8, checkpoint="x" * 5000),
    ],
)
def test_torn_and_foreign_lines_are_not_understood(said: bytes) -> None:
    assert understood(said) is None


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("NaN", math.nan),
        ("Infinity", math.inf),
        ('"-Infinity"', -math.inf),
        ("1e400", math.inf),
        ("1" + "0" * 400, math.inf),
        ("-1" + "0" * 400, -math.inf),
    ],
)
def test_numbers_that_are_not_finite_are_kept_as_words(
    tmp_path: Path, written: str, value: float
) -> None:
    said = understood(f'{{"step": 1, "key": "k", "value": {written}}}'.encode())
    assert isinstance(said, Scalar)
    word = "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    assert told(tmp_path, said) == [("metric", "k", 1, word, {})]


@pytest.mark.parametrize("key", ["", "x" * 201, "a\nb", "\ud800", "\u202e"])
def test_a_key_that_is_no_name_is_refused(tmp_path: Path, key: str) -> None:
    with EventWriter(tmp_path / "events.jsonl", run="r", attempt=1) as writer:
        assert not Teller(writer).tell(Scalar(1, key, 1.0))


def test_the_return_and_the_length_of_an_episode_are_one_event(tmp_path: Path) -> None:
    events = told(
        tmp_path,
        Scalar(20, RETURN, 9.5),
        Scalar(20, LENGTH, 20.0),
        Scalar(50, LENGTH, 30.0),
        Scalar(50, RETURN, 7.5),
    )
    assert events == [
        ("episode", RETURN, 20, 9.5, {"length": 20}),
        ("episode", RETURN, 50, 7.5, {"length": 30}),
    ]
    episodes = of_run(tmp_path / "events.jsonl").episodes
    assert [(e.step, e.ret, e.length) for e in episodes] == [(20, 9.5, 20), (50, 7.5, 30)]


def test_two_episodes_that_end_at_one_step_are_two(tmp_path: Path) -> None:
    pair = (Scalar(20, RETURN, 1.0), Scalar(20, LENGTH, 5.0))
    assert [event[4] for event in told(tmp_path, *pair, *pair)] == [{"length": 5}] * 2


def test_half_an_episode_is_told_as_it_is(tmp_path: Path) -> None:
    events = told(
        tmp_path, Scalar(20, RETURN, 1.0), Scalar(30, LENGTH, 5.0), Scalar(40, "episodic_return", 2)
    )
    assert [(event[0], event[1], event[2]) for event in events] == [
        ("episode", RETURN, 20),
        ("metric", LENGTH, 30),
        ("episode", RETURN, 40),
    ]


def test_a_reading_of_the_clock_is_a_log_event_and_nothing_becomes_an_evaluation(
    tmp_path: Path,
) -> None:
    events = told(tmp_path, Scalar(1, "charts/SPS", 900.0), Scalar(1, "eval/mean_return", 500.0))
    assert [event[:2] for event in events] == [
        (str(EventKind.LOG), "charts/SPS"),
        (str(EventKind.METRIC), "eval/mean_return"),
    ]


@pytest.mark.parametrize("value", [0.0, -5.0, math.nan, math.inf, 1e-9, 1e15])
def test_a_speed_that_cannot_be_is_a_number_and_not_the_speed(tmp_path: Path, value: float) -> None:
    with EventWriter(tmp_path / "events.jsonl", run="r", attempt=1) as writer:
        teller = Teller(writer)
        assert teller.tell(Scalar(8, "SPS", value))
    assert not teller.told_speed
    assert [str(event.kind) for event in read(tmp_path / "events.jsonl")] == ["metric"]


def test_lines_are_read_as_they_are_finished(tmp_path: Path) -> None:
    file = tmp_path / "said"
    lines = LineReader(file)
    assert lines.read() == []
    with file.open("wb", buffering=0) as said:
        said.write(b"one\ntw")
        assert lines.read() == [b"one"]
        assert lines.read() == []
        assert lines.rest() == b"tw"
        said.write(b"o\n\n")
        assert lines.read() == [b"two", b""]
        assert lines.rest() == b""


def test_a_file_that_is_written_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    file = tmp_path / "said"
    file.write_bytes(b"first\nsecond\n")
    lines = LineReader(file)
    assert len(lines.read()) == 2
    file.write_bytes(b"again\n")
    assert lines.read() == [b"again"]


@pytest.mark.parametrize("size", [LINE_BYTES + 1, CHUNK_BYTES, 2 * CHUNK_BYTES + 17])
def test_a_line_of_more_than_a_mebibyte_is_skipped_and_counted_once(
    tmp_path: Path, size: int
) -> None:
    file = tmp_path / "said"
    file.write_bytes(b"before\n" + b"x" * size + b"\nafter\n")
    lines = LineReader(file)
    found = [line for part in iter(lines.read, []) for line in part]
    assert found == [b"before", b"after"]
    assert lines.skipped == 1


def test_a_pipe_in_place_of_the_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "said")
    assert LineReader(tmp_path / "said").read() == []
