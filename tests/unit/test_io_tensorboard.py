"""The TensorBoard sink, read back with TensorBoard's own reader."""

from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing import event_accumulator  # type: ignore[import-untyped]

from rl_orch.io.run.events import EventWriter
from rl_orch.io.trackers.pump import Delivered, Pump
from rl_orch.io.trackers.tensorboard import TensorBoardFiles
from rl_orch.records import Event, EventKind


def event(kind: str, key: str, value: Any, step: int = 1, **tags: Any) -> Event:
    return Event(
        seq=1,
        attempt=1,
        ts=100.5,
        run="r1",
        step=step,
        kind=EventKind(kind),
        key=key,
        value=value,
        tags=tags,
    )


def shown(directory: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows: key → (step, value)."""
    reader = event_accumulator.EventAccumulator(str(directory))
    reader.Reload()
    found = {
        key: [(point.step, point.value) for point in reader.Scalars(key)]
        for key in reader.Tags()["scalars"]
    }
    return {key: points for key, points in found.items() if points}


def shown_after(directory: Path, *written: Event) -> dict[str, list[tuple[int, float]]]:
    sink = TensorBoardFiles(directory)
    sink.write(written)
    sink.flush()
    sink.close()
    return shown(directory)


def test_numbers_are_shown_under_their_key_and_step(tmp_path: Path) -> None:
    directory = tmp_path / "ein Ordner, ü" / "tensorboard"
    assert shown_after(
        directory,
        event("metric", "losses/policy_loss", 0.5, step=10),
        event("metric", "losses/policy_loss", 0.25, step=20),
        event("eval", "eval/mean_return", 475, step=20),
        event("log", "charts/SPS", 1000.0, step=20),
    ) == {
        "losses/policy_loss": [(10, 0.5), (20, 0.25)],
        "eval/mean_return": [(20, 475.0)],
        "charts/SPS": [(20, 1000.0)],
    }


def test_a_point_has_the_time_of_its_event(tmp_path: Path) -> None:
    shown_after(tmp_path, event("metric", "k", 1.0))
    reader = event_accumulator.EventAccumulator(str(tmp_path))
    reader.Reload()
    assert reader.Scalars("k")[0].wall_time == 100.5


def test_an_episode_is_a_return_and_a_length(tmp_path: Path) -> None:
    assert shown_after(
        tmp_path,
        event("episode", "episode", 21.0, step=40, length=200),
        event("episode", "episode", 22.0, step=50),
    ) == {
        "charts/episodic_return": [(40, 21.0), (50, 22.0)],
        "charts/episodic_length": [(40, 200.0)],
    }


@pytest.mark.parametrize(
    "other",
    [
        event("metric", "k", "text"),
        event("metric", "k", None),
        event("metric", "k", True),
        event("eval", "k", {"mean": 1.0}),
        event("log", "k", [1.0]),
        event("checkpoint", "k", 1.0),
        event("state", "started", None, after=None),
    ],
)
def test_what_is_no_number_is_not_shown(tmp_path: Path, other: Event) -> None:
    assert shown_after(tmp_path, other) == {}


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("Infinity", "inf"),
        ("-Infinity", "-inf"),
        ("NaN", "nan"),
        (10**400, "inf"),
        (-1e300, "-inf"),
    ],
)
def test_numbers_that_are_not_finite_are_shown_as_such(
    tmp_path: Path, value: Any, number: str
) -> None:
    ((_, seen),) = shown_after(tmp_path, event("metric", "k", value))["k"]
    assert str(seen) == number


def test_a_resumed_attempt_takes_the_place_of_what_it_repeats(tmp_path: Path) -> None:
    first = [event("metric", "k", float(step), step=step) for step in (10, 20, 30, 40)]
    shown_after(tmp_path, *first)
    again = shown_after(
        tmp_path,
        event("state", "started", None, step=20, after={"attempt": 1, "seq": 2}),
        event("metric", "k", -30.0, step=30),
    )
    assert again == {"k": [(10, 10.0), (20, 20.0), (30, -30.0)]}


def test_an_attempt_from_scratch_takes_the_place_of_all(tmp_path: Path) -> None:
    shown_after(tmp_path, event("metric", "k", 1.0, step=0), event("metric", "k", 1.0, step=10))
    start = event("state", "started", None, step=0, after=None)
    assert shown_after(tmp_path, start, event("metric", "k", 2.0, step=0)) == {"k": [(0, 2.0)]}


def test_a_pump_fills_tensorboard_from_the_event_file(tmp_path: Path) -> None:
    with EventWriter(tmp_path / "events.jsonl", run="r1", attempt=1) as log:
        log.emit("state", "started", step=0, tags={"after": None})
        for step in range(2000):
            log.emit("metric", "k", step, step=step)
    pump = Pump(tmp_path, "tensorboard", lambda: TensorBoardFiles(tmp_path / "tensorboard"))
    assert pump.stop(30.0) == Delivered(written=2001, dropped=0)
    assert shown(tmp_path / "tensorboard") == {"k": [(step, step) for step in range(2000)]}
