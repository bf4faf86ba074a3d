"""TensorBoard files of other programs: read as they grow, several at once, torn or damaged."""

import math
import os
from pathlib import Path
from typing import Any

import pytest
from tensorboard.compat.proto import (  # type: ignore[import-untyped]
    event_pb2,
    summary_pb2,
    tensor_pb2,
    types_pb2,
)
from tensorboard.summary.writer import event_file_writer  # type: ignore[import-untyped]

from rl_orch.worker.external import tensorboard_files
from rl_orch.worker.external.tensorboard_files import RECORD_BYTES, Scalar, Scalars


class Writer:
    """Writes one event file as tensorboard does."""

    def __init__(self, folder: Path, suffix: str = "") -> None:
        self._writer = event_file_writer.EventFileWriter(str(folder), filename_suffix=suffix)

    def value(self, step: int, **value: Any) -> None:
        """Add a summary of one value."""
        summary = summary_pb2.Summary()
        summary.value.add(**value)
        self._writer.add_event(event_pb2.Event(wall_time=1.0, step=step, summary=summary))
        self._writer.flush()

    def scalar(self, step: int, key: str, value: float) -> None:
        self.value(step, tag=key, simple_value=value)

    def close(self) -> None:
        self._writer.close()


def only_file(folder: Path) -> Path:
    (file,) = folder.rglob("*tfevents*")
    return file


def test_scalars_come_as_they_are_written(tmp_path: Path) -> None:
    scalars, writer = Scalars(tmp_path / "runs"), Writer(tmp_path / "runs" / "ppo__1")
    assert list(scalars.read()) == []
    writer.scalar(8, "losses/value_loss", 0.5)
    assert list(scalars.read()) == [Scalar(8, "losses/value_loss", 0.5)]
    writer.scalar(16, "losses/value_loss", 0.25)
    writer.scalar(16, "charts/episodic_return", math.inf)
    assert list(scalars.read()) == [
        Scalar(16, "losses/value_loss", 0.25),
        Scalar(16, "charts/episodic_return", math.inf),
    ]
    assert list(scalars.read()) == []
    writer.close()


def test_several_files_are_followed_and_old_ones_are_not_read_again(tmp_path: Path) -> None:
    old = Writer(tmp_path / "old")
    old.scalar(1, "k", 1.0)
    scalars = Scalars(tmp_path)
    first, second = Writer(tmp_path / "a"), Writer(tmp_path / "b" / "deep")
    old.scalar(2, "k", 2.0)
    first.scalar(3, "k", 3.0)
    second.scalar(4, "k", 4.0)
    assert sorted(scalar.step for scalar in scalars.read()) == [2, 3, 4]
    for writer in (old, first, second):
        writer.close()


def test_a_torn_record_is_read_once_the_rest_is_there(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "whole")
    writer.scalar(1, "k", 1.0)
    writer.scalar(2, "k", 2.0)
    writer.close()
    data = only_file(tmp_path / "whole").read_bytes()
    scalars, copy = Scalars(tmp_path / "torn"), tmp_path / "torn" / "events.out.tfevents.1"
    copy.parent.mkdir()
    found = []
    for end in range(len(data) + 1):
        copy.write_bytes(data[:end])
        found += list(scalars.read())
    assert found == [Scalar(1, "k", 1.0), Scalar(2, "k", 2.0)]
    assert scalars.damaged == []


@pytest.mark.parametrize("part", ["length", "data"])
def test_a_damaged_record_ends_the_reading_of_its_file_alone(tmp_path: Path, part: str) -> None:
    scalars = Scalars(tmp_path)
    for name in ("bad", "good"):
        writer = Writer(tmp_path / name)
        writer.scalar(1, "k", 1.0)
        writer.scalar(2, "k", 2.0)
        writer.close()
    file = only_file(tmp_path / "bad")
    data = bytearray(file.read_bytes())
    header = 12 + int.from_bytes(data[:8], "little") + 4
    last = (len(data) - header) // 2
    data[-last if part == "length" else -6] ^= 0x40
    file.write_bytes(data)
    assert [scalar.step for scalar in scalars.read()] == [1, 1, 2]
    assert list(scalars.read()) == []
    assert scalars.damaged == [file]


@pytest.mark.parametrize(
    "tensor",
    [
        tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, float_val=[1.5]),
        tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, tensor_content=b"\x00\x00\xc0\x3f"),
        tensor_pb2.TensorProto(dtype=types_pb2.DT_DOUBLE, double_val=[1.5]),
    ],
)
def test_a_number_in_the_newer_style_is_read_too(tmp_path: Path, tensor: Any) -> None:
    scalars, writer = Scalars(tmp_path), Writer(tmp_path)
    writer.value(1, tag="k", tensor=tensor)
    writer.close()
    assert list(scalars.read()) == [Scalar(1, "k", 1.5)]


def test_what_is_no_number_is_passed_over(tmp_path: Path) -> None:
    scalars, writer = Scalars(tmp_path), Writer(tmp_path)
    text = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[b"lr=1e-3"])
    writer.value(0, tag="hyperparameters", tensor=text)
    writer.value(0, tag="pair", tensor=tensor_pb2.TensorProto(dtype=1, float_val=[1.0, 2.0]))
    picture = summary_pb2.Summary.Image(encoded_image_string=b"x" * (RECORD_BYTES + 1))
    writer.value(0, tag="frame", image=picture)
    writer.scalar(8, "k", 1.0)
    writer.close()
    (tmp_path / "notes.txt").write_text("not an event file")
    (tmp_path / "tfevents.link").symlink_to(only_file(tmp_path))
    assert list(scalars.read()) == [Scalar(8, "k", 1.0)]


def test_a_new_file_is_read_beside_more_old_ones_than_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorboard_files, "FILES", 2)
    for name in ("a1", "a2", "a3"):
        (tmp_path / f"{name}.tfevents").write_bytes(b"old")
    scalars, writer = Scalars(tmp_path), Writer(tmp_path / "z")
    writer.scalar(1, "k", 1.0)
    writer.close()
    assert list(scalars.read()) == [Scalar(1, "k", 1.0)]
    assert not scalars.full


def test_of_too_many_files_the_newest_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorboard_files, "FILES", 2)
    scalars = Scalars(tmp_path)
    for step, age_s in enumerate((30, 10, 20)):
        folder = tmp_path / str(step)
        writer = Writer(folder)
        writer.scalar(step, "k", 1.0)
        writer.close()
        os.utime(only_file(folder), (1000 - age_s, 1000 - age_s))
    assert [scalar.step for scalar in scalars.read()] == [1, 2]
    assert scalars.full
