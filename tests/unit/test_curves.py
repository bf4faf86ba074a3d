"""Curves: from events to history, and from history to a picture in the terminal."""

from hypothesis import given
from hypothesis import strategies as st

from rl_orch.cli.chart import Curve, draw, ticks
from rl_orch.io.history import EpisodeSummary, of_events
from rl_orch.records import Event, EventKind
from rl_orch.testing import a_report


def an_event(kind: EventKind, step: int, value: object, **tags: object) -> Event:
    """An event of some step."""
    where = {"seq": 1, "attempt": 1, "ts": 0.0, "run": "r", "key": "k"}
    return Event.model_validate(where | {"kind": kind, "step": step, "value": value, "tags": tags})


def test_episodes_and_evaluations_become_a_history_and_other_events_do_not() -> None:
    report = a_report([1.0, 3.0])
    seen = of_events(
        [
            an_event(EventKind.EPISODE, 10, 5.0, length=7, env=2),
            an_event(EventKind.METRIC, 10, 99.0),
            an_event(EventKind.EVAL, 20, 2.0, summary=report.summary.model_dump(mode="json")),
            an_event(EventKind.EVAL, 30, 2.0, summary="not one"),
            an_event(EventKind.EPISODE, 40, "not a number"),
        ]
    )
    assert seen.episodes == (EpisodeSummary(step=10, ret=5.0, length=7, env=2),)
    assert seen.evaluations == ((20, report.summary),)


def test_returns_are_averaged_over_equal_stretches_of_steps() -> None:
    events = [an_event(EventKind.EPISODE, step, float(step)) for step in (1, 9, 11, 19, 20)]
    steps, means = of_events(events).returns(points=2)
    assert steps == [10, 20, 30]
    assert means == [5.0, 15.0, 20.0]


def test_a_run_without_episodes_has_no_curve_and_no_picture() -> None:
    assert of_events([]).returns() == ([], [])
    assert draw([Curve("empty", [], [])]) == ""


def test_a_picture_has_the_labels_the_axis_and_no_colour_unless_asked() -> None:
    curve = Curve("mine", [0, 50_000, 100_000], [10.0, 200.0, 480.0], [100_000], [490.0])
    plain = draw([curve], target=475.0, colour=False)
    for words in ("mine", "mine, evaluated", "environment steps", "100k", "400"):
        assert words in plain
    assert "\x1b" not in plain
    assert "\x1b" in draw([curve], colour=True)


def test_one_point_and_a_flat_line_can_be_drawn() -> None:
    assert "a" in draw([Curve("a", [5], [3.0])], colour=False)
    assert "b" in draw([Curve("b", [1, 2], [0.0, 0.0])], colour=False)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_few_round_and_within_the_range(low: float, span: float) -> None:
    found = ticks(low, low + span)
    assert len(found) <= 7
    assert all(low - 1e-6 * span <= tick <= low + span + 1e-6 * span for tick in found)
