"""Shipped specs that take more than seconds learn what they are for. `make test` carries all of
them out for some steps, and has their algorithms learn what is known by hand.
"""

import pytest

from tests.learning.conftest import one_thread
from tests.learning.test_configs import solves

__all__ = ["one_thread"]

SOLVED = {
    "sac-Pendulum-v1.yaml": -200.0,
    "td3-Pendulum-v1.yaml": -200.0,
    "tqc-Pendulum-v1.yaml": -200.0,
    "crossq-Pendulum-v1.yaml": -200.0,
}


@pytest.mark.parametrize("name", SOLVED)
def test_a_shipped_spec_reaches_the_level_that_counts_as_solved(name: str) -> None:
    solves(name, 1, SOLVED[name])
