"""A database without runs beside run directories: it is said, with the way out; none is made."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.runs import unlisted
from rl_orch.core.store.runs import Store
from rl_orch.testing import FakeRunner, a_spec, trains_to
from tests.conftest import Ran

Rlctl = Callable[..., Ran]
SAID = "the database has no runs, but"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with two runs."""
    home = tmp_path / "rlruns"
    made = Orchestrator(home, FakeRunner(trains_to([1.0])))
    made.launch(a_spec("name=one"))
    made.launch(a_spec("name=two"))
    return home


def remove(database: Path) -> None:
    database.unlink()


def truncate(database: Path) -> None:
    database.write_bytes(b"")


def begin_anew(database: Path) -> None:
    database.unlink()
    Store(database).relocate(database.parent)


@pytest.mark.parametrize("lose", [remove, truncate, begin_anew])
def test_a_database_without_runs_beside_run_directories_is_told_of_and_left_as_it_is(
    rlctl: Rlctl, home: Path, lose: Callable[[Path], None]
) -> None:
    database = home / "rlctl.db"
    lose(database)
    before = sorted(home.iterdir()), database.exists() and database.read_bytes()
    (one, two) = sorted(path.name for path in (home / "runs").iterdir())
    for words in (["ls"], ["ls", "--runs"], ["registry", "list"]):
        ran = rlctl(*words)
        assert (ran.code, f"{SAID} '{home}/runs' has 2 run directories" in ran.err) == (0, True)
        assert f'for run in {home}/runs/*/; do rlctl import-run "$run"; done' in ran.err
    ran = rlctl("ls", "--json")
    assert json.loads(ran.out) == {"runs": [], "next": None, "groups": []}
    assert SAID in ran.err
    for words in (["show", one], ["logs", one], ["wait", one], ["compare", one, two], ["rm", one]):
        ran = rlctl(*words)
        assert (ran.code, SAID in ran.err) == (2, True)
        assert f"rlctl import-run {home}/runs/{one} --home {home}" in ran.err
    assert "for run in" in rlctl("stop", "somebody").err
    assert (sorted(home.iterdir()), database.exists() and database.read_bytes()) == before


def test_where_nothing_is_amiss_nothing_is_said(rlctl: Rlctl, home: Path) -> None:
    assert rlctl("ls", "--state", "lost").err == ""
    assert SAID not in rlctl("show", "nobody").err
    ran = rlctl("ls", "--home", "nowhere")
    assert (ran.err, "no runs in" in ran.out) == ("", True)
    assert not Path("nowhere").exists()


def test_only_directories_of_runs_are_counted_and_names_are_quoted(tmp_path: Path) -> None:
    home = tmp_path / "a home; of mine"
    for name in ("one", ".new-two", "three"):
        (home / "runs" / name).mkdir(parents=True)
    for name in ("one", ".new-two"):
        (home / "runs" / name / "spec.yaml").touch()
    there = unlisted.directories(home)
    assert [path.name for path in there] == ["one"]
    assert unlisted.sentence(home, there).endswith("has 1 run directory")
    assert f"rlctl import-run '{home}/runs/one' -x" in unlisted.remedy(home, there, flags=" -x")
    assert f"in '{home}/runs'/*/; do" in unlisted.remedy(home, there * 2, flags="")
    assert unlisted.directories(tmp_path / "nowhere") == []
