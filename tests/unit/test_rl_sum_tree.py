"""`SumTree` against plain sums: what it holds, and where a mass falls."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_orch.rl.replay.sum_tree import SumTree

a_few = settings(max_examples=60, deadline=None)
weights = st.floats(0.0, 1e6, allow_subnormal=False)


def a_tree(*leaves: float) -> SumTree:
    tree = SumTree(len(leaves))
    tree.set(np.arange(len(leaves)), np.array(leaves))
    return tree


def found(tree: SumTree, *masses: float) -> list[int]:
    return [int(position) for position in tree.find(np.array(masses))]


def test_a_mass_falls_where_the_running_sum_of_weights_passes_it() -> None:
    tree = a_tree(3.0, 0.0, 1.0, 2.0, 4.0)
    assert tree.total == 10.0
    assert found(tree, 0.0, 2.9, 3.0, 3.9, 4.0, 5.9, 6.0, 9.9) == [0, 0, 2, 2, 3, 3, 4, 4]


def test_a_mass_that_rounding_has_pushed_to_the_total_still_finds_a_weight() -> None:
    assert found(a_tree(0.1, 0.2, 0.3, 0.0, 0.0), 0.6, 0.6000000000000001, 1.0) == [2, 2, 2]


def test_one_weight_is_a_tree() -> None:
    tree = a_tree(2.5)
    assert tree.total == 2.5
    assert found(tree, 0.0, 2.4) == [0, 0]


def test_of_two_weights_for_one_position_the_later_counts() -> None:
    tree = a_tree(1.0, 1.0, 1.0, 1.0)
    tree.set(np.array([2, 2]), np.array([7.0, 5.0]))
    assert tree.get(np.array([2])).tolist() == [5.0]
    assert tree.total == 8.0


def test_nothing_changes_where_no_weight_is_given() -> None:
    tree = a_tree(1.0, 2.0)
    tree.set(np.array([], np.int64), 3.0)
    assert tree.total == 3.0


@a_few
@given(
    size=st.integers(1, 200),
    changes=st.lists(
        st.lists(st.tuples(st.integers(0, 199), weights), min_size=1, max_size=30), max_size=6
    ),
)
def test_a_tree_is_what_its_leaves_say_bit_for_bit_whatever_its_history(
    size: int, changes: list[list[tuple[int, float]]]
) -> None:
    tree, leaves = SumTree(size), np.zeros(size)
    for change in changes:
        at = np.array([position % size for position, _ in change])
        values = np.array([weight for _, weight in change])
        tree.set(at, values)
        leaves[at] = values
    anew = SumTree(size)
    anew.set(np.arange(size), leaves)
    assert tree.get(np.arange(size)).tolist() == leaves.tolist()
    assert tree.total == anew.total == pytest.approx(leaves.sum())
    if leaves.any():
        masses = np.linspace(0.0, tree.total, 50)
        assert tree.find(masses).tolist() == anew.find(masses).tolist()
        assert (leaves[tree.find(masses)] > 0.0).all()


@a_few
@given(leaves=st.lists(st.integers(0, 50), min_size=1, max_size=70).filter(any))
def test_every_whole_mass_falls_where_the_cumulated_sum_says(leaves: list[int]) -> None:
    tree = a_tree(*map(float, leaves))
    masses = np.arange(sum(leaves))
    expected = np.searchsorted(np.cumsum(leaves), masses, side="right")
    assert tree.find(masses.astype(np.float64)).tolist() == expected.tolist()
