"""The long forms of what `tests/faults` does, with the figures that they come to."""

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from rl_orch.spec.model import Spec
from rl_orch.testing import a_spec
from tests.faults import programs
from tests.faults.checker import Figures
from tests.faults.lab import READY_WITHIN_S, Lab
from tests.faults.scenarios import ALONE, TOGETHER, WITH_POSTGRES, play
from tests.faults.test_moments import (
    dies_at_every_moment,
    halted_at_every_moment,
    stopped_at_every_moment,
)
from tests.faults.test_service_killed import killed_again_and_again
from tests.faults.test_shared_database import shared
from tests.integration.conftest import SMALL
from tests.postgres import Postgres

Tell = Callable[[Figures], None]


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Tell:
    """Puts figures into the summary at the end."""
    return lambda figures: record_property("figures", str(figures))


def mixed(lab: Lab, chance: random.Random) -> Spec:
    """Programs that count, and now and then a training that is evaluated in the end."""
    if chance.random() < 0.9:
        return programs.by_chance(lab.program, chance, most_s=4.0)
    return a_spec(*SMALL, "train.total_timesteps=2048", "checkpoint.every=512", "eval.every=1024")


def test_a_hundred_kills_of_the_service_lose_nothing_and_double_nothing(
    lab: Lab, tell: Tell
) -> None:
    make = partial(mixed, lab)
    figures = killed_again_and_again(lab, make, seed=1, kills=100, lives_s=4.0)
    tell(figures)
    assert max(figures.ready_s) <= READY_WITHIN_S, str(figures)


def test_two_hundred_runs_are_each_claimed_once_though_service_and_database_die(
    shared_lab: Lab, postgres: Postgres, tell: Tell
) -> None:
    figures = shared(shared_lab, postgres, random.Random(1), runs=200)
    tell(figures)
    assert figures.states == {"succeeded": 200}, str(figures)
    assert figures.attempts == 200, str(figures)


@pytest.mark.parametrize("seed", range(100, 121))
def test_one_service_survives_whatever_chance_picks(tmp_path: Path, seed: int, tell: Tell) -> None:
    tell(play(tmp_path, seed, ALONE, None))


@pytest.mark.parametrize("seed", range(200, 204))
def test_two_services_survive_whatever_chance_picks(tmp_path: Path, seed: int, tell: Tell) -> None:
    tell(play(tmp_path, seed, TOGETHER, None))


@pytest.mark.parametrize("seed", range(300, 306))
def test_services_on_postgresql_survive_whatever_chance_picks(
    tmp_path: Path, postgres: Postgres, seed: int, tell: Tell
) -> None:
    tell(play(tmp_path, seed, WITH_POSTGRES, postgres))


@pytest.mark.parametrize("crashes", [0, 1, 2])
def test_a_service_may_die_at_any_moment(
    homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch, crashes: int
) -> None:
    assert dies_at_every_moment(homes, monkeypatch, crashes=crashes) > 15


@pytest.mark.parametrize("ticks", range(8))
def test_a_service_may_be_halted_at_any_moment(
    homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch, ticks: int
) -> None:
    assert halted_at_every_moment(homes, monkeypatch, ticks=ticks) > 15


@pytest.mark.parametrize("force", [False, True])
def test_a_run_may_be_stopped_at_any_moment(
    homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    assert stopped_at_every_moment(homes, monkeypatch, force=force) > 15
