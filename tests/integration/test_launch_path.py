"""The path of a launch: nothing is fetched twice. Counted in the real processes."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.integration.conftest import RLCTL, SMALL, Shell
from tests.opened import OpenedFiles
from tests.waiting import PATIENCE_S


def carried_out(shell: Shell, opened: OpenedFiles, *words: str) -> None:
    """Carry a command out by processes that note what they open."""
    done = subprocess.run(
        [*RLCTL, *words],
        env=opened.variables(shell.environment),
        cwd=shell.folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout


def test_every_process_of_a_launch_reads_the_spec_once_and_two_of_them_the_checkpoint(
    shell: Shell, tmp_path: Path
) -> None:
    opened = OpenedFiles(tmp_path)
    words = ("launch", "--env", "CartPole-v1", *SMALL, "train.total_timesteps=1024")
    carried_out(shell, opened, *words, "gates.max_latency_ms=1e6", "gates.stability=false")
    (spec,) = (shell.home / "runs").glob("*/spec.yaml")
    counts = [files[str(spec)] for files in opened.by_process("spec.yaml").values()]
    assert counts == [1, 1, 1]  # Who trains, who evaluates, who supervises and sums up.
    (tensors,) = spec.parent.glob("checkpoints/*/tensors.safetensors")
    loads = [files[str(tensors)] for files in opened.by_process(tensors.name).values()]
    # Who evaluates, though it also times decisions for the gate; and who seals what acts, and is
    # sure that this checkpoint is whole before others are let go of.
    assert sorted(loads) == [1, 2]


@pytest.fixture
def two_models(shell: Shell) -> list[str]:
    """The runs of two models that have passed their gates."""
    words = ("launch", "--env", "CartPole-v1", *SMALL, "train.total_timesteps=1024")
    gate = ("gates.min_return=1", "gates.stability=false")
    return [shell.json(*words, *gate, f"env.seed={seed}")["id"] for seed in (1, 2)]


def test_a_promotion_reads_no_weights_twice_and_nothing_of_a_checkpoint(
    shell: Shell, tmp_path: Path, two_models: list[str]
) -> None:
    """Also where the two play each other: whoever plays a model has read it, and nobody else."""
    files = {str(path) for path in (shell.home / "runs").glob("*/models/*/*.safetensors")}
    champion, challenger = two_models
    for run, expected in ((champion, 1), (challenger, 2)):
        (tmp_path / run).mkdir()
        opened = OpenedFiles(tmp_path / run)
        equal = ("--allow-equal", "--margin", "1000", "--episodes", "20")
        carried_out(shell, opened, "promote", run, "--to", "production", *equal)
        counts: Counter[str] = Counter()
        for path in files:
            for process in opened.by_process(Path(path).name).values():
                counts[path] += process[path]
        assert sorted(+counts) == sorted(path for path in files if counts[path] == 1)
        assert counts.total() == expected
        assert opened.by_process("tensors.safetensors") == {}
