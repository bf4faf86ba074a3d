"""Batch: rows that stay together, whatever is done to them."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_orch.rl.data.batch import Batch, on_host


def a_batch(rows: int, *, seed: int = 0, following: bool = True) -> Batch:
    """A batch of random rows, with or without next observations."""
    rng = np.random.default_rng(seed)
    return Batch(
        observations={"where": rng.random((rows, 2)), "what": rng.integers(9, size=rows)},
        actions=rng.integers(4, size=rows),
        rewards=rng.random(rows),
        terminated=rng.random(rows) < 0.5,
        truncated=rng.random(rows) < 0.5,
        next_observations={"where": rng.random((rows, 2)), "what": rng.integers(9, size=rows)}
        if following
        else None,
        infos=[{"row": row} for row in range(rows)],
        extras={"log_probs": rng.random(rows)},
    )


def flat(batch: Batch) -> dict[str, Any]:
    """Every column of `a_batch` as plain lists."""
    observations: Any = batch.observations
    nexts: Any = batch.next_observations
    return {
        "where": on_host(observations["where"]).tolist(),
        "what": on_host(observations["what"]).tolist(),
        "next": None if nexts is None else on_host(nexts["where"]).tolist(),
        "infos": batch.infos,
        **{
            name: on_host(batch.column(name)).tolist()
            for name in ("actions", "rewards", "terminated", "truncated", "log_probs")
        },
    }


@given(rows=st.integers(1, 20), cut=st.integers(0, 20), following=st.booleans())
def test_cutting_a_batch_and_merging_the_parts_gives_it_back(
    rows: int, cut: int, following: bool
) -> None:
    batch = a_batch(rows, following=following)
    parts = [batch.select(slice(0, cut)), batch.select(slice(cut, None))]
    assert flat(Batch.merge(parts)) == flat(batch)


@given(rows=st.integers(1, 20), data=st.data())
def test_selecting_takes_the_same_rows_of_every_column(rows: int, data: st.DataObject) -> None:
    indices = data.draw(st.lists(st.integers(0, rows - 1)))
    batch = a_batch(rows)
    selected, whole = flat(batch.select(indices)), flat(batch)
    assert len(batch.select(indices)) == len(indices)
    for name, column in whole.items():
        if column is not None:
            assert selected[name] == [column[index] for index in indices]


@given(rows=st.integers(1, 20), seed=st.integers(0, 100))
def test_a_mask_selects_as_its_positions_do(rows: int, seed: int) -> None:
    batch, mask = a_batch(rows), np.random.default_rng(seed).random(rows) < 0.5
    assert flat(batch.select(mask)) == flat(batch.select(np.flatnonzero(mask)))


@given(rows=st.integers(1, 20), seed=st.integers(0, 100))
def test_tensors_and_arrays_select_alike(rows: int, seed: int) -> None:
    batch = a_batch(rows)
    indices = np.random.default_rng(seed).integers(rows, size=5)
    tensors = batch.to("cpu").select(torch.from_numpy(indices))
    assert isinstance(tensors.column("rewards"), torch.Tensor)
    assert flat(tensors) == flat(batch.select(indices))


def test_an_episode_is_done_for_either_reason() -> None:
    batch = Batch(
        observations=np.zeros(3),
        terminated=np.array([True, False, False]),
        truncated=np.array([False, True, False]),
    )
    assert on_host(batch.dones).tolist() == [True, True, False]
    assert on_host(batch.to("cpu").dones).tolist() == [True, True, False]


def test_a_column_of_another_length_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"column rewards has 2 rows, observations have 3"):
        Batch(observations=np.zeros(3), rewards=np.zeros(2))
    with pytest.raises(ValueError, match="column x has 1 rows"):
        Batch(observations=np.zeros(3), extras={"x": np.zeros(1)})
    with pytest.raises(ValueError, match=r"column observations\.b has 2 rows"):
        Batch(observations={"a": np.zeros(3), "b": np.zeros(2)})
    with pytest.raises(ValueError, match="column infos has 1 rows"):
        Batch(observations=np.zeros(3), infos=[{}])


def test_what_is_not_an_array_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="column rewards is a list"):
        Batch(observations=np.zeros(3), rewards=[1, 2, 3])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="column rewards is a scalar"):
        Batch(observations=np.zeros(3), rewards=np.array(1.0))


def test_asking_for_a_column_that_is_not_there_says_what_is() -> None:
    batch = Batch(observations=np.zeros(3), extras={"values": np.zeros(3)})
    with pytest.raises(
        ValueError, match=r"column rewards is not there; the batch has obs.*, values"
    ):
        batch.column("rewards")


def test_merging_names_the_column_that_does_not_fit() -> None:
    plain = Batch(observations=np.zeros((2, 3)))
    with pytest.raises(ValueError, match="column observations has rows of different shapes"):
        Batch.merge([plain, Batch(observations=np.zeros((2, 4)))])
    with pytest.raises(ValueError, match="column values is in 1 of 2 batches"):
        Batch.merge([plain, plain.with_extras(values=np.zeros(2))])
    with pytest.raises(ValueError, match="column next_observations is in 1 of 2 batches"):
        Batch.merge([a_batch(2), a_batch(2, following=False)])
    with pytest.raises(ValueError, match="column observations is a mapping in some"):
        Batch.merge([plain, Batch(observations={"a": np.zeros(2)})])
    with pytest.raises(ValueError, match="at least one batch"):
        Batch.merge([])


def test_infos_of_either_form_are_carried_along() -> None:
    by_name = Batch(observations=np.zeros(2), infos={"hp": [1, 2]})
    by_row = Batch(observations=np.zeros(1), infos=[{"hp": 3}])
    assert Batch.merge([by_name, by_name]).infos == {"hp": [1, 2, 1, 2]}
    assert Batch.merge([by_row, by_row]).infos == [{"hp": 3}, {"hp": 3}]
    assert by_name.select([1]).infos == {"hp": [2]}


def test_further_columns_replace_those_of_the_same_name_and_leave_the_batch_alone() -> None:
    batch = Batch(observations=np.zeros(1), extras={"values": np.zeros(1)})
    changed = batch.with_extras(values=np.ones(1), log_probs=np.ones(1))
    assert on_host(changed.column("values")) == 1.0
    assert on_host(batch.column("values")) == 0.0


def test_columns_that_cannot_be_tensors_stay_what_they_are() -> None:
    names = np.array(["a", None], dtype=object)
    moved = Batch(observations=np.zeros(2), extras={"names": names}).to("cpu")
    assert moved.extras["names"] is names
