"""Curves of runs: which there are, what is asked of them, how they travel, and their export."""

import json
import math
import os
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from tensorboard.backend.event_processing import event_accumulator  # type: ignore[import-untyped]

from rl_orch.errors import BadInput, Conflict, NotFound, RlctlError
from rl_orch.io.metrics import index, series
from rl_orch.io.metrics.series import Key, Series
from rl_orch.io.run.events import EventWriter


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with a thousand points of one curve, and few of some others."""
    folder = tmp_path / "ein Lauf, ü"
    folder.mkdir()
    with EventWriter(folder / "events.jsonl", run="r1", attempt=1) as log:
        log.emit("state", "started", step=0, tags={"after": None})
        for step in range(1_000):
            log.emit("metric", "losses/value_loss", float(step % 7), step=10 * step)
        log.emit("episode", "episode", 21.5, step=500, tags={"length": 200})
        log.emit("eval", "eval/mean_return", 475, step=9_000, tags={"summary": {}})
        log.emit("log", "charts/SPS", 1000.0, step=9_000)
        log.emit("log", "message", "no number", step=9_000)
        log.emit("checkpoint", "saved", 3, step=9_000)
    return folder


def test_every_number_of_a_run_is_on_a_curve_of_its_name(run: Path) -> None:
    found = {one.key: (one.count, one.values[-1]) for one in series.of_run(run)}
    assert found == {
        "charts/SPS": (1, 1000.0),
        "charts/episodic_length": (1, 200.0),
        "charts/episodic_return": (1, 21.5),
        "eval/mean_return": (1, 475.0),
        "losses/value_loss": (1_000, 5.0),
    }


def test_the_curves_of_a_run_are_listed_with_their_last_point(run: Path) -> None:
    assert series.keys_of_run(run)[-2:] == (
        Key(key="eval/mean_return", count=1, last_step=9_000, last_value=475.0),
        Key(key="losses/value_loss", count=1_000, last_step=9_990, last_value=5.0),
    )


def test_curves_come_in_the_order_they_are_asked_for_and_unknown_ones_are_empty(run: Path) -> None:
    asked = ["losses/value_loss", "nowhere", "charts/SPS", "nowhere"]
    found = series.of_run(run, asked)
    assert [one.key for one in found] == ["losses/value_loss", "nowhere", "charts/SPS"]
    assert found[1] == Series(key="nowhere", steps=(), values=(), count=0)


def test_a_long_curve_is_thinned_and_says_how_long_it_is(run: Path) -> None:
    (found,) = series.of_run(run, ["losses/value_loss"], points=50)
    assert found.count == 1_000
    assert len(found.steps) == len(found.values) <= 50
    assert (found.steps[0], found.steps[-1]) == (0, 9_990)
    assert (min(found.values), max(found.values)) == (0.0, 6.0)


def test_a_range_of_steps_has_both_its_ends(run: Path) -> None:
    (found,) = series.of_run(run, ["losses/value_loss"], 2_000, 100, 200)
    assert found.steps == tuple(range(100, 201, 10))
    assert found.count == 11
    assert [one.key for one in series.of_run(run, from_step=9_500)] == ["losses/value_loss"]
    (left,) = series.of_run(run, ["losses/value_loss"], to_step=5)
    assert (left.steps, left.values) == ((0,), (0.0,))
    (whole,) = series.of_run(run, ["losses/value_loss"], 2_000, -(10**400), 10**400)
    assert whole.count == 1_000
    assert series.of_run(run, ["losses/value_loss"], 2_000, 10**400)[0].count == 0


def test_steps_that_go_back_are_put_in_order(tmp_path: Path) -> None:
    with EventWriter(tmp_path / "events.jsonl", run="r1", attempt=1) as log:
        for step in (3, 1, 2, 1):
            log.emit("metric", "k", step / 2, step=step)
    (found,) = series.of_run(tmp_path)
    assert (found.steps, found.values) == ((1, 1, 2, 3), (0.5, 0.5, 1.0, 1.5))


def test_values_that_are_not_finite_travel_as_words_and_come_back(tmp_path: Path) -> None:
    values = (math.nan, math.inf, -math.inf, 10**400, 1.5)
    with EventWriter(tmp_path / "events.jsonl", run="r1", attempt=1) as log:
        for step, value in enumerate(values):
            log.emit("metric", "k", value, step=step)
    (found,) = series.of_run(tmp_path)
    text = found.model_dump_json()
    assert json.loads(text) == {
        "key": "k",
        "steps": [0, 1, 2, 3, 4],
        "values": ["NaN", "Infinity", "-Infinity", "Infinity", 1.5],
        "count": 5,
    }
    assert repr(Series.model_validate_json(text)) == repr(found)
    many = TypeAdapter(tuple[Series, ...])
    assert json.loads(many.dump_json((found,)))[0] == json.loads(text)


@pytest.mark.parametrize("points", [4, 0, -1])
def test_too_few_points_are_refused(run: Path, points: int) -> None:
    with pytest.raises(BadInput, match=f"points is {points}; must be at least 5"):
        series.of_run(run, points=points)


def test_more_than_an_answer_holds_is_refused(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "MOST_POINTS", 1_000)
    with pytest.raises(BadInput, match=r"up to 1004 points of 5 curves; .* at most 1000"):
        series.of_run(run)
    assert len(series.of_run(run, ["losses/value_loss"])) == 1
    assert len(series.of_run(run, points=900)) == 5


def test_a_directory_without_events_has_no_curves(tmp_path: Path) -> None:
    assert series.of_run(tmp_path) == ()
    assert series.of_run(tmp_path, ["k"])[0].count == 0
    assert series.catch_up(tmp_path)


def test_a_run_is_indexed_ahead_of_need(run: Path) -> None:
    assert series.catch_up(run)
    assert (run / "metrics.db").stat().st_size > 0


def test_the_folded_history_is_exported_to_tensorboard(run: Path, tmp_path: Path) -> None:
    with EventWriter(run / "events.jsonl", run="r1", attempt=2) as log:
        log.emit("state", "started", step=20, tags={"after": {"attempt": 1, "seq": 4}})
        log.emit("metric", "losses/value_loss", -1.0, step=30)
    target = tmp_path / "exports" / "für TensorBoard"
    assert series.export_to_tensorboard(run, target) == target
    reader = event_accumulator.EventAccumulator(str(target))
    reader.Reload()
    assert reader.Tags()["scalars"] == ["losses/value_loss"]
    points = [(point.step, point.value) for point in reader.Scalars("losses/value_loss")]
    assert points == [(0, 0.0), (10, 1.0), (20, 2.0), (30, -1.0)]
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def test_an_export_writes_over_nothing(run: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("taken", "link"):
        with pytest.raises(Conflict, match=f"{name}' is there already"):
            series.export_to_tensorboard(run, tmp_path / name)
    with pytest.raises(NotFound, match=r"no events\.jsonl"):
        series.export_to_tensorboard(tmp_path, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_an_export_that_the_disk_refuses_leaves_nothing_behind(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RlctlError, match="cannot write"):
        series.export_to_tensorboard(run, tmp_path / "file" / "new")
    (tmp_path / "out").mkdir()

    def refuse(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(RlctlError, match=r"cannot write .*: No space left on device"):
        series.export_to_tensorboard(run, tmp_path / "out" / "new")
    assert list((tmp_path / "out").iterdir()) == []
