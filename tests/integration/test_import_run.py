"""Run directories from elsewhere: what is taken in, what is refused, what is learned of them."""

import errno
import json
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rl_orch.cli.commands import import_policy, import_run
from rl_orch.core import policy_import
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.runs import run_import
from rl_orch.core.runs.orphans import Orphans
from rl_orch.core.store.runs import Store
from rl_orch.errors import BadInput, Conflict, Damaged, NotFound, RlctlError, RunLocked
from rl_orch.io.files import regular, sealed, trees, zips
from rl_orch.io.machine import room
from rl_orch.io.machine.room import Room
from rl_orch.io.policies import bundles
from rl_orch.io.run.directory import RunDir
from rl_orch.records import Run, State
from rl_orch.spec.reader import MAX_BYTES
from rl_orch.testing import FakeRunner, a_spec, trains_to
from tests.odd_files import HUGE, KINDS, a_hole, in_place
from tests.unit.test_io_trees import holder

DOCS = Path(__file__).parents[2] / "docs"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in pairwise("abcdefghij")
)


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
    told = {
        "id",
        "name",
        "env",
        "algo",
        "seed",
        "env_steps",
        "config_hash",
        "created_at",
        "attempt",
    }
    assert run.model_dump(include=told) == there.model_dump(include=told)
    assert Path(run.path) == here.home / "runs" / there.id
    assert [attempt.number for attempt in here.store.attempts(run.id)] == [1]
    assert Path(there.path).is_dir()
    assert here.store.lease_of(run.id) is None


def test_no_gate_believes_a_report_from_elsewhere(there: Run, here: Orchestrator) -> None:
    assert there.verdict == "passed"
    run = here.import_run(Path(there.path))
    assert (run.state, run.verdict) == (State.LOST, None)
    by = f"by `rlctl resume {run.id}`"
    assert run.reason == f"trained; the final evaluation is still to be made here, {by}"
    assert not any(model.validated for model in here.registry.of_run(run.id))
    kept = RunDir(Path(run.path)).report_file("final-elsewhere")
    assert kept.exists()


def test_a_run_can_be_moved_instead(there: Run, here: Orchestrator) -> None:
    assert here.import_run(Path(there.path), move=True).env_steps == 100
    assert not Path(there.path).exists()


def test_a_move_to_another_disk_keeps_the_source_until_the_run_is_known_here(
    there: Run, here: Orchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if self == Path(there.path):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return real(self, target)

    def refuse(_self: Store, _run: Run, **_options: Any) -> None:
        raise RlctlError("the disk is full")

    monkeypatch.setattr(Path, "rename", rename)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "add", refuse)
        with pytest.raises(RlctlError, match="the disk is full"):
            here.import_run(Path(there.path), move=True)
    assert RunDir(Path(there.path)).spec_file.exists()
    assert list(here.home.glob("runs/*")) == list(here.home.glob("runs/.*")) == []
    here.import_run(Path(there.path), move=True)
    assert [path.name for path in (here.home / "runs").iterdir()] == [there.id]
    assert not Path(there.path).exists()


def test_a_directory_that_lies_here_already_stays_where_it_is(
    there: Run, here: Orchestrator
) -> None:
    target = here.home / "runs" / there.id
    target.parent.mkdir(parents=True)
    os.rename(there.path, target)
    assert here.import_run(target).path == str(target)
    assert [path.name for path in target.parent.iterdir()] == [there.id]


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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["events.jsonl", "spec.yaml", "lock", "stop", "evals/odd", "odd"])
@pytest.mark.parametrize("move", [False, True])
def test_what_is_no_file_in_it_is_refused_by_name(
    there: Run, here: Orchestrator, kind: str, name: str, move: bool
) -> None:
    in_place(Path(there.path) / name, kind)
    with pytest.raises(RlctlError, match=rf"{name}' .*is {kind}"):
        here.import_run(Path(there.path), move=move)
    assert not here.home.exists() or not list(here.home.glob("runs/*"))
    assert Path(there.path).is_dir()


def test_the_socket_of_its_last_process_stays_behind(there: Run, here: Orchestrator) -> None:
    in_place(Path(there.path) / "control.sock", "a socket")
    run = here.import_run(Path(there.path))
    assert not os.path.lexists(Path(run.path) / "control.sock")


def test_files_of_a_program_that_are_named_like_ours_come_along(
    there: Run, here: Orchestrator
) -> None:
    theirs = Path(there.path) / "checkpoints" / "files_step_000000000100_0123abcd" / "model"
    theirs.mkdir(parents=True)
    for name in ("lock", "stop", ".tmp-x"):
        (theirs / name).write_text("weights")
    half = Path(there.path) / "checkpoints" / ".tmp-step_000000000100-0123"
    half.mkdir()
    run = here.import_run(Path(there.path))
    copy = Path(run.path) / theirs.relative_to(there.path)
    assert sorted(os.listdir(copy)) == [".tmp-x", "lock", "stop"]
    assert not (Path(run.path) / half.relative_to(there.path)).exists()


def test_a_hole_of_500_gb_takes_no_room_here(there: Run, here: Orchestrator) -> None:
    a_hole(Path(there.path) / "evals" / "sparse")
    run = here.import_run(Path(there.path))
    copy = (Path(run.path) / "evals" / "sparse").stat()
    assert (copy.st_size, copy.st_blocks) == (HUGE, 0)


def test_a_hole_is_counted_in_full_where_the_disk_keeps_none(
    there: Run, here: Orchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_hole(Path(there.path) / "evals" / "sparse")
    monkeypatch.setattr(trees, "keeps_holes", lambda _folder: False)
    monkeypatch.setattr(room, "left", lambda _path: Room(HUGE, None))
    with pytest.raises(RlctlError, match=r"takes 476,83. MiB of disk"):
        here.import_run(Path(there.path))
    assert not (here.home / "runs").exists()


@pytest.mark.parametrize("move", [False, True])
def test_a_run_that_does_not_fit_is_refused_before_a_byte_is_copied(
    there: Run, here: Orchestrator, monkeypatch: pytest.MonkeyPatch, move: bool
) -> None:
    if move:
        monkeypatch.setattr(run_import, "_is_on_same_disk", lambda *_paths: False)
    told: list[str] = []
    monkeypatch.setattr(room, "left", lambda _path: Room(room.SPARE_BYTES + 4096, None))
    with pytest.raises(RlctlError, match=rf"run {there.id} takes 1 MiB of disk, and 64 MiB stay"):
        here.import_run(Path(there.path), move=move, watch=lambda doing, _done: told.append(doing))
    assert told == ["measuring"]
    assert not (here.home / "runs").exists()
    assert RunDir(Path(there.path)).spec().env.id == there.env


def test_help_and_pages_state_the_limits_that_hold() -> None:
    help, page = str(import_run.command.__doc__), (DOCS / "resume.md").read_text("utf-8")
    most, spare = f"{trees.MOST_ENTRIES:,} files and folders", f"{room.SPARE_BYTES >> 20} MiB"
    assert most in help
    assert f"{trees.DEEPEST} inside" in help
    assert spare in help
    assert f"{trees.MOST_ENTRIES:,}, and {trees.DEEPEST} folders inside each other" in page
    documents = f"{MAX_BYTES:,} bytes, {regular.JSON_BYTES >> 20} MiB"
    assert f"{documents}, {sealed.MOST_BYTES >> 30} GiB" in page
    help = str(import_policy.command.__doc__)
    assert f"{zips.MOST_BYTES >> 30} GiB and a bundle {bundles.MOST_BYTES >> 30} GiB" in help
    assert (spare in help, policy_import.COPIES) == (True, 4)


def everything(folder: Path) -> dict[str, bytes]:
    """The files below a folder, but for the database and notes of processes that are gone."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(("rlctl.db", *run_import.LEFT_OUT))
    }


MOMENTS = ("copying", "verifying", "known", "looked at")


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("how", [KeyboardInterrupt, OSError(errno.ENOSPC, "No space left")])
@pytest.mark.parametrize("move", [False, True])
def test_an_import_that_does_not_come_to_its_end_leaves_nothing(
    there: Run,
    here: Orchestrator,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
    how: BaseException | type[BaseException],
    move: bool,
) -> None:
    source = Path(there.path)
    before = everything(source)

    def watch(doing: str, _done: float) -> None:
        if doing == moment:
            raise how

    def fail(*_given: Any, **_options: Any) -> None:
        raise how

    with monkeypatch.context() as patch:
        if moment == "known":
            patch.setattr(run_import, "register_models", fail)
        if moment == "looked at":
            patch.setattr(Orphans, "looked_at", fail)
        if move and moment == "copying":
            patch.setattr(run_import, "_renamed", lambda *_paths: False)
        with pytest.raises((KeyboardInterrupt, RlctlError)):
            here.import_run(source, move=move, watch=watch)
    assert everything(source) == before
    assert everything(here.home) == {}
    assert list(here.home.glob("runs/*")) + list(here.home.glob("runs/.*")) == []
    assert here.ls().runs == ()
    assert here.registry.of_run(there.id) == []
    run = here.import_run(source, move=move)
    assert (run.state, run.attempt) == (State.LOST, 1)
    assert source.exists() is not move


def test_one_that_was_killed_is_swept_by_the_next(there: Run, here: Orchestrator) -> None:
    child, left = holder(here.home / "runs")
    child.kill()
    child.communicate()
    assert left.is_dir()
    run = here.import_run(Path(there.path))
    assert os.listdir(here.home / "runs") == [run.id]


def test_two_imports_of_one_run_at_once_make_one_run(there: Run, here: Orchestrator) -> None:
    other = Orchestrator(here.home, FakeRunner(trains_to([500.0] * 10)))

    def meanwhile(doing: str, _done: float) -> None:
        if doing == "verifying":
            other.import_run(Path(there.path))

    with pytest.raises(Conflict):
        here.import_run(Path(there.path), watch=meanwhile)
    assert os.listdir(here.home / "runs") == [there.id]
    assert [run.state for run in here.ls().runs] == [State.LOST]
    assert [model.run_id for model in here.registry.of_run(there.id)] == [there.id]


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
        lambda run: run.manifest_file.write_text("[" * 100_000),
        lambda run: run.spec_file.write_text(BOMB),
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
    huge = b'{"v":1,"seq":1,"attempt":%d,"ts":1.0,"run":"r","step":1,"kind":"state",' % 10**30
    huge += b'"key":"started"}\n'
    events.write_bytes(b"\x00\xff not json\n[]\n" + huge + events.read_bytes() + torn)
    assert here.import_run(Path(there.path)).attempt == 1


@pytest.mark.parametrize("move", [False, True])
def test_a_run_from_a_backup_can_be_written_to(there: Run, here: Orchestrator, move: bool) -> None:
    for name in ("events.jsonl", "log.txt"):
        (Path(there.path) / name).chmod(0o444)
    taken = here.import_run(Path(there.path), move=move)
    for name in ("events.jsonl", "log.txt"):
        assert (Path(taken.path) / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("noted", [5, ".", [1, "relative", None], {"a": 1}])
def test_folders_that_are_none_are_searched_by_nobody(there: Run, noted: object) -> None:
    directory = RunDir.of(there)
    directory.write_manifest(directory.manifest() | {"module_path": noted})
    assert directory.module_path() == []


def test_a_lost_database_does_not_make_a_run_forget_where_its_modules_are(
    there: Run, tmp_path: Path
) -> None:
    """It was in this home before, so that its own user vouches for it."""
    directory = RunDir.of(there)
    directory.write_manifest(directory.manifest() | {"module_path": [str(tmp_path)]})
    home = directory.path.parents[1]
    (home / "rlctl.db").unlink()
    Orchestrator(home, FakeRunner(trains_to([1.0]))).import_run(directory.path)
    assert directory.module_path() == [str(tmp_path)]
