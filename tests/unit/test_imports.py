"""Run directories from elsewhere: what is taken in, what is refused, what is learned of them."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rl_orch.core.orchestrator import Orchestrator
from rl_orch.errors import BadInput, Conflict, Damaged, NotFound, RlctlError, RunLocked
from rl_orch.io.rundir import RunDir
from rl_orch.records import Run, State
from rl_orch.testing import FakeRunner, a_spec, trains_to


@pytest.fixture
def there(tmp_path: Path) -> Run:
    """A run that has succeeded in another home."""
    made = Orchestrator(tmp_path / "there", FakeRunner(trains_to([500.0] * 10)))
    return made.launch(a_spec("gates.min_return=400")).run


@pytest.fixture
def here(tmp_path: Path) -> Orchestrator:
    return Orchestrator(tmp_path / "here", FakeRunner(trains_to([500.0] * 10)))


def test_all_that_is_known_of_a_run_comes_from_its_directory(
    there: Run, here: Orchestrator
) -> None:
    run = here.import_run(Path(there.path))
    same = {"path", "model_id", "updated_at"}
    assert run.model_dump(exclude=same) == there.model_dump(exclude=same)
    assert Path(run.path) == here.home / "runs" / there.id
    assert [attempt.number for attempt in here.store.attempts(run.id)] == [1]
    assert Path(there.path).is_dir()
    assert here.store.lease_of(run.id) is None


def test_a_run_can_be_moved_instead(there: Run, here: Orchestrator) -> None:
    assert here.import_run(Path(there.path), move=True).state is State.SUCCEEDED
    assert not Path(there.path).exists()


def test_a_directory_that_lies_here_already_stays_where_it_is(
    there: Run, here: Orchestrator
) -> None:
    target = here.home / "runs" / there.id
    target.parent.mkdir(parents=True)
    os.rename(there.path, target)
    before = sorted(path.name for path in target.iterdir())
    assert here.import_run(target).path == str(target)
    assert sorted(path.name for path in target.iterdir()) == before


def test_a_directory_that_was_renamed_is_known_by_its_manifest(
    there: Run, here: Orchestrator, tmp_path: Path
) -> None:
    os.rename(there.path, tmp_path / "renamed")
    assert here.import_run(tmp_path / "renamed").id == there.id


def test_a_run_that_is_here_already_is_refused(there: Run, here: Orchestrator) -> None:
    here.import_run(Path(there.path))
    with pytest.raises(Conflict, match=f"run {there.id} is in .* already"):
        here.import_run(Path(there.path))


@pytest.mark.parametrize("name", ["nowhere", "a file", "an empty folder"])
def test_what_is_no_run_directory_is_refused(here: Orchestrator, tmp_path: Path, name: str) -> None:
    (tmp_path / "a file").touch()
    (tmp_path / "an empty folder").mkdir()
    with pytest.raises(NotFound, match="is not a run directory"):
        here.import_run(tmp_path / name)


def test_a_link_in_it_is_refused_by_name(there: Run, here: Orchestrator) -> None:
    (Path(there.path) / "evals" / "secret.json").symlink_to("/etc/passwd")
    with pytest.raises(BadInput, match=r"secret.json' is a link"):
        here.import_run(Path(there.path))
    assert list(here.home.glob("runs/*")) == []


def test_a_run_that_is_at_work_is_refused_with_its_process(there: Run, here: Orchestrator) -> None:
    with (
        RunDir(Path(there.path)).locked(),
        pytest.raises(RunLocked, match=f"in use by process {os.getpid()}"),
    ):
        here.import_run(Path(there.path))


@pytest.mark.parametrize(
    "change",
    [
        {"run_id": "../escaped"},
        {"run_id": "/etc"},
        {"run_id": None},
        {"run_id": 7},
        {"run_id": "x" * 200},
        {"created_at": "yesterday"},
        {"created_at": -1},
        {"created_at": 1e300},
        {"group": ["a"]},
        {"group": "../x"},
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(
    there: Run, here: Orchestrator, change: dict[str, Any]
) -> None:
    file = RunDir(Path(there.path)).manifest_file
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(Damaged, match=r"manifest\.json"):
        here.import_run(Path(there.path))
    assert not (here.home / "runs").exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda run: run.spec_file.write_text("- not a spec"),
        lambda run: run.manifest_file.write_text("{"),
        lambda run: run.report_file("final").write_text("[]"),
    ],
)
def test_a_damaged_file_is_named(
    there: Run, here: Orchestrator, damage: Callable[[RunDir], Any]
) -> None:
    damage(RunDir(Path(there.path)))
    with pytest.raises(RlctlError, match="cannot be read"):
        here.import_run(Path(there.path))
    assert not (here.home / "runs").exists()


def test_events_of_any_kind_do_no_harm(there: Run, here: Orchestrator) -> None:
    events = RunDir(Path(there.path)).events
    torn = b'{"v":1,"seq":99,"att'
    events.write_bytes(b"\x00\xff not json\n[]\n" + events.read_bytes() + torn)
    assert here.import_run(Path(there.path)).state is State.SUCCEEDED
