"""The newest numbers of a run: from memory where it holds enough, and the same from its files."""

import json
import threading
from pathlib import Path

import pytest

from rl_orch.errors import BadInput
from rl_orch.io.metrics import recent
from rl_orch.io.metrics.recent import Recent, TrainingStep
from rl_orch.io.run.events import EventWriter, read
from rl_orch.records import Event


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of two attempts; the second goes on from the fourth loss of the first."""
    for attempt, after in ((1, None), (2, {"attempt": 1, "seq": 8})):
        with EventWriter(
            tmp_path / "events.jsonl", run="r1", attempt=attempt, clock=lambda: 12.5
        ) as log:
            log.emit("state", "started", step=0, tags={"after": after})
            for step in range(20):
                log.emit("metric", "losses/value_loss", attempt + step / 100, step=step)
                log.emit("episode", "episode", float(step), step=step, tags={"length": step})
    return tmp_path


def filled(run: Path, held: int = recent.HELD) -> Recent:
    memory = Recent(held)
    memory.take("r1", list(read(run / "events.jsonl")))
    return memory


def test_the_newest_numbers_come_oldest_first(run: Path) -> None:
    expected = [
        TrainingStep(step=18, key="charts/episodic_length", value=18.0, ts=12.5),
        TrainingStep(step=19, key="losses/value_loss", value=2.19, ts=12.5),
        TrainingStep(step=19, key="charts/episodic_return", value=19.0, ts=12.5),
        TrainingStep(step=19, key="charts/episodic_length", value=19.0, ts=12.5),
    ]
    assert filled(run).recent("r1", 4) == recent.of_run(run, 4) == expected


@pytest.mark.parametrize("count", [1, 2, 7, 20, 60])
@pytest.mark.parametrize("keys", [(), ("losses/value_loss",), ("charts/episodic_return", "x")])
def test_memory_and_files_give_the_same_answer(
    run: Path, count: int, keys: tuple[str, ...]
) -> None:
    from_memory = filled(run).recent("r1", count, keys)
    from_files = recent.of_run(run, count, keys)
    assert from_memory in (None, from_files)
    assert (from_memory is None) == (count > (20 if keys else 60))


def test_the_files_know_what_an_attempt_goes_on_from(run: Path) -> None:
    found = recent.of_run(run, 100, ["losses/value_loss"])
    assert [one.value for one in found[:5]] == [1.0, 1.01, 1.02, 1.03, 2.0]
    assert len(found) == 24


def test_a_key_that_was_pushed_out_of_memory_is_asked_of_the_files(run: Path) -> None:
    memory = filled(run, held=6)
    assert memory.recent("r1", 2, ["losses/value_loss"]) is not None
    assert memory.recent("r1", 3, ["losses/value_loss"]) is None
    assert memory.recent("r1", 7) is None


def test_memory_is_bounded_whatever_the_keys_are_called() -> None:
    memory = Recent(held=100)
    for step in range(1_000):
        memory.take("r1", [event(1, step + 1, step, f"key {step}")])
        memory.take("r1", [event(1, step + 1, step, "x" * 10_000)])
    found = memory.recent("r1", 100)
    assert found is not None
    assert [one.key for one in found] == [f"key {step}" for step in range(900, 1_000)]
    assert memory.recent("r1", 101) is None


def test_a_new_attempt_makes_memory_forget_what_it_may_supersede() -> None:
    memory = Recent()
    memory.take("r1", [event(1, seq, seq) for seq in range(1, 10)])
    assert memory.recent("r1", 3) is not None
    memory.take("r1", [event(2, 1, 5, start=True)])
    assert memory.recent("r1", 1) is None
    memory.take("r1", [event(1, 10, 10), event(2, 2, 6)])
    found = memory.recent("r1", 1)
    assert found is not None
    assert [one.step for one in found] == [6]
    assert memory.recent("r1", 2) is None


def test_a_run_that_is_not_in_memory_or_was_forgotten_is_asked_of_the_files(run: Path) -> None:
    memory = filled(run)
    assert memory.recent("r2", 1) is None
    memory.forget("r1")
    memory.forget("r1")
    assert memory.recent("r1", 1) is None


@pytest.mark.parametrize("count", [0, -1, 10_001])
def test_a_count_out_of_bounds_is_refused(tmp_path: Path, count: int) -> None:
    with pytest.raises(BadInput, match=f"count is {count}; must be from 1 to 10000"):
        recent.of_run(tmp_path, count)
    with pytest.raises(BadInput, match=f"count is {count}"):
        Recent().recent("r1", count)


def test_a_run_that_has_told_nothing_has_no_recent_numbers(tmp_path: Path) -> None:
    assert recent.of_run(tmp_path, 10) == []


def test_a_number_that_is_not_finite_is_a_word_in_json() -> None:
    memory = Recent()
    memory.take("r1", [event(1, 1, 1).model_copy(update={"value": "NaN"})])
    found = memory.recent("r1", 1)
    assert found is not None
    assert json.loads(found[0].model_dump_json())["value"] == "NaN"


def test_many_threads_may_take_and_ask() -> None:
    memory = Recent(held=50)

    def take_and_ask() -> None:
        for seq in range(1, 300):
            memory.take("r1", [event(1, seq, seq)])
            memory.recent("r1", 5)

    threads = [threading.Thread(target=take_and_ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(memory.recent("r1", 50) or ()) == 50


def event(attempt: int, seq: int, step: int, key: str = "k", *, start: bool = False) -> Event:
    kind, name = ("state", "started") if start else ("metric", key)
    return Event.model_validate(
        {
            "seq": seq,
            "attempt": attempt,
            "ts": 1.0,
            "run": "r1",
            "step": step,
            "kind": kind,
            "key": name,
            "value": None if start else float(step),
        }
    )
