"""Room for uploads: what is promised to those under way, and given back."""

from pathlib import Path

import pytest

from rl_orch.core.uploads import COPIES, UploadRoom
from rl_orch.errors import Unavailable
from rl_orch.io.machine import room
from rl_orch.io.machine.room import SPARE_BYTES, Room

SIZE = 1000


def test_uploads_at_once_are_promised_no_more_than_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 2 * COPIES * SIZE + SPARE_BYTES
    monkeypatch.setattr(room, "left", lambda _path: Room(free, None))
    uploads = UploadRoom(tmp_path)
    first, archive = uploads.reserve(SIZE)
    second, _ = uploads.reserve(SIZE)
    for size in (SIZE, 1):
        with pytest.raises(Unavailable, match=r"there are 64 MiB left .* for others under way"):
            uploads.reserve(size)
    assert sorted(path.name for path in (tmp_path / "uploads").iterdir()) == sorted([first, second])
    archive.write_bytes(bytes(SIZE))
    free -= SIZE  # What is written is promised no longer: it is gone from what is free.
    with pytest.raises(Unavailable):
        uploads.reserve(1)
    uploads.give_back(second)
    uploads.reserve(SIZE)


def test_an_upload_that_cannot_have_its_folder_keeps_no_room(tmp_path: Path) -> None:
    (tmp_path / "uploads").write_text("in the way")
    uploads = UploadRoom(tmp_path)
    with pytest.raises(OSError, match="uploads"):
        uploads.reserve(SIZE)
    assert uploads.promised_bytes == 0
