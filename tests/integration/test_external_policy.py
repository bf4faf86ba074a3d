"""A policy that is a process: what it may answer, how long it may take, and that it ends."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from gymnasium import spaces

from rl_orch.errors import BadInput, Problem, RlctlError
from rl_orch.io.checkpoints import external
from rl_orch.io.processes import pids
from rl_orch.io.run.directory import RunDir
from rl_orch.orchestrator import to_spec
from rl_orch.records.tasks import CheckTask, PolicyFiles
from rl_orch.rl.policies.policy import PolicyInput
from rl_orch.worker.checks.served_policy import check
from rl_orch.worker.evaluate import run_evaluation
from rl_orch.worker.external.request_reply import Dialogue
from rl_orch.worker.external.served_policy import actions_in
from rl_orch.worker.policies.sources import playable
from tests.waiting import PATIENCE_S

Start = Callable[[str], Dialogue]
SERVE = "import json, sys, time\nfor line in sys.stdin:\n    obs = json.loads(line)['obs']\n"
CONTINUOUS = spaces.Box(-2.0, 2.0, (1,), np.float32)


@pytest.fixture
def noted() -> list[bytes]:
    return []


@pytest.fixture
def start(noted: list[bytes]) -> Iterator[Start]:
    """Starts a program to talk to."""
    begun: list[tuple[subprocess.Popen[bytes], Dialogue]] = []

    def begin(program: str) -> Dialogue:
        command = [sys.executable, "-S", "-u", "-c", program]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        dialogue = Dialogue(child, noted.append, name="the program")
        begun.append((child, dialogue))
        return dialogue

    yield begin
    for child, dialogue in begun:
        child.kill()
        dialogue.close()


def test_a_question_is_answered_and_what_else_is_said_is_noted(
    start: Start, noted: list[bytes]
) -> None:
    dialogue = start("print('loading')\n" + SERVE + "    print('[1]'); print(json.dumps(obs))")
    for number in range(3):
        assert dialogue.ask({"obs": {"n": number}}, timeout_s=PATIENCE_S) == {"n": number}
    assert noted == [b"loading", b"[1]", b"[1]", b"[1]"]
    dialogue.close()


def test_questions_and_answers_may_be_larger_than_a_pipe(start: Start) -> None:
    dialogue = start("print('x' * 300_000)\n" + SERVE + "    print(json.dumps({'obs': obs}))")
    question = {"obs": list(range(200_000))}
    assert dialogue.ask(question, timeout_s=PATIENCE_S) == question


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("import time; time.sleep(3600)", "the program did not answer within 0.5 s"),
        ("import sys; sys.stdin.readline(); sys.exit(3)", "ended with exit code 3 before it"),
        ("import os; os.kill(os.getpid(), 9)", "ended by signal 9 before it answered"),
        ("raise SystemExit", "ended with exit code 0 before it answered"),
    ],
)
def test_a_program_that_does_not_answer_is_an_error(
    start: Start, program: str, problem: str
) -> None:
    patience_s = 0.5 if "0.5" in problem else PATIENCE_S
    with pytest.raises(RlctlError, match=problem):
        start(program).ask({"obs": [0.0] * 100_000}, timeout_s=patience_s)


def test_a_program_that_answers_twice_is_an_error(start: Start) -> None:
    dialogue = start(SERVE + "    print('{}\\n{}', flush=True)")
    questions = (dialogue.ask({"obs": []}, timeout_s=PATIENCE_S) for _ in range(1000))
    with pytest.raises(RlctlError, match="answered before it was asked"):
        list(questions)


@pytest.mark.parametrize(
    ("action", "space", "expected"),
    [
        ([0, 1], spaces.Discrete(2), np.array([0, 1])),
        ([1.0, 0.0], spaces.Discrete(2), np.array([1, 0])),
        ([5, 6], spaces.Discrete(2, start=5), np.array([5, 6])),
        ([[2], [-0.5]], CONTINUOUS, np.array([[2.0], [-0.5]], np.float32)),
        ([[0, 2], [1, 1]], spaces.MultiDiscrete([2, 3]), np.array([[0, 2], [1, 1]])),
    ],
)
def test_actions_are_taken_as_the_environment_has_them(
    action: Any, space: spaces.Space[Any], expected: Any
) -> None:
    actions = actions_in({"action": action}, 2, space)
    assert actions.dtype == space.dtype
    np.testing.assert_array_equal(actions, expected)


@pytest.mark.parametrize(
    ("said", "space", "problem"),
    [
        ({"error": "no weights"}, spaces.Discrete(2), 'without "action": {.error.: .no weights.}'),
        ({"action": [0]}, spaces.Discrete(2), r"2 observations with int64 of shape \[1\]"),
        ({"action": 0}, spaces.Discrete(2), r"of shape \[\]; must be numbers of shape \[2\]"),
        ({"action": [[0], [1, 2]]}, spaces.Discrete(2), r"must be numbers of shape \[2\]"),
        ({"action": ["left", "right"]}, spaces.Discrete(2), "must be numbers"),
        ({"action": [True, False]}, spaces.Discrete(2), "must be numbers"),
        ({"action": [0, 2]}, spaces.Discrete(2), r"the action 2, which is not in Discrete\(2\)"),
        ({"action": [0, 0.5]}, spaces.Discrete(2), "the action 0.5, which is not in"),
        ({"action": [0, float("nan")]}, spaces.Discrete(2), "the action nan, which is not in"),
        ({"action": [[0.0], [2.5]]}, CONTINUOUS, r"the action \[2.5\], which is not in Box"),
        ({"action": [[0.0], [float("nan")]]}, CONTINUOUS, r"the action \[nan\], which is not in"),
        ({"action": [0.0, 0.0]}, CONTINUOUS, r"must be numbers of shape \[2, 1\]"),
    ],
)
def test_what_is_no_action_is_a_clear_error(
    said: dict[str, Any], space: spaces.Space[Any], problem: str
) -> None:
    with pytest.raises(BadInput, match=problem):
        actions_in(said, 2, space)


def directory_with(folder: Path, policy: str, *overrides: str) -> RunDir:
    """A run with a checkpoint, whose policy is a piece of Python that is told where that is."""
    directory = RunDir(folder / "run")
    runner = {
        "name": "external",
        "command": ["true"],
        "policy": [sys.executable, "-S", "-c", policy, "{checkpoint}"],
    }
    spec = to_spec({"env": {"id": "CartPole-v1"}, "runner": runner}, overrides)
    directory.create(spec, {"run_id": "run"})
    (folder / "weights").write_text("1")
    facts = {
        "run": "run",
        "step": 10,
        "attempt": 1,
        "seq": 1,
        "kept": [],
        "best": None,
        "best_said": False,
        "saved": {},
        "created_at": 0.0,
    }
    external.save(directory.checkpoints / "step_000000000010", folder / "weights", facts)
    return directory


def test_a_served_policy_is_evaluated_on_the_episodes_of_every_other(tmp_path: Path) -> None:
    policy = (
        "import json, sys\n"
        "push = int(open(sys.argv[1]).read())\n"
        "for line in sys.stdin:\n"
        "    said = json.loads(line)\n"
        "    assert said['deterministic'] is True\n"
        "    print(json.dumps({'action': [push for _ in said['obs']]}), flush=True)\n"
    )
    directory = directory_with(tmp_path, policy, "eval.final_episodes=10", "env.num_envs=4")
    assert run_evaluation(directory, "step_000000000010") == 0
    report = directory.read_report("final")
    assert report is not None
    assert (report.step, report.checkpoint) == (10, "step_000000000010")
    assert len(report.returns) == 10
    assert 8 <= min(report.returns) <= max(report.returns) <= 11
    assert list(pids.marked(directory.path, through=9)) == []


def test_a_policy_that_cannot_act_fails_the_evaluation_and_leaves_no_process(
    tmp_path: Path,
) -> None:
    policy = (
        "import json, subprocess, sys\n"
        "subprocess.Popen(['sleep', '3600'], start_new_session=True, stdin=-3, stdout=-3)\n"
        "for line in sys.stdin: print(json.dumps({'action': [7, 7]}), flush=True)\n"
    )
    directory = directory_with(tmp_path, policy, "env.num_envs=2")
    with pytest.raises(BadInput, match=r"the action 7, which is not in Discrete\(2\)"):
        run_evaluation(directory, "step_000000000010")
    assert list(pids.marked(directory.path, through=9)) == []
    assert directory.read_report("final") is None
    said = (directory.path / "evals" / "problem.txt").read_text()
    assert said == "the policy's program answered with the action 7, which is not in Discrete(2)\n"


def test_whoever_plays_a_policy_leaves_the_processes_of_its_run_alone(tmp_path: Path) -> None:
    policy = (
        "import json, subprocess, sys\n"
        "left = subprocess.Popen(['sleep', '3600'], start_new_session=True, stdin=-3, stdout=-3)\n"
        "for line in sys.stdin: print(json.dumps({'action': [left.pid % 2]}), flush=True)\n"
    )
    directory = directory_with(tmp_path, policy)
    mark = pids.cookie(directory.path, 0)
    trainer = subprocess.Popen(["sleep", "60"], env=os.environ | mark)
    try:
        before = set(psutil.Process().children())
        named = PolicyFiles(directory=str(directory.path), checkpoint="step_000000000010")
        with playable(named) as found:
            seen = PolicyInput(np.zeros((1, 4), np.float32), np.ones(1, np.bool_))
            assert found.policy.decide(seen, None).actions[0] in (0, 1)
            (serving,) = set(psutil.Process().children()) - before
            (left,) = serving.children()
        assert gone(serving)
        assert gone(left)
        assert trainer.poll() is None
    finally:
        trainer.kill()
        trainer.wait()


def gone(process: psutil.Process) -> bool:
    """Whether a process has ended, though perhaps nobody has waited for it."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def checked(document: dict[str, Any]) -> tuple[Problem, ...]:
    """What a check says against a spec."""
    return check(CheckTask(spec=to_spec(document)), lambda _doing, _done: None).problems


def test_an_environment_is_checked_without_a_thought_of_algorithms() -> None:
    pendulum = {"env": {"id": "Pendulum-v1"}, "runner": {"name": "external", "command": ["x"]}}
    assert checked(pendulum) == ()
    blackjack = pendulum | {"env": {"id": "Blackjack-v1"}}
    (problem,) = checked(blackjack)
    assert "which has Tuple observations" in problem.message
    (problem,) = checked(pendulum | {"env": {"id": "CartPole-v9"}})
    assert problem.path == "env.id"
