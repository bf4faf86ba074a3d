"""How much the command does before it answers, and what it does not load to do so. How soon it
answers is for `make soak` to tell.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rl_orch.core.store.runs import Store
from rl_orch.io.run.directory import RunDir
from rl_orch.orchestrator import connect, to_spec
from rl_orch.records import Run, State
from tests.conftest import python_path

ROOT = Path(__file__).parents[2]
MAIN = "from rl_orch.cli.rlctl import main; main()"
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


LIBRARIES = (
    "import sqlalchemy.dialects.sqlite, pydantic.main, typer.main, rich.table, rich.console, yaml,"
    "psutil"
)
"""What a listing is made with, and nothing of ours."""

COUNTED = """
import sys
from tests.counting import calls
def carry_out():
    try:
        exec(sys.argv.pop(1))
    except SystemExit as end:
        assert not end.code
sys.stderr.write(str(calls(carry_out)))
"""


def test_help_is_little_work(empty_home: Path) -> None:
    assert calls_of(MAIN, empty_home, "--help") < 400_000


def test_ls_is_little_more_work_than_its_libraries_and_a_thousand_runs_add_little(
    empty_home: Path, home: Path
) -> None:
    none = calls_of(MAIN, empty_home, "ls")
    assert none < 2 * calls_of(LIBRARIES, empty_home)
    assert calls_of(MAIN, home, "ls") < none + 400 * RUNS


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
        env=environment(home),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "loaded:", done.stdout


def calls_of(code: str, home: Path, *words: str) -> int:
    """How many functions are called where a program begins and ends."""
    program = [sys.executable, "-c", COUNTED, code, *words]
    done = subprocess.run(
        program, cwd=ROOT, env=environment(home), capture_output=True, text=True, check=True
    )
    return int(done.stderr.splitlines()[-1])


def environment(home: Path) -> dict[str, str]:
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


def test_ctrl_c_while_the_program_is_loaded_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    entry = "from rl_orch.cli.entry import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", entry, "ls"],
        env=os.environ | {"PYTHONPATH": python_path(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
