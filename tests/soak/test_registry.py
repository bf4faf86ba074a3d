"""The long form of the race for the registry, with the figures that it comes to."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.registry_race import Least, race

LEAST = Least(seconds=60.0, kills=50, changes=50)
Tell = Callable[[str, object], None]


@pytest.mark.parametrize("seed", [11, 12])
def test_a_minute_of_eight_processes_loses_nothing_in_sqlite(
    tmp_path: Path, record_property: Tell, seed: int
) -> None:
    figures = race(tmp_path / "home", tmp_path / "rlctl.db", LEAST, seed=seed)
    record_property("figures", str(figures))
    assert figures.changes >= 50, str(figures)


@pytest.mark.parametrize("seed", [21, 22])
def test_a_minute_of_eight_processes_loses_nothing_in_postgresql(
    tmp_path: Path, postgres_url: str, record_property: Tell, seed: int
) -> None:
    figures = race(tmp_path / "home", postgres_url, LEAST, seed=seed)
    record_property("figures", str(figures))
    assert figures.changes >= 50, str(figures)
