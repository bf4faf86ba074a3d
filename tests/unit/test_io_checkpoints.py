"""Checkpoints: whole or not at all, refused by name when damaged, exact when loaded."""

import errno
import fcntl
import hashlib
import json
import math
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_orch.errors import Damaged, NotFound, RlctlError
from rl_orch.io.checkpoints import catalog, checkpoint_files
from rl_orch.io.files import sealed
from tests.odd_files import HUGE, a_hole

FILES = ("tensors.safetensors", "state.json", "MANIFEST.json")


def tensors(fill: float = 1.0) -> dict[str, np.ndarray]:
    return {
        "policies/default/w": np.full((3, 4), fill, np.float32),
        "policies/default/b": np.zeros(4, np.float32),
        "optimizer/w/exp_avg": np.arange(12.0).reshape(3, 4),
        "steps": np.array(7),
    }


def save(root: Path, step: int = 10, fill: float = 1.0) -> Path:
    return checkpoint_files.save(
        root,
        step=step,
        tensors=tensors(fill),
        document={"trainer_state": {"updates": step}, "rng_state": {"numpy": 2**127 + 1}},
        meta={"run_id": "r1", "attempt": 1, "seq": 42},
    )


def fill_of(path: Path) -> float:
    return float(checkpoint_files.load(path).tensors["policies/default/w"][0, 0])


def leftovers(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if not path.name[-12:].isdigit()]


def reseal(path: Path, name: str, data: bytes) -> None:
    """Change a file and the manifest with it, as somebody would who wants to be believed."""
    files = {n: (path / n).read_bytes() for n in FILES[:2]} | {name: data}
    sealed.discard(path)
    sealed.write(path, files, noun="checkpoint")


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    path = save(tmp_path / "ein Ordner, ü")
    assert path.name == "step_000000000010"
    assert sorted(os.listdir(path)) == sorted(FILES)
    loaded = checkpoint_files.load(path)
    assert (loaded.step, loaded.path) == (10, path)
    assert loaded.tensors.keys() == tensors().keys()
    for name, tensor in tensors().items():
        np.testing.assert_array_equal(loaded.tensors[name], tensor, strict=True)
        assert loaded.tensors[name].flags.writeable


def test_the_state_has_the_keys_of_the_format(tmp_path: Path) -> None:
    document = checkpoint_files.load(save(tmp_path)).document
    created_at = document["meta"].pop("created_at")
    assert created_at.endswith("+00:00")
    assert document == {
        "version": 1,
        "module_state": {"default": ["policies/default/b", "policies/default/w"]},
        "trainer_state": {"updates": 10},
        "replay_meta": {},
        "rng_state": {"numpy": 2**127 + 1},
        "meta": {"run_id": "r1", "attempt": 1, "seq": 42, "step": 10},
    }


def test_the_manifest_has_size_and_digest_of_every_file(tmp_path: Path) -> None:
    path = save(tmp_path)
    files = json.loads((path / "MANIFEST.json").read_bytes())["files"]
    for name in FILES[:2]:
        data = (path / name).read_bytes()
        assert files[name] == {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


@pytest.mark.parametrize(
    "tensor",
    [
        np.array(True),
        np.zeros((0, 3), np.int8),
        np.arange(12, dtype=np.uint16).reshape(3, 4).T,
        np.arange(6, dtype=">f8"),
        np.array([math.nan, -0.0, math.inf], np.float16),
    ],
)
def test_a_tensor_of_any_layout_comes_back_equal(tmp_path: Path, tensor: np.ndarray) -> None:
    path = checkpoint_files.save(
        tmp_path, step=0, tensors={"t": tensor}, document={}, meta={"run_id": "r", "attempt": 1}
    )
    np.testing.assert_array_equal(checkpoint_files.load(path).tensors["t"], tensor)


def test_a_state_comes_back_exactly_even_where_numbers_are_not_finite(tmp_path: Path) -> None:
    state = {
        "best": -math.inf,
        "list": [math.inf, 0.1, -0.0, 2**200, None, True, "NaN"],
        "order": {"b": 1, "a": 2},
        "plain": np.float64(0.25),
        "count": np.int64(3),
    }
    path = checkpoint_files.save(
        tmp_path,
        step=0,
        tensors={},
        document={"trainer_state": state},
        meta={"run_id": "r", "attempt": 1},
    )
    loaded = checkpoint_files.load(path).document["trainer_state"]
    assert loaded == state
    assert list(loaded["order"]) == ["b", "a"]
    json.loads((path / "state.json").read_bytes(), parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ({"x": np.zeros(3)}, "trainer_state.x is a ndarray"),
        ({"x": [object()]}, r"trainer_state.x\[0\] is a object"),
        ({"x": {1: 2}}, "trainer_state.x has the key 1"),
        ({"$float": "NaN"}, r"trainer_state has the key '\$float'"),
        ({"x": np.longdouble(1)}, "trainer_state.x is a longdouble"),
    ],
)
def test_a_state_that_would_not_come_back_is_refused(
    tmp_path: Path, state: Any, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        checkpoint_files.save(
            tmp_path,
            step=0,
            tensors={},
            document={"trainer_state": state},
            meta={"run_id": "r", "attempt": 1},
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"step": -1}, "step is -1"),
        ({"step": 10**12}, "step is 1000000000000"),
        ({"document": {"weights": 1}}, "document has weights; allowed: trainer_state"),
        ({"meta": {"run_id": "r"}}, "meta lacks attempt"),
        ({"tensors": {"__metadata__": np.zeros(1)}}, "reserves that name"),
        ({"tensors": {"x": np.array(["text"])}}, "cannot be stored"),
        ({"tensors": {"x": np.array([object()])}}, "cannot be stored"),
    ],
)
def test_what_cannot_be_saved_is_refused(
    tmp_path: Path, wrong: dict[str, Any], sentence: str
) -> None:
    right: dict[str, Any] = {
        "step": 1,
        "tensors": {},
        "document": {},
        "meta": {"run_id": "r", "attempt": 1},
    }
    with pytest.raises(ValueError, match=sentence):
        checkpoint_files.save(tmp_path, **(right | wrong))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", FILES)
def test_any_flipped_byte_is_refused_by_name(tmp_path: Path, name: str) -> None:
    path = save(tmp_path)
    good = (path / name).read_bytes()
    rng = np.random.default_rng(0)
    for place in {0, len(good) - 1, *rng.integers(0, len(good), 150).tolist()}:
        damaged = bytearray(good)
        damaged[place] ^= int(rng.integers(1, 256))
        (path / name).write_bytes(damaged)
        for look in (checkpoint_files.load, catalog.verify):
            with pytest.raises(Damaged, match=rf"(?m)^checkpoint step_000000000010 .*: {name}$"):
                look(path)
    (path / name).write_bytes(good)
    catalog.verify(path)


@pytest.mark.parametrize("name", FILES)
def test_any_truncated_or_longer_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    path = save(tmp_path)
    good = (path / name).read_bytes()
    for data in (b"", good[:1], good[: len(good) // 2], good[:-1], good + b"\0", good + b"\n"):
        (path / name).write_bytes(data)
        with pytest.raises(Damaged, match=name):
            checkpoint_files.load(path)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    path = save(tmp_path)
    (path / name).unlink()
    with pytest.raises(Damaged, match=f"step_000000000010 lacks {name}"):
        checkpoint_files.load(path)


def test_a_file_that_does_not_belong_is_refused_by_name(tmp_path: Path) -> None:
    path = save(tmp_path)
    (path / "evil.pkl").write_bytes(b"cos\nsystem\n")
    with pytest.raises(Damaged, match=r"does not belong to it: evil\.pkl"):
        checkpoint_files.load(path)


@pytest.mark.parametrize("name", FILES)
def test_a_link_or_a_pipe_in_place_of_a_file_is_refused(tmp_path: Path, name: str) -> None:
    path = save(tmp_path / "root")
    moved = (path / name).rename(tmp_path / name)
    (path / name).symlink_to(moved)
    with pytest.raises(Damaged, match=name):
        checkpoint_files.load(path)
    (path / name).unlink()
    os.mkfifo(path / name)
    with pytest.raises(Damaged, match=name):
        checkpoint_files.load(path)


def test_more_bytes_than_are_read_are_refused_before_any_is(tmp_path: Path) -> None:
    path = save(tmp_path)
    listed = json.loads((path / "MANIFEST.json").read_text())["files"]
    listed["tensors.safetensors"]["size"] = HUGE
    (path / "MANIFEST.json").write_bytes(sealed._manifest(listed))
    a_hole(path / "tensors.safetensors")
    for use in (checkpoint_files.load, catalog.verify):
        with pytest.raises(Damaged, match=r"has 500,[0-9,]+ bytes; at most 17,179,869,184 are"):
            use(path)


def test_more_bytes_than_are_read_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(RlctlError, match="checkpoint x would have 7 bytes; at most 6 are allowed"):
        sealed.write(tmp_path / "x", {"a": b"1234", "b": b"567"}, noun="checkpoint", most=6)
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_place_of_a_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "step_000000000011").symlink_to(save(tmp_path))
    with pytest.raises(Damaged, match="is a link; name the checkpoint itself"):
        checkpoint_files.load(tmp_path / "step_000000000011")


def test_a_checkpoint_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no checkpoint at"):
        checkpoint_files.load(tmp_path / "step_000000000010")


def header(document: str) -> bytes:
    return struct.pack("<Q", len(document)) + document.encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 8,
        struct.pack("<Q", 2**40) + b"{}",
        struct.pack("<Q", 17 << 20) + b" " * (17 << 20),
        header("not json"),
        header('{"x":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}') + b"\0\0",
        header('{"x":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}'),
        header('{"x":{"dtype":"F32","shape":[1000000000],"data_offsets":[0,4]}}') + b"\0" * 4,
        header("[" * 100_000),
    ],
    ids=range(9),
)
def test_malformed_safetensors_with_right_digests_are_refused(tmp_path: Path, data: bytes) -> None:
    path = save(tmp_path)
    reseal(path, "tensors.safetensors", data)
    with pytest.raises(Damaged, match=r"is not in the safetensors format: tensors\.safetensors"):
        checkpoint_files.load(path)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b'{"version":1}',
        b'{"version":2,"module_state":{},"trainer_state":{},"replay_meta":{},"rng_state":{},"meta":{}}',
        b'{"version":1,"module_state":{},"trainer_state":{},"replay_meta":{},"rng_state":{},"meta":{}}',
        b'{"version":1,"module_state":{},"trainer_state":{"$float":"x"},"replay_meta":{},'
        b'"rng_state":{},"meta":{"step":10}}',
        b'{"version":1,"module_state":{},"trainer_state":{},"replay_meta":{},"rng_state":{},'
        b'"meta":{"step":10}}',
    ],
    ids=range(9),
)
def test_a_malformed_state_with_right_digests_is_refused(tmp_path: Path, data: bytes) -> None:
    path = save(tmp_path)
    reseal(path, "state.json", data)
    with pytest.raises(Damaged, match=r"(?m)state\.json$"):
        checkpoint_files.load(path)


def test_a_checkpoint_under_the_name_of_another_step_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path).rename(tmp_path / "step_000000000099")
    with pytest.raises(Damaged, match=r"step_000000000099 is of step 10: state\.json"):
        checkpoint_files.load(path)


def test_a_listing_tells_which_checkpoints_are_intact(tmp_path: Path) -> None:
    paths = [save(tmp_path, step) for step in (10, 30, 20)]
    (paths[2] / "state.json").write_bytes(b"{}")
    (tmp_path / "step_5").mkdir()
    (tmp_path / "notes.txt").touch()
    entries = catalog.listing(tmp_path)
    assert [(entry.step, entry.intact) for entry in entries] == [
        (10, True),
        (20, False),
        (30, True),
    ]
    assert entries[1].problem == (
        "checkpoint step_000000000020 has a file of the wrong size: state.json"
    )


def test_the_newest_intact_checkpoint_is_the_one_before_a_damaged_one(tmp_path: Path) -> None:
    assert catalog.newest(tmp_path / "none yet") == catalog.Newest(None)
    paths = [save(tmp_path, step) for step in (10, 20, 30)]
    assert catalog.newest(tmp_path) == catalog.Newest(paths[2])
    sentences: list[str] = []
    for damaged, path in ((2, paths[1]), (1, paths[0]), (0, None)):
        (paths[damaged] / "tensors.safetensors").unlink()
        sentences.append(f"checkpoint {paths[damaged].name} lacks tensors.safetensors")
        assert catalog.newest(tmp_path) == catalog.Newest(path, tuple(sentences))


def test_a_checkpoint_of_the_same_step_is_replaced(tmp_path: Path) -> None:
    save(tmp_path, fill=1.0)
    assert fill_of(save(tmp_path, fill=2.0)) == 2.0
    assert leftovers(tmp_path) == []


def test_a_damaged_checkpoint_of_the_same_step_is_replaced(tmp_path: Path) -> None:
    (save(tmp_path) / "state.json").unlink()
    assert fill_of(save(tmp_path, fill=2.0)) == 2.0


def test_the_last_ones_and_the_best_are_chosen() -> None:
    names = [catalog.name_of(step) for step in (10, 20, 30, 40, 50)]
    assert catalog.chosen(names, last=2, best=names[1]) == [names[1], *names[3:]]
    assert catalog.chosen(names, last=9, best=None) == names
    with pytest.raises(ValueError, match="at least 1"):
        catalog.chosen(names, last=0, best=None)


def test_retention_removes_all_but_the_chosen_ones(tmp_path: Path) -> None:
    paths = [save(tmp_path, step) for step in (10, 20, 30)]
    catalog.retain(tmp_path, [paths[0].name, paths[2].name])
    assert [entry.path for entry in catalog.listing(tmp_path)] == [paths[0], paths[2]]
    assert leftovers(tmp_path) == []


def test_retention_removes_nothing_where_none_of_the_chosen_is_there(tmp_path: Path) -> None:
    paths = [save(tmp_path, step) for step in (10, 20)]
    catalog.retain(tmp_path, [catalog.name_of(30)])
    assert [entry.path for entry in catalog.listing(tmp_path)] == paths


def test_a_sweep_leaves_the_work_of_a_living_writer_alone(tmp_path: Path) -> None:
    living, dead = tmp_path / ".tmp-living", tmp_path / ".tmp-dead"
    living.mkdir()
    dead.mkdir()
    fd = os.open(living, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    assert catalog.sweep(tmp_path) == [dead]
    os.close(fd)
    assert catalog.sweep(tmp_path) == [living]


DISK = ("mkdir", "open", "fsync", "replace", "rmdir", "unlink")


def fail_once(monkeypatch: pytest.MonkeyPatch, call: str, number: int) -> None:
    """Let the disk be full at one call, the `number`-th of its name, and have room afterwards."""
    real = getattr(os, call)
    calls = iter(range(1, 1000))

    def failing(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == number:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*args, **kwargs)

    monkeypatch.setattr(os, call, failing)


@pytest.mark.parametrize("step", [10, 20])
@pytest.mark.parametrize(
    ("call", "number"),
    [
        ("mkdir", 2),
        ("open", 1),
        ("fsync", 1),
        ("fsync", 2),
        ("fsync", 3),
        ("fsync", 4),
        ("replace", 1),
    ],
)
def test_a_full_disk_is_a_clear_error_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, call: str, number: int
) -> None:
    old = save(tmp_path, 10)
    fail_once(monkeypatch, call, number)
    sentence = rf"cannot write checkpoint .*{step}: No space left on device"
    with pytest.raises(RlctlError, match=sentence) as caught:
        save(tmp_path, step, fill=2.0)
    monkeypatch.undo()
    assert caught.value.hint is not None
    assert "Free space" in caught.value.hint
    assert list(tmp_path.iterdir()) == [old]
    assert fill_of(old) == 1.0
    assert fill_of(save(tmp_path, step, fill=3.0)) == 3.0


def test_the_old_one_stays_if_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = save(tmp_path, 10)
    fail_once(monkeypatch, "replace", 2)
    with pytest.raises(RlctlError, match="No space left"):
        save(tmp_path, 10, fill=2.0)
    assert list(tmp_path.iterdir()) == [old]
    assert fill_of(old) == 1.0


def in_a_process_that_dies_at_call(number: int, action: Callable[[], object]) -> bool:
    """Whether the action died before that call to the disk, as by kill -9, rather than finish."""
    pid = os.fork()
    if pid == 0:
        left = iter(range(number - 1, -1, -1))

        def dying(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                return real(*args, **kwargs) if next(left) else os._exit(9)

            return call

        for name in DISK:
            setattr(os, name, dying(getattr(os, name)))
        try:
            action()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9


def crashes(action: Callable[[], object]) -> Iterator[int]:
    """One crash after another, each a call to the disk later than the one before."""
    number = 1
    while in_a_process_that_dies_at_call(number, action):
        yield number
        number += 1
    assert number > 5


def test_a_crash_at_any_step_of_writing_leaves_the_last_good_checkpoint(tmp_path: Path) -> None:
    last = save(tmp_path, 10)
    new = tmp_path / "step_000000000020"
    for _ in crashes(lambda: save(tmp_path, 20, fill=2.0)):
        newest = catalog.newest(tmp_path).path
        assert newest is not None
        assert newest == (new if new.exists() else last)
        assert fill_of(newest) == (2.0 if newest == new else 1.0)
        catalog.sweep(tmp_path)
        assert leftovers(tmp_path) == []
        sealed.discard(new)
    assert fill_of(new) == 2.0


def test_a_crash_at_any_step_of_replacing_leaves_the_old_or_the_new_one(tmp_path: Path) -> None:
    path = save(tmp_path, 10, fill=1.0)
    seen = set()
    for _ in crashes(lambda: save(tmp_path, 10, fill=2.0)):
        (entry,) = catalog.listing(tmp_path)
        assert entry.intact
        seen.add(fill_of(entry.path))
        catalog.sweep(tmp_path)
        assert [path] == list(tmp_path.iterdir())
        assert fill_of(path) in (1.0, 2.0)
        save(tmp_path, 10, fill=1.0)
    assert seen == {1.0, 2.0}


def test_a_crash_at_any_step_of_removing_leaves_no_half_of_a_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 20)
    save(tmp_path, 10)
    for _ in crashes(lambda: catalog.retain(tmp_path, [catalog.name_of(20)])):
        assert all(entry.intact for entry in catalog.listing(tmp_path))
        catalog.sweep(tmp_path)
        assert leftovers(tmp_path) == []
        save(tmp_path, 10)
