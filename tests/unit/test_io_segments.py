"""Replay segments on the disk: whole or not there at all, verified when read, gone when not needed,
and written while others go on."""

import errno
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import load_file

from rl_orch.errors import Damaged, RlctlError
from rl_orch.io.checkpoints import replay_files, replay_segments
from rl_orch.io.checkpoints.replay_files import SegmentEntry
from rl_orch.io.checkpoints.replay_segments import SegmentStore
from rl_orch.io.machine import hardware
from tests.waiting import PATIENCE_S

NAMES = [f"{10 * i:015d}-{10 * i + 9:015d}" for i in range(6)]
KINDS = "?bBhHiIqQefd"


@dataclass(frozen=True)
class ASegment:
    name: str = NAMES[0]
    arrays: dict[str, NDArray[Any]] = field(
        default_factory=lambda: {
            "observations": np.arange(40, dtype=np.uint8).reshape(10, 2, 2),
            "rewards": np.linspace(-1.0, 1.0, 10),
            "flags": np.zeros(10, np.uint8),
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "replay"


def on_disk(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_was_written_is_read_bit_for_bit(folder: Path) -> None:
    segment = ASegment()
    entry = replay_segments.write(folder, segment)
    assert on_disk(folder) == [f"{NAMES[0]}.safetensors"]
    found = replay_segments.read(folder, entry)
    assert found.keys() == segment.arrays.keys()
    for name, array in segment.arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


@settings(max_examples=40, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=6),
    shape=st.lists(st.integers(0, 4), min_size=0, max_size=3),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_library_reads_what_we_write(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[str], shape: list[int], seed: int
) -> None:
    folder = tmp_path_factory.mktemp("replay")
    random = np.random.default_rng(seed)
    arrays = {
        f"a/{i}": (random.normal(size=shape) * 50).astype(np.dtype(kind))
        for i, kind in enumerate(kinds)
    }
    # Also what does not lie in one piece.
    arrays["t"] = random.normal(size=(3, 4)).T
    entry = replay_segments.write(folder, ASegment(NAMES[1], arrays))
    path = replay_files.path_of(folder, entry.name)
    assert path.stat().st_size == entry.bytes
    theirs, ours = load_file(path), replay_segments.read(folder, entry)
    for name, array in arrays.items():
        for found in (theirs[name], ours[name]):
            assert (found.dtype, found.shape) == (array.dtype, array.shape)
            assert found.tobytes() == array.tobytes()


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def remove(path: Path) -> None:
    path.unlink()


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: list[tuple[Callable[[Path], None], str]] = [
    (flip, "fails its digest"),
    (truncate, "has the wrong size"),
    (remove, "is missing"),
    (link, "cannot be read"),
    (directory, "cannot be read"),
]


@pytest.mark.parametrize(("damage", "said"), DAMAGES)
def test_damage_is_named(folder: Path, damage: Callable[[Path], None], said: str) -> None:
    entry = replay_segments.write(folder, ASegment())
    assert replay_files.fault(folder, entry, digest=True) is None
    damage(replay_files.path_of(folder, entry.name))
    with pytest.raises(Damaged, match=f"replay segment {entry.name} {said}"):
        replay_segments.read(folder, entry)
    assert str(replay_files.fault(folder, entry, digest=True)).startswith(said)


def test_a_size_is_enough_where_no_digest_is_asked_for(folder: Path) -> None:
    entry = replay_segments.write(folder, ASegment())
    flip(replay_files.path_of(folder, entry.name))
    assert replay_files.fault(folder, entry, digest=False) is None
    truncate(replay_files.path_of(folder, entry.name))
    assert replay_files.fault(folder, entry, digest=False) == "has the wrong size"


@pytest.mark.parametrize("data", [b"", b"short", b"\xff" * 64, b"\x08" + b"\0" * 7 + b"notjson!"])
def test_what_is_no_segment_is_damage_even_with_the_right_digest(folder: Path, data: bytes) -> None:
    folder.mkdir()
    replay_files.path_of(folder, NAMES[0]).write_bytes(data)
    entry = SegmentEntry(NAMES[0], hashlib.sha256(data).hexdigest(), len(data))
    with pytest.raises(Damaged, match="not in the safetensors format"):
        replay_segments.read(folder, entry)


def test_a_store_writes_in_the_background_and_settles(folder: Path) -> None:
    store = SegmentStore(folder)
    for name in NAMES[:4]:
        store.add_segment(ASegment(name))
    known = store.flush()
    store.close()
    assert sorted(known) == NAMES[:4]
    assert on_disk(folder) == [f"{name}.safetensors" for name in NAMES[:4]]
    read = replay_segments.reader(folder, known.values())
    np.testing.assert_array_equal(read(NAMES[2])["rewards"], ASegment().arrays["rewards"])


def test_a_store_that_has_nothing_makes_no_folder(folder: Path) -> None:
    store = SegmentStore(folder)
    assert store.flush() == {}
    store.retain(())
    store.close()
    assert not folder.exists()


def test_whoever_brings_a_third_segment_waits(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, begun, third = threading.Event(), threading.Semaphore(0), threading.Event()
    write = replay_segments.write

    def slow(folder: Path, segment: replay_segments.SegmentLike) -> SegmentEntry:
        begun.release()
        go_on.wait(PATIENCE_S)
        return write(folder, segment)

    monkeypatch.setattr(replay_segments, "write", slow)
    store = SegmentStore(folder)
    for name in NAMES[:2]:
        store.add_segment(ASegment(name))
    begun.acquire()

    def bring() -> None:
        store.add_segment(ASegment(NAMES[2]))
        third.set()

    bringer = threading.Thread(target=bring)
    bringer.start()
    assert not third.wait(0.2)
    assert not folder.exists()
    go_on.set()
    bringer.join(PATIENCE_S)
    assert third.is_set()
    assert sorted(store.flush()) == NAMES[:3]
    store.close()


def full_disk(*_arguments: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_an_error_of_the_writer_comes_up_and_leaves_nothing_behind(
    folder: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    folder.mkdir()
    store = SegmentStore(folder)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, full_disk)
        store.add_segment(ASegment())
        with pytest.raises(RlctlError, match="cannot write replay segment") as caught:
            store.flush()
    store.close()
    assert "Free space on that disk" in str(caught.value.hint)
    assert on_disk(folder) == []


def test_an_error_of_the_writer_comes_up_when_more_is_stashed(folder: Path) -> None:
    folder.write_text("in the way")
    store = SegmentStore(folder)

    def stash_three() -> None:
        for name in NAMES[:3]:
            store.add_segment(ASegment(name))

    with pytest.raises(RlctlError, match="cannot write replay segment"):
        stash_three()
    store.close()


def test_segments_that_no_checkpoint_names_are_removed(folder: Path) -> None:
    store = SegmentStore(folder)
    for name in NAMES[:4]:
        store.add_segment(ASegment(name))
    (folder.parent / "other").write_text("not ours")
    store.retain({NAMES[1], NAMES[3]})
    assert sorted(store.flush()) == [NAMES[1], NAMES[3]]
    assert replay_files.names(folder) == [NAMES[1], NAMES[3]]
    store.close()


def test_what_a_dead_writer_left_is_swept_and_the_rest_stays(folder: Path) -> None:
    replay_segments.write(folder, ASegment())
    half = folder / f".tmp-{NAMES[1]}-00ff"
    half.write_bytes(b"half")
    assert replay_files.sweep(folder) == [half]
    assert on_disk(folder) == [f"{NAMES[0]}.safetensors"]
    assert replay_files.sweep(folder / "not there") == []


def test_a_store_knows_what_it_goes_on_with(folder: Path) -> None:
    entry = replay_segments.write(folder, ASegment())
    store = SegmentStore(folder, [entry])
    store.add_segment(ASegment(NAMES[1]))
    assert store.flush()[NAMES[0]] == entry
    assert sorted(store.flush()) == NAMES[:2]
    store.close()


def test_a_segment_that_the_checkpoint_does_not_list_is_not_read(folder: Path) -> None:
    entry = replay_segments.write(folder, ASegment())
    with pytest.raises(Damaged, match="not among those that the checkpoint lists"):
        replay_segments.reader(folder, [entry])(NAMES[1])


def test_entries_are_what_a_checkpoint_lists() -> None:
    entry = SegmentEntry(NAMES[0], "ab" * 32, 12)
    document = json.loads(json.dumps({"segments": [asdict(entry)], "size": 3}))
    assert replay_files.entries(document) == (entry,)
    assert replay_files.entries({"size": 0}) == ()


@pytest.mark.parametrize(
    "listed",
    [
        "no list",
        ["000000000000000-000000000000009"],
        [{"name": "../../etc/passwd", "sha256": "ab" * 32, "bytes": 1}],
        [{"name": NAMES[0], "sha256": "AB", "bytes": 1}],
        [{"name": NAMES[0], "sha256": "ab" * 32, "bytes": -1}],
        [{"name": NAMES[0], "sha256": "ab" * 32}],
    ],
)
def test_what_is_no_entry_is_refused(listed: Any) -> None:
    with pytest.raises(ValueError, match="is no"):
        replay_files.entries({"segments": listed})


def test_a_small_array_is_in_memory_and_a_large_one_in_a_file_without_a_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "memory_mb", lambda: 1)
    allocate = replay_segments.allocator(folder, 0.5)
    small = allocate("rewards", (1 << 10,), np.float64)
    assert not folder.exists()
    large = allocate("observations", (1 << 19, 2), np.uint8)
    assert (large.shape, large.dtype) == ((1 << 19, 2), np.dtype(np.uint8))
    assert folder.is_dir()
    assert on_disk(folder) == []
    for array in (small, large):
        assert not array.any()
        array[5] = 7
        assert array[5].sum() == 7 * array[5].size


def test_arrays_that_are_large_only_together_are_not_all_in_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "memory_mb", lambda: 1)
    allocate = replay_segments.allocator(folder, 0.5)
    allocate("observations/left", (300 << 10,), np.uint8)
    assert not folder.exists()
    allocate("observations/right", (300 << 10,), np.uint8)
    assert folder.is_dir()


def test_a_disk_without_room_for_the_buffer_is_an_error_that_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "memory_mb", lambda: 1)
    monkeypatch.setattr(os, "posix_fallocate", full_disk)
    with pytest.raises(
        RlctlError, match=r"observations take 2 MiB, more than .*No space"
    ) as caught:
        replay_segments.allocator(folder, 0.5)("observations", (2 << 20,), np.uint8)
    assert caught.value.path == "buffer.size"


def test_a_copy_that_was_cut_short_is_never_taken_for_a_segment(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = replay_segments.write(folder, ASegment())
    whole = replay_files.path_of(folder, entry.name).read_bytes()
    other = SegmentStore(tmp_path / "other")

    def no_links(*_: Any, **__: Any) -> None:
        raise OSError(errno.EXDEV, "another disk")

    def killed(_: Path, to: Path, **__: Any) -> None:
        to.write_bytes(whole[:100])
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "link", no_links)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", killed)
        with pytest.raises(KeyboardInterrupt):
            other.adopt(folder, [entry])
    assert replay_files.names(other.folder) == []
    replay_files.sweep(other.folder)
    replay_files.path_of(other.folder, entry.name).write_bytes(whole[:100])
    other.adopt(folder, [entry])
    assert on_disk(other.folder) == [f"{entry.name}.safetensors"]
    assert replay_files.path_of(other.folder, entry.name).read_bytes() == whole
