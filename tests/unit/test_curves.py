"""Curves: from events to history, and from history to a picture in the terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_orch.cli.views.chart import draw, ticks
from rl_orch.core.runs.curves import Curve, Line, folded, smoothed
from rl_orch.io.run.history import of_events
from rl_orch.records import Episodes, EpisodeSummary, Event, EventKind, History
from rl_orch.stats import summarize
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
    assert list(seen.episodes) == [EpisodeSummary(step=10, ret=5.0, length=7, env=2)]
    assert seen.evaluations == ((20, report.summary),)


def test_returns_are_averaged_over_equal_stretches_of_steps() -> None:
    events = [an_event(EventKind.EPISODE, step, float(step)) for step in (1, 9, 11, 19, 20)]
    steps, means = of_events(events).returns(points=2)
    assert steps == [10, 20, 30]
    assert means == [5.0, 15.0, 20.0]


def test_a_run_without_episodes_has_no_curve_and_no_picture() -> None:
    assert of_events([]).returns() == ([], [])
    assert draw([Curve("empty", Line())]) == ""


def test_a_picture_has_the_labels_the_axis_and_no_colour_unless_asked() -> None:
    trained = Line([0, 50_000, 100_000], [10.0, 200.0, 480.0])
    curve = Curve("mine", trained, Line([100_000], [490.0]))
    plain = draw([curve], target=475.0, colour=False)
    for words in ("mine", "mine, evaluated", "environment steps", "100k", "400"):
        assert words in plain
    assert "\x1b" not in plain
    assert "\x1b" in draw([curve], colour=True)


def test_one_point_and_a_flat_line_can_be_drawn() -> None:
    assert "a" in draw([Curve("a", Line([5], [3.0]))], colour=False)
    assert "b" in draw([Curve("b", Line([1, 2], [0.0, 0.0]))], colour=False)


def a_past(values: dict[int, float], evaluated: dict[int, float] | None = None) -> History:
    """The history of a run with an episode at each of some steps."""
    return History(
        Episodes.of(EpisodeSummary(step, value, 1, 0) for step, value in values.items()),
        tuple((step, summarize([value, value])) for step, value in (evaluated or {}).items()),
    )


def test_runs_fold_into_their_mean_with_the_interval_over_runs_at_each_stretch() -> None:
    curve = folded(
        [a_past({s: 1.0 * s for s in range(80)}), a_past(dict.fromkeys(range(80), 3.0))], "two"
    )
    assert curve.training.steps == list(range(1, 81))
    assert curve.training.returns[:3] == [1.5, 2.0, 2.5]
    low, high = curve.training.low, curve.training.high
    assert (low[3], high[3]) == (3.0, 3.0)
    assert high[0] - 1.5 == pytest.approx(12.7062047 * 1.5)
    assert curve.extent == (0.0, 79.0)


def test_one_run_alone_has_no_band() -> None:
    curve = folded([a_past({1: 1.0, 2: 2.0})], "one")
    assert curve.training.returns == [1.0, 2.0]
    assert (curve.training.low, curve.training.high) == ((), ())


def test_mean_and_band_end_with_the_shortest_run_and_the_others_go_on_by_themselves() -> None:
    short = a_past(dict.fromkeys(range(40), 500.0))
    slow, slower = (a_past(dict.fromkeys(range(80), value)) for value in (100.0, 200.0))
    curve = folded([short, slow, slower], "uneven")
    assert curve.training.steps[-1] == 40
    assert curve.training.returns == pytest.approx([800.0 / 3] * 40)
    assert [(tail.steps[0], tail.steps[-1]) for tail in curve.tails] == [(40, 80), (40, 80)]
    assert [set(tail.returns) for tail in curve.tails] == [{100.0}, {200.0}]
    assert curve.last_step == 80


def test_runs_that_end_an_episode_apart_count_as_equally_long() -> None:
    curve = folded(
        [a_past(dict.fromkeys(range(79), 1.0)), a_past(dict.fromkeys(range(80), 2.0))], "even"
    )
    assert curve.tails == []


def test_a_stretch_without_an_episode_keeps_the_return_before_and_none_is_made_up() -> None:
    curve = folded([a_past({0: 1.0, 2: 5.0, 79: 5.0}), a_past({1: 3.0, 79: 3.0})], "sparse")
    assert curve.training.steps[:3] == [2, 3, 4]
    assert curve.training.returns[:3] == [2.0, 4.0, 4.0]


def test_runs_that_have_no_stretch_in_common_have_no_mean() -> None:
    curve = folded([a_past({0: 1.0}), a_past({79: 2.0})], "apart")
    assert curve.training == Line()
    assert draw([curve], colour=False) == ""


def test_evaluations_are_folded_where_every_run_had_one() -> None:
    first = a_past({1: 0.0}, {10: 1.0, 20: 3.0, 25: 9.0})
    curve = folded([first, a_past({1: 0.0}, {10: 3.0, 20: 3.0})], "judged")
    assert (curve.evaluated.steps, curve.evaluated.returns) == ([10, 20], [2.0, 3.0])
    assert curve.evaluated.low[1] == 3.0


def test_a_band_is_shaded_within_the_frame_and_the_legend_stands_below() -> None:
    low, high = [-1e6, 0.0], [1e6, 90.0]
    curve = Curve("mine", Line([1000, 2000], [10.0, 50.0], low, high), extent=(0.0, 100.0))
    drawn = draw([curve], colour=False).splitlines()
    assert sum(line.count("░") for line in drawn[:-1]) > 50
    assert "100" in drawn[1] + drawn[2]
    assert drawn[-1] == "  ── mine   ░ 95 % interval of the mean"


def test_without_colour_several_curves_are_drawn_with_letters() -> None:
    lines = [Curve(name, Line([0, 9], [0.0, end])) for name, end in (("one", 9.0), ("two", 5.0))]
    drawn = draw(lines, colour=False)
    assert "  a one" in drawn
    assert "  b two" in drawn
    assert drawn.count("a") > 20
    assert "──" not in draw(lines, colour=True).splitlines()[-1].replace("── two", "")


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_few_round_and_within_the_range(low: float, span: float) -> None:
    found = ticks(low, low + span)
    assert len(found) <= 7
    assert all(low - 1e-6 * span <= tick <= low + span + 1e-6 * span for tick in found)


def test_a_band_stays_where_returns_have_been() -> None:
    """Seeds that differ a lot have an interval that is wider than what an environment gives."""
    levels = (0.0, 500.0, 500.0)
    histories = [
        History(Episodes.of(EpisodeSummary(step, level, 1, 0) for step in (10, 20, 30)))
        for level in levels
    ]
    training = folded(histories, "g").training
    assert (set(training.low), set(training.high)) == ({0.0}, {500.0})


def test_a_smoothed_curve_is_a_moving_mean_and_says_nothing_else_of_evaluations() -> None:
    line = Line([1, 2, 3, 4], [0.0, 3.0, 6.0, 9.0])
    curve = smoothed(Curve("a", line, evaluated=line), 3)
    assert list(curve.training.returns) == [1.5, 3.0, 6.0, 7.5]
    assert (list(curve.training.steps), curve.evaluated) == ([1, 2, 3, 4], line)


def test_the_interval_of_evaluations_is_not_cut() -> None:
    pasts = [a_past({1: 0.0, 2: 500.0}, {10: level}) for level in (0.0, 500.0, 500.0)]
    curve = folded(pasts, "g")
    (low,), (high,) = curve.evaluated.low, curve.evaluated.high
    assert (low, high) == pytest.approx((-383.775, 1050.442), abs=1e-3)
    assert curve.whiskers == [low, high]
