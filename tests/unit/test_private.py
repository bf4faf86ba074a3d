"""What is made in a home is for its user alone, whatever the umask is."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_orch.cli.connection import make_home
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.preflight.findings import privacy
from rl_orch.io.files import private
from rl_orch.io.files.sealed import write
from rl_orch.testing import FakeRunner, a_spec, trains_to

OPEN = 0o077


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    """A user who lets everybody read and write."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_to_others(root: Path) -> list[str]:
    """What under a folder, itself included, others than its user may use."""
    found = [root, *root.rglob("*")]
    return [f"{mode(path):o} {path}" for path in found if mode(path) & OPEN]


def test_all_that_a_run_leaves_in_a_new_home_is_its_users_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    made = Orchestrator(home, FakeRunner(trains_to([500.0])))
    made.launch(a_spec("gates.min_return=400"))
    made.submit(a_spec())
    made.stop("last")
    assert open_to_others(home) == []
    assert len(list(home.rglob("*"))) > 10


def test_a_home_that_is_there_is_left_as_it_is_and_what_is_made_in_it_is_private(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    home.mkdir(0o755)
    make_home(home)
    Orchestrator(home, FakeRunner(trains_to([1.0]))).launch(a_spec())
    assert mode(home) == 0o755
    assert open_to_others(home / "runs") == []
    assert mode(home / "rlctl.db") == 0o600


def test_a_new_home_is_private_wherever_it_is_made(tmp_path: Path) -> None:
    for number, around in enumerate((0o1777, 0o2775)):
        tmp_path.chmod(around)
        home = tmp_path / str(number)
        Orchestrator(home, FakeRunner(trains_to([1.0]))).submit(a_spec())
        assert open_to_others(home) == []
    tmp_path.chmod(0o1777)
    Orchestrator(home, FakeRunner(trains_to([1.0])), database=tmp_path / "a.db").submit(a_spec())
    assert mode(tmp_path / "a.db") == 0o600


@pytest.mark.parametrize("umask", [0o002, 0o022])
def test_a_home_that_is_shared_with_a_group_stays_shared(tmp_path: Path, umask: int) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o2770)
    os.umask(umask)
    Orchestrator(home, FakeRunner(trains_to([1.0]))).launch(a_spec())
    for path in home.rglob("*"):
        readable = 0o050 if path.is_dir() else 0o040
        assert mode(path) & 0o077 & ~umask == mode(path) & 0o077
        assert (mode(path) & readable, mode(path) & 0o007) == (readable, 0), path


def test_what_is_written_elsewhere_follows_the_umask(tmp_path: Path) -> None:
    os.umask(0o022)
    tmp_path.chmod(0o755)
    write(tmp_path / "out" / "bundle", {"a": b"1"}, noun="bundle")
    assert [mode(path) for path in (tmp_path / "out", tmp_path / "out" / "bundle")] == [0o755] * 2
    assert mode(tmp_path / "out" / "bundle" / "a") == 0o644


def test_a_directory_from_elsewhere_is_closed_as_it_is_taken_in(tmp_path: Path) -> None:
    source = Orchestrator(tmp_path / "old", FakeRunner(trains_to([1.0])))
    run = source.launch(a_spec()).run
    for path in (Path(run.path), *Path(run.path).rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    home = tmp_path / "new"
    Orchestrator(home, FakeRunner(trains_to([1.0]))).import_run(Path(run.path))
    assert open_to_others(home) == []


def test_a_process_keeps_within_a_folder_and_knows_the_umask_of_its_user(tmp_path: Path) -> None:
    shown = "import os; print(oct(os.umask(0)), oct(private.users_umask()))"
    program = (
        "import pathlib, sys; from rl_orch.io.files import private; "
        f"private.keep_within(pathlib.Path(sys.argv[1])); {shown}"
    )
    expected = {0o700: "0o77", 0o750: "0o27", 0o2770: "0o7", 0o777: "0o2"}
    for folder_mode, umask in expected.items():
        tmp_path.chmod(folder_mode)
        words = [sys.executable, "-c", program, str(tmp_path)]
        done = subprocess.run(words, capture_output=True, text=True, check=True, umask=0o002)
        assert done.stdout.split() == [umask, "0o2"]
    words[-1] = str(tmp_path / "gone")
    done = subprocess.run(words, capture_output=True, text=True, check=True, umask=0o002)
    assert done.stdout.split() == ["0o77", "0o2"]


def test_the_doctor_says_to_whom_a_home_is_open_and_how_it_is_closed(tmp_path: Path) -> None:
    home = tmp_path / "a home"
    home.mkdir(0o700)
    assert private.open_to(home) is None
    home.chmod(0o755)
    assert private.open_to(home) == "everybody on this machine (mode 755)"
    home.chmod(0o2770)
    assert private.open_to(home) == f"the group {home.group()} (mode 2770)"
    assert privacy({}).level == "ok"
    finding = privacy({str(home): "everybody"})
    assert (finding.level, finding.fix) == (
        "warn",
        f"If that is not meant: chmod -R go= '{home}'",
    )
