"""Groups of seeds: what is asked for, how runs fold into one, and how groups are found again."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_orch.core.runs.groups import fold, folded_state
from rl_orch.core.store.runs import Store
from rl_orch.errors import BadInput, SpecInvalid
from rl_orch.records import Group, Run, State
from rl_orch.spec.resolve import resolve
from rl_orch.stats import summarize
from rl_orch.testing import a_spec

S = State


def a_run(run_id: str = "g-1-s0", *, group: str | None = "g-1", **changes: Any) -> Run:
    """A run of a group."""
    run = Run(
        id=run_id, name="g", group=group, env="CartPole-v1", algo="ppo", config_hash="h", path="/p",
        seed=0, total_timesteps=100, created_at=0.0, updated_at=0.0,
    )  # fmt: skip
    return run.model_copy(update=changes)


def judged(seed: int, mean: float, **changes: Any) -> Run:
    """A run of a group whose final evaluation had that mean."""
    ended: dict[str, Any] = {
        "state": S.SUCCEEDED,
        "seed": seed,
        "env_steps": 100,
        "eval": summarize([mean] * 3),
    }
    return a_run(f"g-1-s{seed}", **(ended | changes))


seeds = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20, unique=True)


@given(seeds)
def test_a_list_of_seeds_asks_for_a_run_with_each_in_that_order(chosen: list[int]) -> None:
    for typed in (chosen, tuple(chosen), str(chosen), f" {chosen} "):
        members = resolve({"env": {"id": "x"}, "seeds": typed}).members
        assert [member.env.seed for member in members] == chosen


def test_seeds_may_be_typed_without_brackets() -> None:
    members = resolve({"env": {"id": "x"}}, flags={"seeds": "3, 1,2"}).members
    assert [member.env.seed for member in members] == [3, 1, 2]


@given(st.integers(1, 1000), st.integers(0, 2**32 - 1001))
def test_a_number_of_seeds_counts_up_from_the_seed(n: int, first: int) -> None:
    spec = resolve({"env": {"id": "x", "seed": first}, "seeds": str(n)})
    assert [member.env.seed for member in spec.members] == list(range(first, first + n))


@given(
    st.one_of(
        st.integers(max_value=0),
        st.integers(min_value=1001),
        st.floats(1.1, 1.9),
        st.booleans(),
        seeds.map(lambda chosen: [*chosen, chosen[0]]),
        st.lists(st.integers(max_value=-1), min_size=1, max_size=3, unique=True),
        st.lists(st.integers(min_value=2**32), min_size=1, max_size=3, unique=True),
        st.sampled_from([[], "", "a", "1,", ",", "1;2", [[1]], [None], {"a": 1}, "[1, 1.5]"]),
    )
)
def test_what_is_neither_a_count_nor_distinct_seeds_is_refused(typed: Any) -> None:
    with pytest.raises(SpecInvalid) as caught:
        resolve({"env": {"id": "x"}, "seeds": typed})
    assert [problem.path for problem in caught.value.problems] == ["seeds"]


def test_a_count_that_passes_the_last_seed_is_refused() -> None:
    with pytest.raises(SpecInvalid, match="the last seed would be 4294967296"):
        a_spec("seeds=2", "env.seed=4294967295")
    assert len(a_spec("seeds=1", "env.seed=4294967295").members) == 1


def test_members_are_specs_of_one_run_each_and_share_the_hash() -> None:
    spec = a_spec("seeds=3", "name=mine", "train.lr=1e-3")
    assert {member.config_hash for member in spec.members} == {spec.config_hash}
    assert a_spec("name=mine", "train.lr=1e-3").config_hash == spec.config_hash
    assert [member.members for member in spec.members] == [[], [], []]
    assert spec.members[0] == a_spec("name=mine", "train.lr=1e-3")
    assert a_spec().members == []


@pytest.mark.parametrize(
    ("states", "folded"),
    [
        ([S.QUEUED, S.QUEUED], S.QUEUED),
        ([S.QUEUED, S.SUCCEEDED], S.RUNNING),
        ([S.FAILED, S.EVALUATING], S.RUNNING),
        ([S.SUCCEEDED, S.STARTING], S.RUNNING),
        ([S.SUCCEEDED, S.REJECTED, S.STOPPED, S.FAILED], S.FAILED),
        ([S.STOPPED, S.LOST], S.FAILED),
        ([S.REJECTED, S.STOPPED, S.SUCCEEDED], S.STOPPED),
        ([S.SUCCEEDED, S.REJECTED], S.REJECTED),
        ([S.SUCCEEDED, S.SUCCEEDED], S.SUCCEEDED),
    ],
)
def test_a_group_is_queued_then_running_and_then_in_the_worst_state_of_its_runs(
    states: Sequence[State], folded: State
) -> None:
    assert folded_state(states) is folded
    assert folded_state(states[::-1]) is folded


def test_a_group_sums_steps_counts_states_and_keeps_the_order() -> None:
    runs = [
        judged(7, 10.0, verdict="passed", created_at=5.0, updated_at=9.0),
        a_run("g-1-s2", seed=2, state=S.RUNNING, env_steps=40, created_at=6.0, updated_at=8.0),
        judged(3, 30.0, state=S.REJECTED, verdict="failed", created_at=7.0, updated_at=7.0),
    ]
    group = fold(runs)
    assert (group.id, group.seeds, group.runs) == ("g-1", (7, 2, 3), ("g-1-s7", "g-1-s2", "g-1-s3"))
    assert (group.env_steps, group.total_timesteps) == (240, 300)
    assert group.counts == {S.SUCCEEDED: 1, S.RUNNING: 1, S.REJECTED: 1}
    assert (group.state, group.active) == (S.RUNNING, True)
    assert (group.verdicts.passed, group.verdicts.n) == (1, 2)
    assert (group.created_at, group.updated_at) == (5.0, 9.0)
    assert Group.model_validate_json(group.model_dump_json()) == group


def test_the_evaluation_of_a_group_is_over_the_means_of_the_runs_that_were_judged() -> None:
    runs = [
        judged(1, 100.0),
        judged(2, 300.0, state=S.REJECTED),
        judged(3, 999.0, state=S.STOPPED),
        judged(4, 999.0, state=S.RUNNING),
    ]
    found = fold(runs).eval
    assert found is not None
    assert (found.mean, found.iqm, found.n, found.unit) == (200.0, 200.0, 2, "training runs")
    assert found.std == pytest.approx(141.42, abs=0.01)
    half = 12.7062047 * 100.0
    assert found.ci95 == pytest.approx((200.0 - half, 200.0 + half))
    assert found.iqm_ci95 == pytest.approx(found.ci95)


def test_a_group_without_a_final_evaluation_has_no_numbers() -> None:
    assert fold([a_run(state=S.RUNNING, eval=summarize([5.0, 6.0]))]).eval is None


def test_one_run_alone_says_nothing_of_its_spec() -> None:
    found = fold([judged(1, 100.0)]).eval
    assert found is not None
    assert found.ci95 == found.iqm_ci95 == (float("-inf"), float("inf"))


@pytest.mark.parametrize("runs", [[], [a_run(group=None)], [a_run(), a_run(group="g-2")]])
def test_what_is_not_one_group_cannot_be_folded(runs: list[Run]) -> None:
    with pytest.raises(ValueError, match="one group"):
        fold(runs)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two groups of one name, a run between them, and a newer run with a name of its own."""
    made = Store(tmp_path / "rlctl.db")
    for age, (group, seed) in enumerate([("demo-aaa", 9), ("demo-aaa", 10), ("demo-aaa", 2)]):
        made.add(
            a_run(f"{group}-s{seed}", group=group, name="demo", seed=seed, created_at=1.0 + age)
        )
    made.add(a_run("alone-mmm", group=None, name="alone", created_at=10.0))
    made.add(a_run("demo-bbb-s1", group="demo-bbb", name="demo", seed=1, created_at=20.0))
    made.add(a_run("demox-ccc", group=None, name="x", created_at=30.0))
    return made


def test_the_runs_of_a_group_come_by_seed(store: Store) -> None:
    assert [run.seed for run in store.group_runs("demo-aaa")] == [2, 9, 10]
    assert store.group_runs("demo") == []


@pytest.mark.parametrize(
    ("reference", "group"),
    [
        ("demo-aaa", "demo-aaa"),
        ("demo-a", "demo-aaa"),
        ("demo", "demo-bbb"),
        ("demo-aaa-s9", None),
        ("demo-aaa-s", None),
        ("alone", None),
        ("alone-m", None),
        ("x", None),
        ("demox", None),
        ("last", None),
        ("nobody", None),
    ],
)
def test_a_group_goes_by_its_id_a_name_or_a_unique_beginning(
    store: Store, reference: str, group: str | None
) -> None:
    assert store.find_group(reference) == group


@pytest.mark.parametrize("reference", ["demo-", "dem", "d"])
def test_a_beginning_of_several_rows_is_refused_with_their_ids(
    store: Store, reference: str
) -> None:
    with pytest.raises(BadInput, match="could be any of: demo-aaa, demo-bbb"):
        store.find_group(reference)


def test_a_name_whose_newest_run_is_in_no_group_means_that_run(store: Store) -> None:
    store.add(a_run("demo-zzz", group=None, name="demo", created_at=40.0))
    assert store.find_group("demo") is None
    assert store.find("demo").id == "demo-zzz"


def test_last_is_still_the_newest_run(store: Store) -> None:
    store.add(a_run("new-s1", group="new", created_at=50.0))
    assert store.find("last").id == "new-s1"


def test_rows_have_groups_as_old_as_their_first_run_and_pages_leave_nothing_out(
    store: Store,
) -> None:
    whole = store.rows()
    ids = [[run.id for run in runs] for runs in whole.rows]
    assert ids == [
        ["demox-ccc"],
        ["demo-bbb-s1"],
        ["alone-mmm"],
        ["demo-aaa-s2", "demo-aaa-s9", "demo-aaa-s10"],
    ]
    assert whole.next is None
    for limit in (1, 2, 3):
        seen, after = [], None
        while True:
            page = store.rows(limit=limit, after=after)
            seen += list(page.rows)
            if (after := page.next) is None:
                break
        assert tuple(seen) == whole.rows


def test_rows_take_no_cursor_that_is_not_theirs(store: Store) -> None:
    with pytest.raises(BadInput, match="not one of ours"):
        store.rows(after="yesterday")
