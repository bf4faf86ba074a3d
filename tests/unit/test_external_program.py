"""Programs of somebody else's: what is handed on to them, what is wrong with them, what is seen."""

import os
import sys
from pathlib import Path

import pytest

from rl_orch.errors import BadInput
from rl_orch.io.processes.environment import KEYS
from rl_orch.io.processes.pids import COOKIE
from rl_orch.io.processes.task_worker import TaskEnded
from rl_orch.orchestrator import to_spec
from rl_orch.runners.spec_check import deadly
from rl_orch.spec.consent import is_needed, located, preview
from rl_orch.spec.model import Spec
from rl_orch.testing import a_spec
from rl_orch.worker.external.program import problems, variables


def external(*overrides: str, **runner: object) -> Spec:
    """A spec that runs a program."""
    group = {"name": "external", "command": [sys.executable, "-c", "pass"], **runner}
    return to_spec({"env": {"id": "CartPole-v1"}, "runner": group}, overrides)


def test_a_program_inherits_what_is_not_ours() -> None:
    mine = {
        "HOME": "/home/me",
        "OMP_NUM_THREADS": "2",
        "PYTHONPATH": "/our/site-packages",
        "PYTHONHOME": "/our/python",
        "VIRTUAL_ENV": "/our/venv",
        "RLCTL_HOME": "/runs",
        "RLCTL_TOKEN": "rlctl_secret",
        "RLCTL_SERVER": "http://control",
        "RL_REGISTRY_DB": "postgresql://me:secret@there/db",
        "RL_REGISTRY_DB_PATH": "/runs/rlctl.db",
        COOKIE: "1:/runs/r",
    }
    given = {"RLCTL_SEED": "7"}
    assert variables(external(env={"A": "b"}), given, inherited=mine) == {
        "HOME": "/home/me",
        "OMP_NUM_THREADS": "2",
        COOKIE: "1:/runs/r",
        "A": "b",
        "RLCTL_SEED": "7",
    }


def test_a_secret_is_looked_up_where_the_program_is_started() -> None:
    spec = external(env={"KEY": "env:MY_KEY"})
    assert variables(spec, {}, inherited={"MY_KEY": "s3cret"})["KEY"] == "s3cret"
    with pytest.raises(BadInput, match=r"runner.env.KEY is env:MY_KEY, but the variable MY_KEY"):
        variables(spec, {}, inherited={})


@pytest.mark.parametrize("name", KEYS)
def test_what_opens_the_control_plane_is_no_secret_to_hand_on(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "s3cret")
    spec = external(env={"KEY": f"env:{name}"})
    assert messages(spec) == [
        ("runner.env.KEY", f"runner.env.KEY is env:{name}; no program is handed {name}")
    ]
    with pytest.raises(BadInput):
        variables(spec, {})


def test_an_environment_that_ends_its_process_is_a_problem_of_the_spec() -> None:
    (ended,) = deadly("Theirs-v1", TaskEnded("the check", 3, "abort", None)).problems
    assert ended.path == "env.id"
    assert ended.message.endswith("stepping it ended the process with exit code 3: abort")


def messages(spec: Spec) -> list[tuple[str, str]]:
    return [(problem.path, problem.message) for problem in problems(spec)]


def test_a_program_that_is_there_is_no_problem(tmp_path: Path) -> None:
    script = tmp_path / "-dash; $(touch x) train"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    assert problems(external()) == []
    assert problems(external(command=["sh"])) == []
    assert problems(external(command=[str(script)])) == []
    assert problems(external(command=[f"./{script.name}"], cwd=str(tmp_path))) == []
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    assert problems(external(command=[script.name], env=path)) == []


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("not executable")
    found = messages(external(command=["no-such-program"], policy=["./act"], cwd=str(tmp_path)))
    assert [path for path, _ in found] == ["runner.command", "runner.policy"]
    assert found[0][1].startswith("runner.command starts 'no-such-program'; there is no such")
    assert found[1][1].endswith(f"there is no such program in {str(tmp_path)!r}")
    assert messages(external(command=[str(tmp_path / "data.txt")]))
    assert messages(external(command=["./train"]))[0][1].endswith("in the run's own folder")
    assert messages(external(command=[""]))


def test_a_script_that_is_meant_from_here_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    (problem,) = problems(external(command=[sys.executable, "train.py"]))
    assert "the program starts in the run's own folder" in problem.message
    assert problem.hint is not None
    assert f"Set runner.cwd to {str(tmp_path)!r}" in problem.hint
    assert problems(external(command=[sys.executable, "train.py"], cwd=str(tmp_path))) == []


@pytest.mark.parametrize(
    ("runner", "path"),
    [
        ({"cwd": "/no/such/folder"}, "runner.cwd"),
        ({"cwd": "relative"}, "runner.cwd"),
        ({"tensorboard": "../runs"}, "runner.tensorboard"),
        ({"tensorboard": "/runs"}, "runner.tensorboard"),
        ({"env": {"RLCTL_SEED": "1"}}, "runner.env.RLCTL_SEED"),
        ({"env": {"KEY": "env:NO_SUCH_VARIABLE"}}, "runner.env.KEY"),
    ],
)
def test_what_could_not_be_carried_out_is_a_problem(runner: dict[str, object], path: str) -> None:
    assert [found for found, _ in messages(external(**runner))] == [path]


def test_a_folder_is_meant_from_where_the_spec_is_read(tmp_path: Path) -> None:
    assert located(external(cwd="."), tmp_path).runner.cwd == str(tmp_path)
    assert located(external(cwd="/there"), tmp_path).runner.cwd == "/there"
    assert located(external(), tmp_path).runner.cwd is None


def test_whoever_agrees_sees_every_word_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "s3cret")
    spec = external(
        command=["python", "train.py", "--name=a b", "; rm -rf ~", "\x1b[2J\u202e", "ü"],
        policy=["python", "act.py", "{checkpoint}"],
        cwd="/work here",
        env={"KEY": "env:MY_KEY", "A": "1"},
    )
    assert preview(spec) == [
        r'runs      ["python", "train.py", "--name=a b", "; rm -rf ~", "\u001b[2J\u202e", "ü"]',
        'then      ["python", "act.py", "{checkpoint}"]',
        'in        "/work here"',
        'with      A="1"',
        'with      KEY="env:MY_KEY"',
    ]
    assert preview(external("seeds=3"))[-1] == "times     3, once for each seed"


def test_training_by_this_package_needs_no_consent() -> None:
    assert not is_needed(a_spec())
    assert preview(a_spec()) == []
