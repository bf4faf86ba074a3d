"""Where modules that specs name are found, and by whom: a service in one folder, callers in others.

The module leaves a mark when it is imported, so that nothing is imported unseen.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rl_orch.client import Client
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.store.tokens import Scope
from rl_orch.errors import Refused, SpecInvalid
from rl_orch.io.run.directory import RunDir
from rl_orch.orchestrator import connect
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from tests.faults.lab import Up

MODULE = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
open({mark!r}, "a").write("imported\\n")
gymnasium.register("Marked-v0", entry_point=CartPoleEnv, max_episode_steps=20)
"""
NAME = "marked_module"


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "mark"


@pytest.fixture
def here(tmp_path: Path, mark: Path) -> Path:
    """The folder that holds the module."""
    return holding(tmp_path / "a folder: with the module", mark)


def holding(folder: Path, mark: Path) -> Path:
    """A folder with a module that leaves the mark."""
    folder.mkdir()
    (folder / f"{NAME}.py").write_text(MODULE.format(mark=str(mark)))
    return folder


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


@pytest.fixture
def spec() -> Spec:
    return resolve(
        {
            "env": {"id": f"{NAME}:Marked-v0", "num_envs": 2},
            "train": {"total_timesteps": 64},
            "rollout": {"steps": 32},
            "eval": {"episodes": 2},
        }
    )


@contextmanager
def serving(home: Path, *options: str) -> Iterator[Up]:
    service = Up(home, options=options)
    try:
        service.start()
        yield service
    finally:
        service.close()


@pytest.fixture
def up(here: Path) -> Iterator[Up]:
    """A service that is started in the folder that holds the module."""
    with serving(here / "home") as service:
        yield service


def caller(service: Up, scope: Scope) -> Client:
    """A program with a token of that scope."""
    made = service.run("token", "create", f"t-{scope}", "--scope", scope)
    assert service.place is not None
    return Client(service.place.url, made.stdout.strip())


def test_the_folder_of_a_service_is_on_nobodys_path(up: Up, spec: Spec, mark: Path) -> None:
    """Whoever operates names no code at all; an admin does, and it is not found there."""
    operator, admin = caller(up, "operate"), caller(up, "admin")
    for ask in (operator.check, operator.submit):
        with pytest.raises(Refused, match="code of the caller's choosing"):
            ask(spec)
    for ask in (admin.check, admin.submit):
        with pytest.raises(SpecInvalid, match=f"no module '{NAME}'"):
            ask(spec)
    assert not mark.exists()


def test_only_the_services_own_user_says_where_modules_are(
    up: Up, spec: Spec, here: Path, mark: Path
) -> None:
    assert up.place is not None
    made = up.run("token", "create", "admin", "--scope", "admin").stdout.strip()
    admin = Client(up.place.url, made, module_path=[str(here)])
    with pytest.raises(Refused, match="only the service's own user"):
        admin.check(spec)
    assert not mark.exists()
    owner = Client(up.place.url, up.place.token, module_path=[str(here)])
    assert owner.check(spec).env.id == spec.env.id
    assert mark.exists()


def test_folders_and_modules_that_the_owner_allows_are_for_all_who_operate(
    elsewhere: Path, here: Path, spec: Spec, mark: Path
) -> None:
    options = ("--module-path", str(here), "--allow-modules", NAME)
    with serving(elsewhere / "home", *options) as service:
        (run,) = caller(service, "operate").submit(spec).runs
        assert service.run("wait", run.id, timeout_s=300).returncode == 0
    assert mark.exists()


RLCTL = [sys.executable, "-P", "-c", "from rl_orch.cli.rlctl import main; main()"]
"""As the console script does it, which has not its user's folder on its path."""


def rlctl(home: Path, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("RL_", "RLCTL_"))}
    return subprocess.run(
        [*RLCTL, *words],
        cwd=folder,
        env=inherited | {"RLCTL_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def launch(home: Path, folder: Path, *more: str, env: str = f"{NAME}:Marked-v0") -> dict[str, str]:
    words = ("--env", env, "--total-timesteps", "64", "--eval-episodes", "2")
    done = rlctl(home, folder, "launch", *words, *more, "rollout.steps=32", "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, str] = json.loads(done.stdout)
    return document


def test_a_run_keeps_the_folder_that_it_was_submitted_from(
    elsewhere: Path, here: Path, tmp_path: Path
) -> None:
    """The service is in one folder, its user in another, and later in a third."""
    third = tmp_path / "third"
    third.mkdir()
    with serving(elsewhere / "home") as service:
        run = launch(service.home, here, "--detach")
        assert RunDir(Path(run["path"])).module_path()[0] == str(here)
        assert rlctl(service.home, third, "wait", run["id"]).returncode == 0
        again = rlctl(service.home, third, "eval", run["id"], "--episodes", "2", "--json")
        assert again.returncode == 0, again.stderr


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A home with a run that was launched in the foreground, where its module was."""
    folder = tmp_path_factory.mktemp("modules")
    here = holding(folder / "a folder: with the module", folder / "mark")
    return folder / "home", launch(folder / "home", here)


def test_a_run_whose_id_leaves_the_version_out_is_one_of_the_newest(
    here: Path, launched: tuple[Path, dict[str, str]]
) -> None:
    home, run = launched
    more = launch(home, here, env=f"{NAME}:Marked")
    assert (more["env"], more["config_hash"]) == (run["env"], run["config_hash"])
    assert RunDir(Path(more["path"])).spec().env.id == run["env"]


def test_a_launch_in_the_foreground_finds_what_is_in_its_folder_and_nowhere_else(
    elsewhere: Path, launched: tuple[Path, dict[str, str]]
) -> None:
    home, run = launched
    refused = rlctl(home, elsewhere, "check", "--env", f"{NAME}:Marked-v0")
    assert refused.returncode == 2
    again = rlctl(home, elsewhere, "eval", run["id"], "--episodes", "2")
    assert again.returncode == 0, again.stderr


def test_a_run_from_elsewhere_does_not_say_where_modules_are(
    tmp_path: Path, launched: tuple[Path, dict[str, str]]
) -> None:
    other: Orchestrator = connect(tmp_path / "other")
    taken = other.import_run(Path(launched[1]["path"]))
    assert RunDir.of(taken).module_path() == []


def test_a_run_from_elsewhere_is_resumed_where_its_modules_are_and_refused_in_other_folders(
    tmp_path: Path, elsewhere: Path, launched: tuple[Path, dict[str, str]]
) -> None:
    home, (_, run) = tmp_path / "other", launched
    (here,) = launched[0].parent.glob("a folder*")
    taken = rlctl(home, elsewhere, "import-run", run["path"], "--json")
    assert json.loads(taken.stdout)["state"] == "lost", taken.stderr
    refused = rlctl(home, elsewhere, "resume", run["id"], "--json")
    error = json.loads(refused.stdout)["error"]
    assert (refused.returncode, error["path"]) == (2, "env.id")
    assert str(elsewhere) in error["hint"]
    seen = json.loads(rlctl(home, elsewhere, "show", run["id"], "--json").stdout)
    assert (seen["state"], seen["attempt"]) == ("lost", run["attempt"])
    done = rlctl(home, here, "resume", run["id"], "--json")
    assert json.loads(done.stdout)["state"] == "succeeded", done.stderr


def test_a_checkpoint_that_is_named_by_its_path_does_not_say_where_modules_are(
    elsewhere: Path, launched: tuple[Path, dict[str, str]]
) -> None:
    """It may be anybody's: what it names is found where the command is typed, or nowhere."""
    home, run = launched
    (checkpoint, *_) = sorted((Path(run["path"]) / "checkpoints").glob("step_*"))
    mark = home.parent / "mark"
    before = mark.read_text()
    for words in (("eval", "--episodes", "2"), ("export", "--format", "onnx", "--out", "x.onnx")):
        command, *more = words
        done = rlctl(home, elsewhere, command, str(checkpoint), *more)
        assert done.returncode != 0
        assert f"No module named '{NAME}'" in done.stderr
    assert mark.read_text() == before


def test_a_module_that_a_checkpoint_needs_is_told_of_with_the_folders_that_hold_it(
    elsewhere: Path, launched: tuple[Path, dict[str, str]]
) -> None:
    home, run = launched
    (checkpoint, *_) = sorted((Path(run["path"]) / "checkpoints").glob("step_*"))
    done = rlctl(home, elsewhere, "eval", str(checkpoint), "--episodes", "2", "--json")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["code"], error["path"]) == (2, "bad_input", "env.id")
    for word in (str(elsewhere), run["id"], RunDir(Path(run["path"])).module_path()[0]):
        assert word in error["hint"]


def test_a_run_that_begins_with_another_finds_its_modules_from_any_folder(
    elsewhere: Path, launched: tuple[Path, dict[str, str]]
) -> None:
    """The folder that it is typed in comes first."""
    home, run = launched
    words = ("--from", run["id"], "--total-timesteps", "64", "--json")
    checked = rlctl(home, elsewhere, "check", "--from", run["id"])
    assert checked.returncode == 0, checked.stderr
    done = rlctl(home, elsewhere, "launch", *words)
    assert done.returncode == 0, done.stderr
    folders = RunDir(Path(json.loads(done.stdout)["path"])).module_path()
    assert folders[0] == str(elsewhere)
    assert RunDir(Path(run["path"])).module_path()[0] in folders


def test_an_empty_entry_of_the_path_does_not_mean_the_folder_of_a_process(
    here: Path, spec: Spec, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f":{os.environ.get('PYTHONPATH', '')}:.:")
    with serving(here / "home") as service:
        admin = caller(service, "admin")
        with pytest.raises(SpecInvalid, match=f"no module '{NAME}'"):
            admin.check(spec)
    assert not mark.exists()


def test_a_program_of_ours_does_not_search_the_folder_it_is_started_in(
    here: Path, mark: Path
) -> None:
    """Not even for what it loads itself, before it is asked anything."""
    (here / "yaml.py").write_text(f"open({str(mark)!r}, 'a').write('imported')\n")
    done = rlctl(here / "home", here, "check", "--env", "CartPole-v1")
    assert done.returncode == 0, done.stderr
    assert not mark.exists()
