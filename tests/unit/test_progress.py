"""What events add up to."""

from typing import Any

import pytest

from rl_orch.core.ports import Exit
from rl_orch.core.runs.progress import (
    SUSPECT,
    Progress,
    failed_alike,
    idle_attempts,
    was_interrupted,
)
from rl_orch.errors import BadInput, RlctlError
from rl_orch.io.checkpoints.catalog import checkpoint_name
from rl_orch.io.run.heartbeat import Beat
from rl_orch.io.run.history import fails_again
from rl_orch.records import Event, EventKind
from rl_orch.worker.attempt.lifecycle import failure


def an_event(kind: EventKind, key: str, step: int, value: Any = None, **tags: Any) -> Event:
    """An event of the first attempt."""
    where = {"seq": 1, "attempt": 1, "ts": 0.0, "run": "r"}
    what = {"kind": kind, "key": key, "step": step, "value": value, "tags": tags}
    return Event.model_validate(where | what)


def test_the_speed_is_that_of_all_of_training_not_of_the_last_rollout() -> None:
    seen = Progress()
    for step, speed in ((100, 100.0), (200, 50.0)):
        seen = seen.after(an_event(EventKind.LOG, "charts/SPS", step, speed))
    assert seen.sps == pytest.approx(200 / 3.0, abs=0.1)


def test_a_budget_that_was_set_counts_in_its_attempt_and_the_row_has_it_for_the_next() -> None:
    options = {"train.total_timesteps": [900, 300]}
    seen = Progress().after(an_event(EventKind.STATE, "set", 100, set=options))
    assert seen.columns["total_timesteps"] == 300
    seen = seen.after(an_event(EventKind.STATE, "started", 100))
    assert "total_timesteps" not in seen.columns


def test_an_attempt_that_goes_on_from_a_step_counts_from_there() -> None:
    seen = Progress().after(an_event(EventKind.METRIC, "losses/x", 900, 1.0))
    seen = seen.after(an_event(EventKind.STATE, "started", 500))
    assert (seen.env_steps, seen.started, seen.ended) == (500, True, None)


@pytest.mark.parametrize("value", [None, True, "fast", -1.0, 0.0, "NaN", "Infinity", [1]])
def test_a_speed_that_makes_no_sense_changes_nothing(value: Any) -> None:
    assert Progress().after(an_event(EventKind.LOG, "charts/SPS", 100, value)).sps is None


@pytest.mark.parametrize(
    "value", [None, 3, "", ".", "..", "../step_000000000001", "/step_000000000001", "step_1", "x"]
)
def test_only_the_plain_name_of_a_checkpoint_is_taken_for_one(value: Any) -> None:
    assert checkpoint_name(value) is None
    event = an_event(EventKind.CHECKPOINT, "saved", 1, value, best=True)
    assert Progress().after(event).best is None


def test_the_newest_best_checkpoint_is_remembered() -> None:
    first, second = "step_000000000100", "step_000000000200"
    seen = Progress()
    for name, best in ((first, True), (second, False)):
        seen = seen.after(an_event(EventKind.CHECKPOINT, "saved", 1, name, best=best))
    assert seen.best == first


def test_only_an_end_that_nobody_saw_is_an_interruption_and_not_for_ever() -> None:
    unseen, idle = Exit(None), SUSPECT - 1
    assert was_interrupted(unseen, watched=False, idle=idle)
    assert not was_interrupted(unseen, watched=True, idle=0)
    assert not was_interrupted(Exit(-9), watched=False, idle=0)
    assert not was_interrupted(unseen, watched=False, idle=SUSPECT)


def test_a_heartbeat_is_ahead_of_the_events_and_knows_less_of_the_speed() -> None:
    seen = Progress(env_steps=100)
    assert seen.at_beat(None) == seen
    assert seen.at_beat(Beat(1, 60, None)).env_steps == 100
    assert seen.at_beat(Beat(1, 591, 12.0)).columns == {"env_steps": 591, "sps": 12.0}
    told = seen.after(an_event(EventKind.LOG, "charts/SPS", 100, 50.0))
    assert told.at_beat(Beat(1, 591, 12.0)).columns == {"env_steps": 591, "sps": 50.0}


def test_two_attempts_failed_alike_by_one_error_at_one_step_in_a_row() -> None:
    def failed(attempt: int, step: int, why: str = "AssertionError: no", **tags: bool) -> Event:
        said = {"reason": why, "repeats": True, **tags}
        event = an_event(EventKind.STATE, "ended", step, "failed", **said)
        return event.model_copy(update={"attempt": attempt})

    assert failed_alike(2, [failed(1, 64), failed(2, 64)]) == 64
    assert failed_alike(3, [failed(1, 64), failed(2, 96), failed(3, 96)]) == 96
    for ends in (
        [failed(2, 64)],
        [failed(1, 64), failed(2, 96)],
        [failed(1, 64), failed(2, 64, "AssertionError: yes")],
        [failed(1, 64, repeats=False), failed(2, 64, repeats=False)],
    ):
        assert failed_alike(2, ends) is None
    assert failed_alike(3, [failed(1, 64), failed(3, 64)]) is None


def test_attempts_are_idle_since_the_last_that_saved_a_checkpoint_further_on() -> None:
    def saved(attempt: int, step: int) -> Event:
        event = an_event(EventKind.CHECKPOINT, "saved", step)
        return event.model_copy(update={"attempt": attempt})

    assert [idle_attempts(attempt, []) for attempt in (0, 1, 5)] == [0, 1, 5]
    assert idle_attempts(3, [saved(1, 512), saved(3, 1024)]) == 0
    assert idle_attempts(4, [saved(1, 512), saved(2, 1024)]) == 2
    assert idle_attempts(4, [saved(1, 512), saved(3, 512), saved(4, 256)]) == 3
    assert idle_attempts(1, [an_event(EventKind.METRIC, "saved", 512)]) == 1


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (BadInput("it is not there"), True),
        (RlctlError("too long", path="eval.max_episode_steps"), True),
        (RlctlError("no room", path="/home/of/a/run"), False),
        (OSError("no room"), False),
    ],
)
def test_a_failure_is_met_again_where_an_option_or_the_input_is_to_blame(
    error: Exception, again: bool
) -> None:
    final = {"final": True} if failure(error, 0).final else {}
    ended = an_event(EventKind.STATE, "ended", 5, "failed", **final)
    assert fails_again([ended]) is again
    assert not fails_again([ended, an_event(EventKind.STATE, "started", 5)])


@pytest.mark.parametrize(
    ("error", "again"), [(ZeroDivisionError("boom"), True), (OSError("no room"), False)]
)
def test_before_the_first_checkpoint_a_failure_of_code_is_met_again(
    error: Exception, again: bool
) -> None:
    end = failure(error, 0)
    tags = {"repeats": True} if end.repeats else {}
    ended = an_event(EventKind.STATE, "ended", 5, "failed", **tags)
    assert fails_again([ended], saved=False) is again
    assert not fails_again([ended], saved=True)
