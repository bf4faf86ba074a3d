"""Faults by chance: each seed is a workload, one fault in the middle of it, and the checker."""

from pathlib import Path

import pytest

from tests.faults.scenarios import ALONE, play

SEEDS = (1, 2)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_fault_chance_picks_the_history_holds(tmp_path: Path, seed: int) -> None:
    play(tmp_path, seed, ALONE, None)
