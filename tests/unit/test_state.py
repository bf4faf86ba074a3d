"""The transition table: what may follow what, and nothing else."""

import itertools

import pytest

from rl_orch.core.runs.state import EXIT_CODES, NEXT, advance
from rl_orch.errors import IllegalTransition
from rl_orch.records import Run, State


def a_run(state: State) -> Run:
    """A run in a state."""
    return Run(
        id="r", name="n", env="e", algo="ppo", config_hash="h", path="/p", seed=1,
        total_timesteps=1, created_at=0.0, updated_at=0.0, state=state,
    )  # fmt: skip


@pytest.mark.parametrize(("before", "after"), list(itertools.product(State, State)))
def test_a_run_advances_exactly_where_the_table_allows_it(before: State, after: State) -> None:
    if after in NEXT[before]:
        assert advance(a_run(before), after, "because").reason == "because"
    else:
        with pytest.raises(IllegalTransition, match=f"is {before} and cannot become {after}"):
            advance(a_run(before), after, "because")


def test_a_run_that_ended_goes_on_by_way_of_the_queue_alone() -> None:
    ended = {state for state in State if not a_run(state).active}
    assert {state for state in State if NEXT[state] == {State.QUEUED}} == ended


def test_every_state_can_be_reached_from_queued() -> None:
    reached = {State.QUEUED}
    for _ in State:
        reached |= {after for before in reached for after in NEXT[before]}
    assert reached == set(State)


def test_every_state_that_ends_a_run_has_an_exit_code() -> None:
    ended = {state for state in State if not a_run(state).active}
    assert set(EXIT_CODES) == ended
