"""Checkpoints of external programs: copied whole, sealed, refused by name when damaged, pruned."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rl_orch.errors import BadInput, Damaged, RlctlError
from rl_orch.io.checkpoints import catalog, external
from rl_orch.io.checkpoints.checkpoint_retention import CheckpointRetention
from rl_orch.io.files import sealed
from rl_orch.io.machine import room
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import EventWriter, read
from rl_orch.worker.external.checkpoints import CheckpointKeeper
from rl_orch.worker.external.line_protocol import Saved

FACTS: dict[str, Any] = {
    "run": "r1",
    "step": 10,
    "attempt": 2,
    "seq": 42,
    "kept": ["step_000000000010"],
    "best": "step_000000000010",
    "best_said": False,
    "saved": {"best": True},
    "created_at": 1.0,
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A checkpoint as a program writes it: a folder with folders in it."""
    made = tmp_path / "written" / "ein Ordner, ü"
    (made / "sub").mkdir(parents=True)
    (made / "model.pt").write_bytes(b"weights")
    (made / "sub" / "optimizer.pt").write_bytes(b"moments" * 1000)
    return made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


def save(root: Path, source: Path, step: int = 10) -> Path:
    path = root / catalog.name_of(step)
    external.save(path, source, FACTS | {"step": step})
    return path


def copies(root: Path) -> list[Path]:
    return sorted(root.glob("files_*"))


def test_a_folder_comes_back_as_it_was(root: Path, source: Path) -> None:
    path = save(root, source)
    shutil.rmtree(source)
    deposit = external.load(path)
    copy = external.payload(path, deposit)
    assert copy.name == source.name
    assert (copy / "model.pt").read_bytes() == b"weights"
    assert (copy / "sub" / "optimizer.pt").read_bytes() == b"moments" * 1000
    assert (deposit.step, deposit.attempt, deposit.seq) == (10, 2, 42)


def test_a_single_file_comes_back_under_its_name(root: Path, source: Path) -> None:
    path = save(root, source / "model.pt")
    copy = external.payload(path, external.load(path))
    assert (copy.name, copy.read_bytes()) == ("model.pt", b"weights")


def test_the_shelf_takes_it_for_a_checkpoint(root: Path, source: Path) -> None:
    save(root, source, 10)
    save(root, source, 20)
    assert [(entry.step, entry.intact) for entry in catalog.listing(root)] == [
        (10, True),
        (20, True),
    ]
    assert catalog.newest(root).path == root / "step_000000000020"


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[3] ^= 1
    file.chmod(0o644)
    file.write_bytes(data)


def shorten(file: Path) -> None:
    file.chmod(0o644)
    os.truncate(file, 3)


def replace(file: Path) -> None:
    file.unlink()
    file.symlink_to("/etc/passwd")


@pytest.mark.parametrize(
    ("harm", "problem"),
    [
        (flip, "fails its digest: ein Ordner, ü/model.pt"),
        (shorten, "has a file of the wrong size: ein Ordner, ü/model.pt"),
        (Path.unlink, "lacks model.pt"),
        (replace, "cannot be read: model.pt: it is a link, not a file"),
    ],
)
def test_damage_is_named_and_the_one_before_is_used(
    root: Path, source: Path, harm: Callable[[Path], None], problem: str
) -> None:
    save(root, source, 10)
    path = save(root, source, 20)
    harm(external.payload(path, external.load(path)) / "model.pt")
    with pytest.raises(Damaged) as caught:
        external.load(path)
    assert caught.value.message == f"checkpoint step_000000000020 {problem}"
    newest = catalog.newest(root)
    assert newest.path == root / "step_000000000010"
    assert newest.passed_over == (f"checkpoint step_000000000020 {problem}",)


@pytest.mark.parametrize(
    "change",
    [
        {"folder": "../elsewhere"},
        {"name": "/etc/passwd"},
        {"name": "../passwd"},
        {"files": {"../../x": {"sha256": "", "size": 0}}},
        {"version": 2},
    ],
)
def test_one_that_was_sealed_by_somebody_else_leads_nowhere(
    root: Path, source: Path, change: dict[str, Any]
) -> None:
    path = save(root, source)
    document = json.loads((path / external.DEPOSIT).read_bytes()) | change
    sealed.write(path, {external.DEPOSIT: json.dumps(document).encode()}, noun="checkpoint")
    with pytest.raises(Damaged, match=r"names files elsewhere|not in its format"):
        external.load(path)


def test_what_is_no_file_or_folder_is_refused_and_leaves_nothing(root: Path, source: Path) -> None:
    (source / "link").symlink_to("/etc/passwd")
    with pytest.raises(BadInput, match="'link' is a link"):
        save(root, source)
    (source / "link").unlink()
    os.mkfifo(source / "pipe")
    with pytest.raises(BadInput, match="'pipe' is neither a file nor a folder"):
        save(root, source)
    with pytest.raises(BadInput, match="'gone' is not there"):
        save(root, source / "gone")
    (source.parent / "empty").mkdir()
    with pytest.raises(BadInput, match="'empty' is an empty folder"):
        save(root, source.parent / "empty")
    assert list(root.iterdir()) == []


def test_a_disk_without_room_is_an_error_and_leaves_nothing(
    root: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "left", lambda _path: room.Room(room.SPARE_BYTES + 10, None))
    with pytest.raises(RlctlError, match="there are 64 MiB left"):
        save(root, source)
    assert list(root.iterdir()) == []


def test_one_that_changes_meanwhile_is_refused(
    root: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def meanwhile(descriptor: int) -> None:
        fsync(descriptor)
        (source / "model.pt").write_bytes(b"newer weights")

    monkeypatch.setattr(os, "fsync", meanwhile)
    with pytest.raises(BadInput, match=r"'model.pt' changed while it was copied"):
        save(root, source / "model.pt")
    assert list(root.iterdir()) == []


def test_copies_go_with_what_names_them(root: Path, source: Path) -> None:
    for step in (10, 20, 30):
        save(root, source, step)
    assert len(copies(root)) == 3
    catalog.retain(root, ["step_000000000010", "step_000000000030"])
    assert [path.name[11:23] for path in copies(root)] == ["000000000010", "000000000030"]
    save(root, source, 30)
    catalog.sweep(root)
    assert len(copies(root)) == 2
    external.load(root / "step_000000000030")


def test_a_copy_whose_writer_died_before_it_was_sealed_is_swept(root: Path, source: Path) -> None:
    save(root, source)
    (root / "files_step_000000000020_0badcafe").mkdir()
    catalog.sweep(root)
    assert len(copies(root)) == 1


def test_where_a_seal_cannot_be_read_no_copy_is_removed(root: Path, source: Path) -> None:
    path = save(root, source)
    (path / external.DEPOSIT).write_text("{")
    (root / "files_step_000000000020_0badcafe").mkdir()
    catalog.sweep(root)
    assert len(copies(root)) == 2


def test_the_newest_counts_as_the_best_until_the_program_says_otherwise() -> None:
    kept = CheckpointRetention().after_word("step_1", best=False, last=2)
    assert kept == CheckpointRetention(("step_1",), "step_1", best_said=False)
    kept = kept.after_word("step_2", best=True, last=2).after_word("step_3", best=False, last=2)
    assert kept == CheckpointRetention(("step_2", "step_3"), "step_2", best_said=True)
    kept = kept.after_word("step_4", best=False, last=2)
    assert kept == CheckpointRetention(("step_2", "step_3", "step_4"), "step_2", best_said=True)
    assert kept.after_word("step_5", best=True, last=2).names == ("step_4", "step_5")


@pytest.fixture
def keeper(tmp_path: Path) -> tuple[CheckpointKeeper, RunDir, EventWriter, Path]:
    directory = RunDir(tmp_path / "run")
    directory.checkpoints.mkdir(parents=True)
    folder = tmp_path / "folder"
    folder.mkdir()
    writer = EventWriter(directory.events, run="run", attempt=1)
    made = CheckpointKeeper(
        directory, writer, folder=folder, attempt=1, keep_last=2, kept=CheckpointRetention()
    )
    return made, directory, writer, folder


def test_a_checkpoint_is_told_of_with_what_had_to_go(
    keeper: tuple[CheckpointKeeper, RunDir, EventWriter, Path],
) -> None:
    made, directory, _, folder = keeper
    for step in (1, 2, 3):
        (folder / str(step)).write_text("weights")
        made.take(Saved(step, str(folder / "3") if step == 3 else str(step)))
    events = list(read(directory.events))
    assert [(event.value, event.tags["best"], event.tags["removed"]) for event in events] == [
        ("step_000000000001", True, []),
        ("step_000000000002", True, []),
        ("step_000000000003", True, ["step_000000000001"]),
    ]
    deposit = external.load(directory.checkpoints / "step_000000000003")
    assert (deposit.seq, events[-1].seq) == (2, 3)
    assert catalog.all_names(directory.checkpoints) == ["step_000000000002", "step_000000000003"]


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", ".", "a/../../secret", "way/secret"])
def test_only_what_lies_in_its_folder_can_be_a_checkpoint(
    keeper: tuple[CheckpointKeeper, RunDir, EventWriter, Path], path: str
) -> None:
    made, directory, _, folder = keeper
    (folder.parent / "secret").write_text("secret")
    (folder / "way").symlink_to(folder.parent)
    with pytest.raises(BadInput, match=r"not inside the folder|leads through a link"):
        made.take(Saved(1, path))
    assert list(directory.checkpoints.iterdir()) == []


@pytest.mark.parametrize("name", ["\udcff", "sub/\udcff"])
def test_a_name_that_is_not_utf_8_is_refused_and_leaves_nothing(
    root: Path, source: Path, name: str
) -> None:
    (source / name).write_bytes(b"weights")
    with pytest.raises(BadInput, match=r"is not a name in UTF-8"):
        save(root, source)
    with pytest.raises(BadInput, match=r"is not a name in UTF-8"):
        save(root, source / name)
    assert list(root.iterdir()) == []


def test_empty_folders_are_kept(root: Path, source: Path) -> None:
    (source / "logs" / "old").mkdir(parents=True)
    path = save(root, source)
    copy = external.payload(path, external.load(path))
    assert (copy / "logs" / "old").is_dir()
    (source.parent / "hollow" / "inside").mkdir(parents=True)
    with pytest.raises(BadInput, match="'hollow' is an empty folder"):
        save(root, source.parent / "hollow")


def test_a_pipe_that_takes_the_place_of_a_file_is_refused(
    root: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(_path: Path) -> room.Room:
        (source / "model.pt").unlink()
        os.mkfifo(source / "model.pt")
        return room.Room(None, None)

    monkeypatch.setattr(room, "left", meanwhile)
    with pytest.raises(BadInput, match=r"'model.pt' is neither a file nor a folder"):
        save(root, source)
    assert list(root.iterdir()) == []


def test_a_folder_that_cannot_be_read_is_an_error_and_not_an_empty_one(
    root: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir

    def unreadable(path: Any) -> Any:
        if str(path).endswith("sub"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", unreadable)
        with pytest.raises(RlctlError, match="Permission denied"):
            save(root, source)
    assert list(root.iterdir()) == []
