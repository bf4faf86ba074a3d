"""Compiled code on disk: many processes at once, and places that cannot be written to."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numba
import pytest
from numba.core.caching import FunctionCache

from rl_orch.rl import jit
from rl_orch.rl.jit import KernelCache
from tests.waiting import PATIENCE_S

PROGRAM = """
import sys
import numpy as np
from rl_orch.rl.jit import product
from rl_orch.rl.compile_time import COMPILING
from rl_orch.rl.kernels.dense import FORMS, OUTPUT_OF

told = []
COMPILING.on_compile = lambda: told.append("compiling")
kind = sys.argv[1]
left, right, out = (np.full(4, value, kind) for value in (2.0, 3.0, 0.0))
print("ready", flush=True)
sys.stdin.readline()
product(FORMS[OUTPUT_OF], left, 0, right, 0, out, 0, 2, 2, 2)
assert out.tolist() == [12.0] * 4, out
found = product.stats
assert COMPILING.seconds > 0.0
assert told or not sum(found.cache_misses.values())
print(sum(found.cache_hits.values()), sum(found.cache_misses.values()), *told)
"""


def started(kind: str, environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, kind],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answers(*processes: subprocess.Popen[str]) -> list[tuple[int, int]]:
    """How many kernels each found on disk, and how many it had to compile; all begin at once."""
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    found = []
    for process in processes:
        out, problem = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, problem
        hits, misses, *_told = out.split()
        found.append((int(hits), int(misses)))
    return found


def test_processes_that_compile_at_once_keep_the_code_of_all(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    kinds = ("float32", "float64")
    assert answers(*(started(kind, environment) for kind in kinds)) == [(0, 1), (0, 1)]
    assert answers(*(started(kind, environment) for kind in kinds)) == [(1, 0), (1, 0)]
    left = [path.name for path in tmp_path.rglob("*") if ".tmp." in path.name]
    assert left == []


def test_only_what_is_not_kept_is_said_to_be_compiled(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    said = [started("float32", environment).communicate("go\n", PATIENCE_S)[0] for _ in range(2)]
    assert ["compiling" in text for text in said] == [True, False]


@pytest.mark.parametrize(
    ("ending", "left"),
    [
        ("nbi", 0.0),
        ("nbc", 0.5),
        pytest.param("nbi", 0.5, marks=pytest.mark.soak),
        pytest.param("nbc", 0.0, marks=pytest.mark.soak),
    ],
)
def test_what_a_power_cut_has_left_of_it_is_compiled_anew(
    ending: str, left: float, tmp_path: Path
) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    answers(started("float32", environment))
    for path in tmp_path.rglob(f"*.{ending}"):
        path.write_bytes(path.read_bytes()[: int(left * path.stat().st_size)])
    assert answers(started("float32", environment)) == [(0, 1)]
    assert answers(started("float32", environment)) == [(1, 0)]


def test_without_a_home_that_can_be_written_to_each_process_compiles(tmp_path: Path) -> None:
    taken = tmp_path / "a file"
    taken.write_text("")
    nowhere = {"XDG_CACHE_HOME": str(taken)}

    assert answers(started("float32", nowhere)) == [(0, 1)]
    assert answers(started("float32", nowhere)) == [(0, 1)]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Caches of one function, in a folder of their own."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    cache: Any = KernelCache
    return lambda: cache(started)


def test_of_processes_that_need_the_same_one_compiles_it(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    found = answers(*(started("float32", environment) for _ in range(3)))
    assert sorted(found) == [(0, 1), (1, 0), (1, 0)]


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What there is to be loaded: nothing, at first."""
    there: list[str] = []
    monkeypatch.setattr(FunctionCache, "load_overload", lambda *_: there[-1] if there else None)
    monkeypatch.setattr(
        FunctionCache, "save_overload", lambda _self, _sig, data: there.append(data)
    )
    return there


def test_who_comes_second_waits_for_the_code_of_the_first(
    kept: Callable[[], Any], loading: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, found = kept(), kept(), []
    locked, turned_away = jit._locked, Event()

    def noted(lock: int) -> bool:
        if not (is_ours := locked(lock)):
            turned_away.set()
        return is_ours

    monkeypatch.setattr(jit, "_locked", noted)
    monkeypatch.setattr(jit, "COMPILED_WITHIN_S", PATIENCE_S)
    assert first.load_overload("one", None) is None
    waiting = Thread(target=lambda: found.append(second.load_overload("one", None)))
    waiting.start()
    assert turned_away.wait(PATIENCE_S)
    assert waiting.is_alive()
    first.save_overload("one", "code")
    waiting.join(timeout=PATIENCE_S)
    assert found == ["code"]
    assert loading == ["code"]
    assert kept().load_overload("one", None) == "code"  # And nobody holds it any more.


def test_one_that_has_stopped_is_not_waited_for_without_end(
    kept: Callable[[], Any], loading: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the other has compiled is not kept then: both could write at once."""
    monkeypatch.setattr(jit, "COMPILED_WITHIN_S", 0.1)
    stopped, other = kept(), kept()
    assert stopped.load_overload("one", None) is None
    assert other.load_overload("one", None) is None
    other.save_overload("one", "code")
    assert loading == []
    stopped.save_overload("one", "code")
    assert loading == ["code"]


def test_where_nothing_can_be_written_code_is_used_all_the_same(
    kept: Callable[[], Any], loading: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: FunctionCache, sig: str, data: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FunctionCache, "save_overload", full)
    cache = kept()
    assert cache.load_overload("any", None) is None
    cache.save_overload("any", None)
    assert kept().load_overload("any", None) is None  # Nobody waits for it.


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o722])
def test_code_is_not_kept_where_others_could_put_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "rl_orch").mkdir()
    (tmp_path / "rl_orch").chmod(mode)
    assert jit._folder.__wrapped__() is None


def test_a_folder_for_code_is_its_users_alone_whatever_the_umask_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = os.umask(0)
    try:
        assert jit._folder.__wrapped__() is not None
    finally:
        os.umask(before)
    assert (tmp_path / "cache" / "rl_orch").stat().st_mode & 0o777 == 0o700


def test_code_that_nothing_has_used_for_a_month_is_swept_but_never_that_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    used = Path(str(jit._folder.__wrapped__()))
    cache = tmp_path / "rl_orch"
    old, young, foreign = cache / "kernels-old", cache / "kernels-young", cache / "others"
    elsewhere, link = tmp_path / "elsewhere", cache / "kernels-link"
    for folder in (used, old, young, foreign, elsewhere):
        (folder / "index").mkdir(parents=True)
    link.symlink_to(elsewhere)
    long_ago = time.time() - jit.UNUSED_S - 60.0
    for folder in (used, old, foreign, elsewhere, link):
        os.utime(folder, (long_ago, long_ago), follow_symlinks=False)
    assert jit._folder.__wrapped__() == str(used)
    assert [path.exists() for path in (used, old, young, foreign)] == [True, False, True, True]
    assert (elsewhere / "index").exists()
    assert used.stat().st_mtime > long_ago  # So that other releases leave it alone.
