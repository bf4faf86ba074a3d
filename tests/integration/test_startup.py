"""How soon the command answers, and what it does not load to do so.

Time is that of the processor, the least of five, or of fifteen while the machine is busy: what
`rlctl` takes where it has nothing to wait for.
"""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from rl_orch.core.store import Store
from rl_orch.io.rundir import RunDir
from rl_orch.orchestrator import connect, to_spec
from rl_orch.records import Run, State

HEAVY = ("torch", "numba", "tensorboard", "gymnasium")
"""Nothing in the control plane needs these."""

LATER = (*HEAVY, "numpy", "hydra", "alembic", "plotext", "httpx", "fastapi")
"""Looking at runs does not need these either."""

RUNS = 1_000
SHOWN = ("run-0007", "run-0008")
"""Runs that also have a directory."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with many runs that have ended."""
    folder = tmp_path_factory.mktemp("home")
    store = Store(connect(folder).location)
    for number in range(RUNS):
        store.add(_run(number, folder))
    for name in SHOWN:
        RunDir(folder / "runs" / name).create(to_spec({"env": {"id": "CartPole-v1"}}), {})
    return folder


@pytest.fixture(scope="module")
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a database and nothing in it."""
    folder = tmp_path_factory.mktemp("empty")
    Store(connect(folder).location)
    return folder


def test_help_takes_less_than_0_4_s(empty_home: Path) -> None:
    assert least_seconds(empty_home, "--help", bar=0.4) < 0.4


LIBRARIES = (
    "import sqlalchemy.dialects.sqlite, pydantic.main, typer.main, rich.table, rich.console, yaml,"
    "psutil"
)
"""What a listing is made with, and nothing of ours."""


def test_ls_takes_little_more_than_its_libraries_and_a_thousand_runs_add_at_most_0_2_s(
    empty_home: Path, home: Path
) -> None:
    """0.7 s where the libraries take 0.45; how fast the machine is at the moment cancels out."""
    bar = 1.55 * least_seconds_of(LIBRARIES, empty_home, bar=0.0)
    none = least_seconds(empty_home, "ls", bar=bar)
    assert none < bar
    assert least_seconds(home, "ls", bar=none + 0.2) < none + 0.2


@pytest.mark.parametrize(
    ("words", "unwanted"),
    [
        (["--help"], (*LATER, "pydantic", "sqlalchemy", "yaml")),
        (["--version"], (*LATER, "pydantic", "sqlalchemy", "yaml")),
        (["nonsense"], (*LATER, "pydantic", "sqlalchemy", "yaml")),
        (["options"], (*LATER, "sqlalchemy")),
        (["ls"], LATER),
        (["logs", "run-0007"], LATER),
        (["stop", "run-0007"], LATER),
        (["wait", "run-0007"], LATER),
        (["show", "run-0007"], HEAVY),
        (["compare", *SHOWN], HEAVY),
        (["launch", "--help"], HEAVY),
        (["check", "--env", "CartPole-v1", "train.lr=1e-3"], HEAVY),
    ],
    ids=lambda part: part[0] if isinstance(part, list) else "",
)
def test_a_command_loads_only_what_it_needs(
    home: Path, words: list[str], unwanted: tuple[str, ...]
) -> None:
    program = (
        "import sys\n"
        "from rl_orch.cli.rlctl import run\n"
        "run(sys.argv[2:])\n"
        "print('loaded:', *sorted(set(sys.argv[1].split()) & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, " ".join(unwanted), *words],
        env=_environment(home),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "loaded:", done.stdout


def least_seconds(home: Path, *words: str, bar: float) -> float:
    """The least processor time that a command takes."""
    return least_seconds_of("from rl_orch.cli.rlctl import main; main()", home, *words, bar=bar)


def least_seconds_of(code: str, home: Path, *words: str, bar: float) -> float:
    """The least processor time that a program takes, tried again while that is over the bar."""
    program = [sys.executable, "-c", code, *words]
    seconds: list[float] = []
    while len(seconds) < 5 or (len(seconds) < 15 and min(seconds) >= bar):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(program, env=_environment(home), stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(seconds)


def _environment(home: Path) -> dict[str, str]:
    """As users have it: with compiled modules kept from one start to the next."""
    unlike = ("RL", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(unlike)}
    return kept | {"RLCTL_HOME": str(home)}


def _run(number: int, home: Path) -> Run:
    run_id = f"run-{number:04}"
    return Run(
        id=run_id,
        name="startup",
        env="CartPole-v1",
        algo="ppo",
        config_hash="0" * 64,
        path=str(home / "runs" / run_id),
        seed=number,
        total_timesteps=100_000,
        state=State.SUCCEEDED,
        reason="trained",
        env_steps=100_000,
        created_at=1_700_000_000.0 + number,
        updated_at=1_700_000_000.0 + number,
    )
