"""Eight processes at one registry, some of them killed; `tests/soak` has the long form."""

from collections.abc import Callable
from pathlib import Path

from tests.registry_race import Least, race

LEAST = Least(seconds=5.0, kills=5, changes=10)


def test_nothing_is_lost_in_sqlite(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    figures = race(tmp_path / "home", tmp_path / "rlctl.db", LEAST, seed=1)
    record_property("figures", str(figures))
    assert figures.kills >= 5, str(figures)
    assert figures.changes >= 10, str(figures)


def test_nothing_is_lost_in_postgresql(
    tmp_path: Path, postgres_url: str, record_property: Callable[[str, object], None]
) -> None:
    figures = race(tmp_path / "home", postgres_url, LEAST, seed=2)
    record_property("figures", str(figures))
    assert figures.kills >= 5, str(figures)
    assert figures.changes >= 10, str(figures)
