"""Folders from elsewhere: measured before they are copied, copied with their holes, and no more of
them than was measured.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rl_orch.errors import BadInput, Conflict, RlctlError
from rl_orch.io.files import trees, workspaces
from rl_orch.io.machine import room
from rl_orch.io.machine.room import Room
from tests.odd_files import HUGE, KINDS, a_hole, in_place

MIB = 1 << 20


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with a small file, one in another folder, and an empty folder."""
    folder = tmp_path / "source"
    (folder / "inner" / "most").mkdir(parents=True)
    (folder / "a").write_bytes(b"text")
    (folder / "inner" / "b").write_bytes(bytes(range(256)) * 8192)
    (folder / "inner" / "b").chmod(0o640)
    os.utime(folder / "a", ns=(10**18, 10**18))
    return folder


def survey(folder: Path) -> trees.Tree:
    return trees.survey(folder, lambda _parts, _mode: False)


def nobody(_done: float) -> None:
    """Nobody watches."""


def taken(path: Path) -> int:
    """The bytes that a file or a folder takes on the disk."""
    return sum(each.lstat().st_blocks * 512 for each in (path, *path.rglob("*")))


def test_a_copy_has_the_same_files_with_their_modes_and_times(source: Path, tmp_path: Path) -> None:
    told: list[float] = []
    tree = survey(source)
    assert {"/".join(entry.parts) for entry in tree.entries} == {
        *("a", "inner", "inner/b", "inner/most")
    }
    trees.copy(tree, tmp_path / "copy", told.append)
    for name in ("a", "inner/b"):
        one, other = source / name, tmp_path / "copy" / name
        assert one.read_bytes() == other.read_bytes()
        assert one.stat().st_mode == other.stat().st_mode
        assert one.stat().st_mtime_ns == other.stat().st_mtime_ns
    assert (tmp_path / "copy" / "inner" / "most").is_dir()
    assert told == sorted(told)
    assert 0.0 < told[-1] <= 1.0


@pytest.mark.parametrize("kernel", [True, False])
def test_holes_stay_holes(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: bool
) -> None:
    if not kernel:
        monkeypatch.delattr(os, "copy_file_range")
    file = a_hole(source / "inner" / "b")
    with file.open("r+b") as opened:
        opened.seek(HUGE // 2)
        opened.write(b"in the middle")
    tree = survey(source)
    assert tree.data < 4 * MIB
    assert tree.filled > HUGE
    trees.copy(tree, tmp_path / "copy", nobody)
    copy = tmp_path / "copy" / "inner" / "b"
    assert copy.stat().st_size == HUGE
    assert taken(tmp_path / "copy") < 4 * MIB
    for at, count in ((0, 2 * MIB), (HUGE // 2 - 10, 40), (HUGE - 10, 10)):
        pieces = []
        for path in (file, copy):
            with path.open("rb") as opened:
                opened.seek(at)
                pieces.append(opened.read(count))
        assert pieces[0] == pieces[1]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_neither_file_nor_folder_is_named(source: Path, kind: str) -> None:
    path = in_place(source / "inner" / "odd", kind)
    with pytest.raises(BadInput, match=f"'{path}' is {kind}; only files and folders") as caught:
        survey(source)
    assert "remove it" in str(caught.value.hint)


def test_links_are_named_and_not_followed(source: Path, tmp_path: Path) -> None:
    (source / "inner" / "up").symlink_to(source)
    with pytest.raises(BadInput, match=r"up' is a link; only files and folders can be copied"):
        survey(source)


def test_more_files_than_allowed_are_refused(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "MOST_ENTRIES", 4)
    assert len(survey(source).entries) == 4
    (source / "one more").touch()
    with pytest.raises(BadInput, match="has more than 4 files and folders"):
        survey(source)


def test_deeper_folders_than_allowed_are_refused(source: Path) -> None:
    deep = source.joinpath(*["d"] * trees.DEEPEST)
    deep.mkdir(parents=True)
    survey(source)
    (deep / "d").mkdir()
    with pytest.raises(BadInput, match=f"has more than {trees.DEEPEST} folders inside each other"):
        survey(source)


def test_a_file_in_too_many_pieces_counts_with_all_of_its_bytes(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_hole(source / "a", 64 * MIB).open("r+b") as file:
        for at in range(0, 64 * MIB, 8 * MIB):
            file.seek(at)
            file.write(b"x")
    before = survey(source).data
    monkeypatch.setattr(trees, "MOST_EXTENTS", 3)
    assert before < 4 * MIB < 64 * MIB < survey(source).data


def longer(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def replaced(path: Path) -> None:
    path.rename(path.with_name("aside"))
    path.write_bytes(path.with_name("aside").read_bytes())


def odd(path: Path) -> None:
    in_place(path, "a FIFO")


@pytest.mark.parametrize("change", [longer, replaced, Path.unlink, odd])
def test_what_has_changed_since_it_was_measured_is_not_copied(
    source: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    tree = survey(source)
    change(source / "inner" / "b")
    with pytest.raises((Conflict, OSError)):
        trees.copy(tree, tmp_path / "copy", nobody)


def test_what_grows_while_it_is_copied_is_bounded_by_what_was_measured(
    source: Path, tmp_path: Path
) -> None:
    """A hole that is filled behind our back: the size says nothing, what was measured does."""
    file = a_hole(source / "a", 1 << 30)
    tree = survey(source)
    times = file.stat()
    with file.open("r+b") as opened:
        opened.write(os.urandom(8 * MIB))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(Conflict, match=r"a' changed while it was copied"):
        trees.copy(tree, tmp_path / "copy", nobody)
    assert taken(tmp_path / "copy") < tree.data + trees.AT_ONCE


def test_this_disk_keeps_holes_and_nothing_is_left_of_the_question(tmp_path: Path) -> None:
    assert trees.keeps_holes(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_room_is_asked_for_in_bytes_and_in_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(needed: int, files: int = 0) -> None:
        room.refuse_without(tmp_path / "new", "it", needed, files=files, hint="Free some.")

    monkeypatch.setattr(room, "left", lambda _path: Room(room.SPARE_BYTES + 10 * MIB, 5))
    ask(10 * MIB, 5)
    with pytest.raises(
        RlctlError, match="it takes 11 MiB of disk, and 64 MiB stay free; there are"
    ):
        ask(10 * MIB + 1)
    with pytest.raises(RlctlError, match="it has 6 files and folders; the disk has room for 5"):
        ask(0, 6)
    monkeypatch.setattr(room, "left", lambda _path: Room(None, None))
    ask(HUGE, 10**9)


def test_the_room_of_a_folder_that_is_not_there_yet_is_that_of_its_disk(tmp_path: Path) -> None:
    here, there = room.left(tmp_path), room.left(tmp_path / "a" / "b")
    assert here.bytes is not None
    assert here.bytes > 0
    assert there.bytes is not None


HOLD = """
import sys
from pathlib import Path
from rl_orch.io.files.workspaces import workspace
with workspace(Path(sys.argv[1])) as made:
    (made / "half").write_text("a")
    print(made, flush=True)
    sys.stdin.readline()
"""


def holder(folder: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that holds a workspace until it reads a line, and the workspace."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    return child, Path(child.stdout.readline().strip())


def test_a_workspace_is_swept_once_its_maker_is_dead_and_never_before(tmp_path: Path) -> None:
    dead, left = holder(tmp_path)
    living, held = holder(tmp_path)
    try:
        assert workspaces.sweep(tmp_path) == []
        dead.kill()
        dead.wait()
        assert workspaces.sweep(tmp_path) == [left]
        assert (held / "half").read_text() == "a"
        living.communicate("done\n")
        assert list(tmp_path.iterdir()) == []
    finally:
        for child in (dead, living):
            child.kill()
            child.communicate()


def test_a_workspace_goes_with_what_it_has_and_what_had_to_be_made(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "runs"

    def interrupted() -> None:
        with workspaces.workspace(folder) as made:
            (made / "half").mkdir()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []
    folder.mkdir(parents=True)
    with workspaces.workspace(folder) as made:
        assert made.parent == folder
        (folder / "kept").touch()
    assert [path.name for path in folder.iterdir()] == ["kept"]


def test_whoever_sweeps_in_between_does_not_get_a_workspace_that_is_just_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = workspaces._opened
    swept: list[Path] = []

    def meanwhile(path: Path) -> int:
        if not swept:
            swept.append(path)
            monkeypatch.setattr(workspaces, "_opened", opened)
            assert workspaces.sweep(tmp_path) == [path]
        return opened(path)

    monkeypatch.setattr(workspaces, "_opened", meanwhile)
    with workspaces.workspace(tmp_path) as made:
        assert made not in swept
        assert workspaces.sweep(tmp_path) == []


def test_a_link_with_the_name_of_a_workspace_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".importing-x").symlink_to(tmp_path / "elsewhere")
    assert workspaces.sweep(tmp_path) == []
    assert list((tmp_path / "elsewhere").iterdir()) == []
