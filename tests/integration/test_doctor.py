"""`rlctl doctor` on this machine, and the estimate of what a run writes against a real one."""

from pathlib import Path

import pytest

from rl_orch.core.preflight.facts import ask_torch
from rl_orch.core.preflight.footprint import COPY_BYTES, FIXED_BYTES, footprint
from rl_orch.io.machine import hardware
from rl_orch.io.run.directory import RunDir
from tests.conftest import python_path
from tests.integration.conftest import RESUMED, Shell

LOOKED_AT = {
    *("python", "torch", "rendering", "cores", "memory", "file system", "disk", "sqlite"),
    "privacy",
    *("database", "extras", "open files", "kernels", "port", "clock"),
}
FACTOR = 4.0


def size(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_a_machine_that_runs_these_tests_passes_and_nothing_is_made(shell: Shell) -> None:
    document = shell.json("doctor")
    assert document["ok"] is True
    assert {finding["name"] for finding in document["findings"]} == LOOKED_AT
    assert {finding["level"] for finding in document["findings"]} <= {"ok", "warn"}
    assert all(set(f) == {"name", "level", "detail", "fix", "path"} for f in document["findings"])
    assert not shell.home.exists()


def test_what_fails_is_shown_with_its_fix_and_exits_with_1(shell: Shell) -> None:
    absent = "mps" if hardware.gpus() else "cuda"
    asked = ("--env", "CartPole-v1", "resources.memory_mb=1e8", "--device", absent, "--seeds", "3")
    done = shell.run("doctor", *asked)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    memory = next(line for line in lines if line.startswith("✗ memory"))
    assert "resources.memory_mb is 100000000, but this machine has" in memory
    assert "Set resources.memory_mb to at most" in lines[lines.index(memory) + 1]
    device = next(line for line in lines if line.startswith("✗ device"))
    assert f"resources.device is '{absent}', but torch" in device
    assert any(line.startswith("✓ python") for line in lines)
    assert lines[-1].startswith("2 failed")


def test_a_spec_that_is_wrong_is_bad_input(shell: Shell) -> None:
    assert shell.json("doctor", "--lr", "0", code=2)["error"]["code"] == "spec_invalid"


def test_a_torch_that_cannot_be_loaded_is_told_by_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.12 is missing')")
    monkeypatch.setenv("PYTHONPATH", python_path(tmp_path))
    assert ask_torch().problem == (
        "torch cannot be loaded: ImportError: libcudart.so.12 is missing"
    )


def test_the_estimate_of_what_a_run_writes_is_right_within_a_factor_of_four(whole: RunDir) -> None:
    expected = footprint(whole.spec())
    saved = [path for path in whole.checkpoints.iterdir() if path.name.startswith("step_")]
    assert "checkpoint.keep_last=1000" in RESUMED
    assert expected.checkpoints / 2 <= len(saved) <= expected.checkpoints
    assert near(size(saved[0]), expected.checkpoint)
    copies = whole.spec().env.num_envs
    assert near((saved[0] / "state.json").stat().st_size, COPY_BYTES * copies)
    others = size(whole.path) - size(whole.checkpoints)
    assert near(others, expected.rest - FIXED_BYTES)
    assert near(size(whole.path), expected.total)


def near(real: float, expected: float) -> bool:
    """Whether two sizes are alike."""
    return 1 / FACTOR < real / expected < FACTOR
