"""Listening to an external program: which numbers a checkpoint covers, and a finish in a hurry."""

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rl_orch.io.checkpoints import catalog, external
from rl_orch.io.checkpoints.checkpoint_retention import CheckpointRetention
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import EventWriter, read
from rl_orch.worker.external import tensorboard_files
from rl_orch.worker.external.checkpoints import CheckpointKeeper
from rl_orch.worker.external.line_protocol import Teller
from rl_orch.worker.external.line_reader import CHUNK_BYTES, LINE_BYTES, LineReader
from rl_orch.worker.external.listener import TrainerListener
from rl_orch.worker.external.tensorboard_files import Scalar, Scalars
from rl_orch.worker.external.train import patience_s


class Board(Scalars):
    """A TensorBoard folder that has these numbers; more happens while they are read."""

    def __init__(self, numbers: list[Scalar], meanwhile: Callable[[], None]) -> None:
        super().__init__(Path("/nowhere"))
        self.numbers, self.meanwhile = numbers, meanwhile

    def read(self) -> Iterator[Scalar]:
        found, self.numbers = self.numbers, []
        yield from found
        self.meanwhile()
        self.meanwhile = lambda: None


class Desk:
    """A listener, what it hears, and a clock that goes on a second at every look."""

    def __init__(self, folder: Path) -> None:
        self.directory = RunDir(folder / "run")
        self.directory.checkpoints.mkdir(parents=True)
        self.written = folder / "written"
        self.written.mkdir()
        self.said = folder / "said"
        self.writer = EventWriter(self.directory.events, run="run", attempt=1)
        self.clock = itertools.count(1.0)

    def listener(self, scalars: Scalars | None = None) -> TrainerListener:
        keeper = CheckpointKeeper(
            self.directory,
            self.writer,
            folder=self.written,
            attempt=1,
            keep_last=3,
            kept=CheckpointRetention(),
        )
        lines, teller = LineReader(self.said), Teller(self.writer)
        return TrainerListener(
            lines, scalars, self.writer, teller, keeper, timer=self.clock.__next__
        )

    def say(self, **said: Any) -> None:
        with self.said.open("a") as file:
            file.write(json.dumps(said) + "\n")

    def save(self, step: int, name: str = "model") -> None:
        (self.written / name).write_text("weights")
        self.say(step=step, checkpoint=name)

    def told(self) -> list[tuple[str, int]]:
        """Numbers and checkpoints, in the order of their events."""
        kinds = ("metric", "checkpoint")
        return [(e.key, e.step) for e in read(self.directory.events) if e.kind in kinds]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.writer.close()


def numbers(*steps: int) -> list[Scalar]:
    return [Scalar(step, "k", 1.0) for step in steps]


def test_a_checkpoint_covers_no_number_of_a_later_step(desk: Desk) -> None:
    listener = desk.listener(Board(numbers(10, 20, 30), meanwhile=lambda: desk.save(20)))
    listener.listen()
    assert desk.told() == [("k", 10), ("k", 20), ("saved", 20), ("k", 30)]
    assert external.load(desk.directory.checkpoints / catalog.name_of(20)).seq == 2


def test_a_checkpoint_covers_the_numbers_that_were_not_read_yet(desk: Desk) -> None:
    board = Board([], meanwhile=lambda: None)
    listener = desk.listener(board)

    def go_on() -> None:
        desk.save(20)
        board.numbers = numbers(15, 25)

    board.meanwhile = go_on
    listener.listen()
    assert desk.told() == [("k", 15), ("saved", 20), ("k", 25)]


def test_numbers_wait_for_lines_that_are_not_read_yet(desk: Desk) -> None:
    listener = desk.listener(Board(numbers(30), meanwhile=lambda: None))
    foreign = " " * (LINE_BYTES - 1) + "\n"
    desk.said.write_text(foreign * (CHUNK_BYTES // LINE_BYTES))
    desk.save(20)
    listener.listen()
    assert desk.told() == []
    listener.listen()
    assert desk.told() == [("saved", 20), ("k", 30)]


def test_what_is_told_last_keeps_to_the_order_too(desk: Desk) -> None:
    listener = desk.listener(Board(numbers(10, 30), meanwhile=lambda: None))
    desk.save(20)
    listener.finish()
    assert desk.told() == [("k", 10), ("saved", 20), ("k", 30)]


@pytest.mark.parametrize("name", ["\udcff", "no\ud800", "a\0b", "x" * 300])
def test_a_checkpoint_whose_name_cannot_be_written_costs_the_checkpoint_alone(
    desk: Desk, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    if name == "\udcff":
        (desk.written / name).write_text("weights")
    listener = desk.listener()
    desk.say(step=10, checkpoint=name)
    desk.say(step=20, key="k", value=1)
    listener.listen()
    assert desk.told() == [("k", 20)]
    assert listener.passed_over == 1
    assert "checkpoint not kept" in caplog.text


def test_in_a_hurry_numbers_are_passed_over_and_checkpoints_are_not(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    listener = desk.listener(Board(numbers(10, 2000), meanwhile=lambda: None))
    for step in range(1000):
        desk.say(step=step, key="k", value=1)
    desk.save(1000)
    listener.finish(until=500.0)
    told = desk.told()
    assert 200 < len(told) < 300
    assert told[-1] == ("saved", 1000)
    assert listener.passed_over + len(told) == 1000 + 1 + 2
    assert "no time was left to hear all that the program said" in caplog.text


def test_in_a_hurry_the_end_comes_in_time(desk: Desk) -> None:
    listener = desk.listener()
    desk.said.write_text("\n" * (3 * CHUNK_BYTES))
    listener.finish(until=100.0)
    assert listener.passed_over <= CHUNK_BYTES + 100


def test_of_a_long_grace_a_little_is_kept_to_finish_in() -> None:
    assert [patience_s(grace_s) for grace_s in (0.5, 4.0, 10.0, 120.0)] == [0.5, 4.0, 8.5, 115.0]


def test_more_tensorboard_files_than_are_read_are_told_of_once(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    listener = desk.listener(Scalars(tmp_path / "runs"))
    monkeypatch.setattr(tensorboard_files, "FILES", 1)
    (tmp_path / "runs").mkdir()
    for name in ("tfevents.1", "tfevents.2"):
        (tmp_path / "runs" / name).touch()
    for _ in range(2):
        listener.listen()
    assert caplog.text.count("only the newest TensorBoard files are read") == 1
