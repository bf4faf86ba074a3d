"""The store keeps one contract in SQLite and in PostgreSQL: rows, guarded writes, the queue."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from rl_orch.core.registry.models import Registry
from rl_orch.core.registry.verdicts import Judgement
from rl_orch.core.store.runs import Store
from rl_orch.core.store.tables import MODELS
from rl_orch.errors import BadInput, Conflict, LeaseLost, NotFound
from rl_orch.records import Attempt, EvalReport, Evaluation, State, Verdict
from rl_orch.records.queries import Page, QueryRows
from rl_orch.spec.resolve import resolve
from rl_orch.stats import summarize
from tests.stores import a_run


def test_a_run_comes_back_as_it_was_put_in(store: Store) -> None:
    evaluation = Evaluation(mean=1.5, std=0.5, iqm=1.5, ci95=(1.0, float("inf")), n=4)
    run = a_run(
        "r-1", eval=evaluation, verdict="passed", sps=12.5, group="g", model_id=3,
        runner="external", queue="nächtlich", priority=-5, arrival=7, max_running=2,
        after=("r-0", "ünï ✓"), cpus=4, gpus=1, memory_mb=2**40, retries=3, env_steps=2**62,
        total_timesteps=2**63 - 1, seed=2**53, created_at=1_700_000_000.123456,
        updated_at=1_700_000_000.654321,
    )  # fmt: skip
    store.add(run)
    assert store.get("r-1") == run
    assert "r-1" in store
    assert "r-2" not in store


def test_a_run_cannot_be_added_twice(store: Store) -> None:
    store.add(a_run("r-1", seed=1))
    with pytest.raises(Conflict):
        store.add(a_run("r-1", seed=2))
    assert store.get("r-1").seed == 1


def test_a_write_needs_the_lease(store: Store) -> None:
    store.add(a_run("r-1"))
    assert store.take_lease("r-1", held_by=None, lease="mine")
    store.save(a_run("r-1", state=State.STARTING), lease="mine")
    with pytest.raises(LeaseLost):
        store.save(a_run("r-1", state=State.FAILED), lease="theirs")
    with pytest.raises(LeaseLost):
        store.put_attempt(Attempt(run_id="r-1", number=1, started_at=1.0), lease="theirs")
    assert store.get("r-1").state is State.STARTING


def test_of_many_that_want_the_lease_one_gets_it(store: Store) -> None:
    store.add(a_run("r-1"))
    names = [str(number) for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        won = threads.map(lambda n: store.take_lease("r-1", held_by=None, lease=n), names)
        winners = [name for name, got in zip(names, won, strict=True) if got]
    assert winners == [store.lease_of("r-1")]


def test_two_schedulers_claim_each_of_a_hundred_runs_once(store: Store) -> None:
    store.submit([a_run(f"r-{n:03}") for n in range(100)], key=None, digest="")
    together = threading.Barrier(2)

    def claim(lease: str) -> set[str]:
        together.wait()
        free = [run.id for run, held_by in store.active() if held_by is None]
        return {run_id for run_id in free if store.take_lease(run_id, held_by=None, lease=lease)}

    with ThreadPoolExecutor(2) as threads:
        mine, theirs = threads.map(claim, ["mine", "theirs"])
    assert mine.isdisjoint(theirs)
    assert len(mine | theirs) == 100
    assert {run.id for run, held_by in store.active() if held_by == "mine"} == mine


def test_nobody_takes_a_lease_while_its_holder_writes(store: Store) -> None:
    store.add(a_run("r-1"), lease="mine")
    with ThreadPoolExecutor(1) as thread:
        with store.holding("r-1", "mine") as connection:
            taken = thread.submit(store.take_lease, "r-1", held_by="mine", lease="theirs")
            connection.execute(sa.text("UPDATE runs SET reason = 'written' WHERE id = 'r-1'"))
            assert not taken.done()
        assert taken.result()
    assert store.get("r-1").reason == "written"


def test_a_lease_is_released_only_by_its_holder(store: Store) -> None:
    store.add(a_run("r-1"))
    store.take_lease("r-1", held_by=None, lease="mine")
    store.release("r-1", lease="theirs")
    assert store.lease_of("r-1") == "mine"
    store.release("r-1", lease="mine")
    assert store.lease_of("r-1") is None


def test_a_run_is_found_by_id_beginning_name_or_last(store: Store) -> None:
    store.add(a_run("alpha-1", created_at=1.0, name="walker"))
    store.add(a_run("alpha-2", created_at=2.0, name="walker"))
    store.add(a_run("beta-1", created_at=0.0))
    assert store.find("alpha-1").id == "alpha-1"
    assert store.find("be").id == store.find("BETA").id == "beta-1"
    assert store.find("walker").id == "alpha-2"
    assert store.find("last").id == "alpha-2"
    with pytest.raises(BadInput, match="could be any of: alpha-2, alpha-1"):
        store.find("alpha")
    with pytest.raises(NotFound) as caught:
        store.find("alpha-11")
    assert caught.value.hint == "Did you mean 'alpha-1'?"


def test_a_group_is_found_and_listed_in_one_row(store: Store) -> None:
    for seed in (9, 10, 2):
        store.add(a_run(f"demo-a-s{seed}", group="demo-a", name="demo", seed=seed))
    store.add(a_run("alone", created_at=5.0))
    assert [run.seed for run in store.group_runs("demo-a")] == [2, 9, 10]
    assert [store.find_group(word) for word in ("demo", "demo-a", "Dem")] == ["demo-a"] * 3
    first = store.rows(limit=1)
    assert [[run.id for run in row] for row in first.rows] == [["alone"]]
    rest = store.rows(after=first.next)
    assert [[run.seed for run in row] for row in rest.rows] == [[2, 9, 10]]
    assert rest.next is None


def test_a_reference_with_wildcards_is_taken_literally(store: Store) -> None:
    store.add(a_run("alpha-1"))
    for reference in ("%", "_lpha", "alph%", "a\\", "'; DROP TABLE runs --"):
        with pytest.raises(NotFound):
            store.find(reference)
        assert store.find_group(reference) is None


@pytest.mark.parametrize("text", ["nul\0byte", "half \ud800 a pair"])
def test_text_that_a_database_cannot_hold_is_bad_input(store: Store, text: str) -> None:
    store.add(a_run("r-1"))
    with pytest.raises(BadInput):
        store.find(text)
    assert "r-1" in store


def test_a_number_that_a_database_cannot_hold_is_bad_input(store: Store) -> None:
    with pytest.raises(BadInput):
        store.add(a_run("r-1", env_steps=2**63))
    assert "r-1" not in store


def test_attempts_are_kept_in_order_and_updated_in_place(store: Store) -> None:
    store.add(a_run("r-1"), lease="mine")
    first = Attempt(run_id="r-1", number=1, started_at=1.0)
    store.put_attempt(Attempt(run_id="r-1", number=2, started_at=2.0), lease="mine")
    store.put_attempt(first, lease="mine")
    store.put_attempt(first.model_copy(update={"exit_code": -9}), lease="mine")
    assert [(a.number, a.exit_code) for a in store.attempts("r-1")] == [(1, -9), (2, None)]


def test_removing_a_run_removes_its_attempts(store: Store) -> None:
    store.add(a_run("r-1"), lease="mine")
    store.put_attempt(Attempt(run_id="r-1", number=1, started_at=1.0), lease="mine")
    store.remove("r-1")
    assert store.attempts("r-1") == []


def test_the_active_runs_come_by_arrival_with_who_supervises_them(store: Store) -> None:
    store.submit([a_run("b"), a_run("a", state=State.RUNNING)], key=None, digest="", lease="mine")
    store.submit([a_run("done", state=State.SUCCEEDED), a_run("c")], key=None, digest="")
    assert [(run.id, run.arrival, held_by) for run, held_by in store.active()] == [
        ("b", 1, "mine"),
        ("a", 2, "mine"),
        ("c", 4, None),
    ]


def test_a_requeued_run_is_the_last_to_arrive_and_free(store: Store) -> None:
    store.submit([a_run("a"), a_run("b"), a_run("c")], key=None, digest="")
    store.take_lease("a", held_by=None, lease="mine")
    with pytest.raises(LeaseLost):
        store.requeue(store.get("a"), lease="theirs")
    again = store.requeue(a_run("a", retries=1), lease="mine")
    assert again == store.get("a")
    assert (again.arrival, again.retries) == (4, 1)
    assert [(run.id, held_by) for run, held_by in store.active()] == [
        ("b", None), ("c", None), ("a", None)
    ]  # fmt: skip


def test_the_same_key_makes_the_same_runs_once(store: Store) -> None:
    assert store.submitted("k", "digest") is None
    first = store.submit([a_run("r-1"), a_run("r-2")], key="k", digest="digest")
    again = store.submit([a_run("r-3"), a_run("r-4")], key="k", digest="digest")
    assert first == again == store.submitted("k", "digest") == ["r-1", "r-2"]
    assert "r-3" not in store


def test_a_key_cannot_stand_for_two_things(store: Store) -> None:
    store.submit([a_run("r-1")], key="k", digest="digest")
    with pytest.raises(Conflict, match="'k' was used for another submission"):
        store.submit([a_run("r-2")], key="k", digest="another")
    with pytest.raises(Conflict):
        store.submitted("k", "another")
    assert "r-2" not in store


def test_of_many_submissions_with_one_key_at_once_one_makes_runs(store: Store) -> None:
    together = threading.Barrier(4)

    def submit(number: int) -> list[str]:
        together.wait()
        return store.submit([a_run(f"r-{number}")], key="k", digest="digest")

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(submit, range(4)))
    assert [run.id for run in store.page().runs] == answers[0]
    assert answers == [answers[0]] * 4


def test_of_submissions_at_once_no_two_arrive_at_the_same_place(store: Store) -> None:
    with ThreadPoolExecutor(4) as threads:
        ids = [f"r-{number}" for number in range(20)]
        list(threads.map(lambda i: store.submit([a_run(i)], key=None, digest=""), ids))
    assert [run.arrival for run, _ in store.active()] == list(range(1, 21))


def test_runs_that_do_not_get_ready_are_not_there(store: Store) -> None:
    seen: list[bool] = []

    def not_ready() -> None:
        seen.append("r-1" in store)
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        store.submit([a_run("r-1")], key="k", digest="digest", ready=not_ready)
    assert seen == [False]
    assert "r-1" not in store
    assert store.submitted("k", "digest") is None
    assert store.submit([a_run("r-1")], key="k", digest="digest") == ["r-1"]


def test_of_runs_submitted_together_all_are_there_or_none(store: Store) -> None:
    store.add(a_run("r-2"))
    with pytest.raises(Conflict):
        store.submit([a_run("r-1"), a_run("r-2")], key="k", digest="digest")
    assert "r-1" not in store
    assert store.submitted("k", "digest") is None


def test_the_registry_keeps_a_row_for_each_checkpoint(store: Store) -> None:
    registry, spec = Registry(store), resolve({"env": {"id": "CartPole-v1"}})
    run, path, seeds = a_run("r-1", created_at=2.0**33), Path("/p/c"), [470.0, 480.125, 490.3]
    store.add(run, lease="mine")
    report = EvalReport(
        env_id="CartPole-v1", step=2**40, seed=1, deterministic=True, returns=tuple(seeds),
        lengths=(1, 2, 4), summary=summarize(seeds),
    )  # fmt: skip
    number = registry.register(run, spec, path, report, lease="mine", git_commit=None)
    assert registry.register(run, spec, path, report, lease="mine", git_commit=None) == number
    passed = Verdict(passed=True, checks=())
    registry.judge(run, number, report, Judgement(passed), lease="mine")
    registry.forget(run, path, lease="mine")
    kept = registry.at(path)
    assert kept is not None
    assert kept == registry.get(number) == registry.of_run("r-1")[0]
    assert (kept.mean_reward, kept.mean_episode_length) == (report.summary.mean, 7 / 3)
    assert (kept.timestamp, kept.total_timesteps) == (2**33, 2**40)
    assert kept.validated
    assert kept.verdict == passed
    registry.forget_run("r-1")
    with store.reading() as connection:
        assert connection.execute(sa.select(MODELS)).all() == []


def test_paths_follow_a_home_that_was_moved(store: Store) -> None:
    store.relocate(Path("/old home"))
    store.add(a_run("r-1", path="/old home/runs/r-1"))
    store.add(a_run("r-2", path="/old homestead/runs/r-2"))
    store.relocate(Path("/new"))
    assert [store.get(i).path for i in ("r-1", "r-2")] == [
        "/new/runs/r-1",
        "/old homestead/runs/r-2",
    ]


def test_an_empty_store_has_nothing_to_list(store: Store) -> None:
    assert store.page() == Page((), None)
    assert store.rows() == QueryRows((), None)
    assert store.active() == []
