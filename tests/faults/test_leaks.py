"""Environments that start processes of their own, outside a run and in one: all end with it."""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rl_orch.core.ports import Exit, Task
from rl_orch.errors import BadInput, SpecInvalid
from rl_orch.io.processes import pids
from rl_orch.io.processes.contained import ContainedProcess
from rl_orch.io.processes.task_worker import TaskEnded, TaskWorker
from rl_orch.io.run.directory import RunDir
from rl_orch.records.tasks import CheckAnswer
from rl_orch.runners import local, spec_check
from rl_orch.runners.external import ExternalRunner
from rl_orch.runners.local import LocalRunner
from rl_orch.runners.spec_check import check_task, checker
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from rl_orch.worker.warm.loaded import OUTDATED
from tests.conftest import python_path
from tests.faults import leaking
from tests.faults.leaking import ENV
from tests.integration.conftest import SMALL, Shell, until

GATES = ("gates.min_return=0", "gates.max_latency_ms=1e6")
SECONDS = 120.0
"""More than anything here takes on a machine with much to do."""


@pytest.fixture
def folder(shell: Shell) -> Iterator[Path]:
    """Where the environment's module and its notes are. What a test leaves behind is ended."""
    yield leaking.written(shell.folder)
    end_all(shell.folder)


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, for children of this process."""
    monkeypatch.setenv("PYTHONPATH", python_path(folder))
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A home with a policy for the environment, called `it`."""
    folder = leaking.written(tmp_path_factory.mktemp("leaks"))
    made = Shell(folder / "home", folder)
    words = (*("--env", ENV, "--name", "it"), *SMALL, "train.total_timesteps=512")
    done = made.run("launch", *words, "train.engine=torch", *GATES, timeout_s=SECONDS)
    assert done.returncode == 0, done.stderr
    yield made
    made.close()
    end_all(folder)


def end_all(folder: Path) -> None:
    for known in leaking.alive(folder):
        os.kill(pids.pid_of(known), signal.SIGKILL)


def a_spec(how: str) -> Spec:
    return resolve({"env": {"id": ENV, "kwargs": {"how": how}}})


def assert_all_ended(folder: Path, since: int = 0) -> None:
    """Environments were made, and nothing that they started is there by now."""
    assert len(leaking.started(folder)) > since
    assert leaking.alive(folder, since=since) == []


def test_nothing_that_an_environment_starts_outlives_its_check(shell: Shell, folder: Path) -> None:
    assert shell.json("check", "--env", ENV)["ok"]
    assert_all_ended(folder)


def test_nothing_that_an_environment_starts_outlives_a_launch_its_check_and_its_evaluation(
    trained: Shell,
) -> None:
    assert_all_ended(trained.folder)


def test_nothing_that_an_environment_starts_outlives_the_check_of_a_service(here: Path) -> None:
    runner = LocalRunner(standbys=1)
    try:
        prepared = until(lambda: runner.standbys._check, timeout_s=SECONDS)
        assert runner.check(a_spec("goes on")).env.backend == "sync"
        assert prepared is not runner.standbys._check
        assert_all_ended(here)
    finally:
        runner.standbys.close()


def test_nothing_that_an_environment_starts_outlives_the_check_of_a_served_policy(
    here: Path,
) -> None:
    program = {"name": "external", "command": ["true"], "policy": ["true"]}
    ExternalRunner().check(resolve({"env": {"id": ENV}, "runner": program}))
    assert_all_ended(here)


@pytest.mark.parametrize(
    "words",
    [
        ("eval", "it", "-n", "4", "--jobs", "2"),
        ("play", "it", "--video", "film.mp4"),
        ("registry", "validate", "it", "--fresh"),
        ("profile", "--env", ENV, *SMALL, "train.engine=torch", "--steps", "512"),
    ],
    ids=lambda words: words[0],
)
def test_nothing_that_an_environment_starts_outlives_what_is_asked_of_its_policy(
    words: tuple[str, ...], trained: Shell
) -> None:
    before = len(leaking.started(trained.folder))
    done = trained.run(*words)
    assert done.returncode == 0, done.stderr
    assert_all_ended(trained.folder, since=before)


def test_nothing_that_an_environment_starts_outlives_an_export_and_its_import(
    trained: Shell,
) -> None:
    for words in (("export", "it", "--format", "bundle"), ("registry", "import")):
        before = len(leaking.started(trained.folder))
        out = () if words[0] == "registry" else ("--out",)
        done = trained.run(*words, *out, str(trained.folder / "it.bundle"))
        assert done.returncode == 0, done.stderr
        assert_all_ended(trained.folder, since=before)


@pytest.mark.parametrize(
    ("how", "code"), [("exits", 7), ("dies", -signal.SIGSEGV), ("kills its group", -signal.SIGKILL)]
)
def test_nothing_outlives_an_environment_that_ends_its_process(
    how: str, code: int, here: Path
) -> None:
    with pytest.raises(SpecInvalid, match=f"ended the process with exit code {code}: "):
        LocalRunner().check(a_spec(how))
    assert_all_ended(here)


def test_nothing_outlives_a_check_that_takes_too_long(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit_s in (5.0, 20.0, 80.0):  # By then, the environment has been made.
        monkeypatch.setattr(spec_check, "CHECK_TIMEOUT_S", limit_s)
        with pytest.raises(BadInput, match="took longer than"):
            LocalRunner().check(a_spec("hangs"))
        if leaking.started(here):
            break
    assert_all_ended(here)


def test_a_check_is_answered_though_a_process_waits_for_its_children_at_its_end(here: Path) -> None:
    assert LocalRunner().check(a_spec("waits at the end")).env.backend == "sync"
    assert_all_ended(here)


def test_a_process_that_never_stays_the_same_ends_too(here: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOPS", str(here))
        LocalRunner().check(a_spec("hops"))
    assert_all_ended(here)
    assert list(pids._carriers("HOPS", lambda value: value == str(here))) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_command_that_is_ended_while_it_checks(
    number: signal.Signals, shell: Shell, folder: Path
) -> None:
    child = shell.start("check", "--env", ENV, "env.kwargs={how: hangs}")
    until(lambda: leaking.started(folder), timeout_s=SECONDS)
    child.send_signal(number)
    child.communicate(timeout=SECONDS)
    if number is signal.SIGINT:
        assert child.returncode == 130
        assert_all_ended(folder)
    until(lambda: not leaking.alive(folder), timeout_s=SECONDS)


def test_nothing_outlives_an_evaluation_that_is_killed(trained: Shell) -> None:
    before = len(leaking.started(trained.folder))
    child = trained.start("eval", "it", "-n", "1000000", "--jobs", "1")
    until(lambda: len(leaking.started(trained.folder)) > before, timeout_s=SECONDS)
    child.kill()
    child.communicate(timeout=SECONDS)
    until(lambda: not leaking.alive(trained.folder, since=before), timeout_s=SECONDS)


def test_a_check_whose_subreaper_is_killed_is_answered_and_ends_what_carries_its_cookie(
    here: Path,
) -> None:
    with pytest.raises(SpecInvalid, match="ended the process with exit code -9: "):
        LocalRunner().check(a_spec("kills its parent"))
    carriers = leaking.started(here, cleared=False)
    assert len(carriers) == 4
    assert [known for known in carriers if pids.alive(known)] == []


def test_nothing_outlives_an_environment_that_halts_what_watches_over_it(here: Path) -> None:
    for how in ("halts its parent", "disturbs its parent"):
        LocalRunner().check(a_spec(how))
    assert_all_ended(here)


def test_a_child_lives_on_when_the_thread_that_started_it_has_ended(here: Path) -> None:
    children: list[TaskWorker[CheckAnswer]] = []
    thread = threading.Thread(target=lambda: children.append(checker(local.CHECK)))
    thread.start()
    thread.join()
    answer = children[0].answer(check_task(a_spec("goes on"), ()), timeout_s=SECONDS)
    assert answer.problems == ()
    assert_all_ended(here)


def test_a_child_that_is_asked_nothing_ends() -> None:
    with pytest.raises(TaskEnded) as ended:
        checker(local.CHECK).answer(None, timeout_s=SECONDS)
    assert ended.value.exit_status == OUTDATED


def test_a_question_that_nobody_reads_is_given_up_in_time(tmp_path: Path) -> None:
    (tmp_path / "deaf.py").write_text("import time; print(flush=True); time.sleep(600)")
    child = ContainedProcess(["deaf"], {**os.environ, "PYTHONPATH": python_path(tmp_path)})
    try:
        assert next(child.lines(timeout_s=SECONDS)) == ""
        child.send("x" * (1 << 20), last=True)
        with pytest.raises(subprocess.TimeoutExpired):
            next(child.lines(timeout_s=0.1))
    finally:
        child.close()
    assert child.poll() is not None


def test_what_is_no_answer_is_told_by_its_last_line(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(
        "import os, sys\nsys.stderr.write('é' * (1 << 17))\nsys.stderr.flush()\n"
        "os.write(1, b'\\nno answer\\n\\n')\nprint('an answer')\n"
    )
    child = ContainedProcess(["loud"], {**os.environ, "PYTHONPATH": python_path(tmp_path)})
    try:
        assert list(child.lines(timeout_s=SECONDS)) == ["an answer"]
        assert (child.wait(), child.last_line) == (0, "no answer")
    finally:
        child.close()


class TestRuns:
    """A run process, cold or warm, and all that its environment starts."""

    @pytest.fixture(params=["cold", pytest.param("warm", marks=pytest.mark.soak)])
    def runner(
        self, request: pytest.FixtureRequest, here: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[LocalRunner]:
        """A runner whose next attempt is cold, or warm."""
        monkeypatch.setattr(local, "LOADS_WITHIN_S", SECONDS)
        made = LocalRunner()
        if request.param == "warm":
            made.prestart(resolve({"env": {"id": ENV}}))
        yield made
        assert not made.standbys.enabled
        made.standbys.close()

    @pytest.mark.parametrize(
        ("how", "code"),
        [
            ("goes on", 0),
            ("exits", 7),
            ("dies", -signal.SIGSEGV),
            ("kills its group", -signal.SIGKILL),
        ],
    )
    def test_nothing_outlives_a_run_that_ends_however_it_does(
        self, how: str, code: int, runner: LocalRunner, here: Path
    ) -> None:
        handle = runner.start(run_directory(here, how), Task(attempt=1))
        assert until(lambda: runner.poll(handle), timeout_s=SECONDS) == Exit(code)
        assert_all_ended(here)

    @pytest.mark.parametrize("how", ["hangs", "halts its parent"])
    def test_nothing_outlives_a_run_that_is_killed_and_what_was_left_is_counted(
        self, how: str, runner: LocalRunner, here: Path
    ) -> None:
        directory = run_directory(here, how, "train.total_timesteps=1e9")
        handle = runner.start(directory, Task(attempt=1))
        until(lambda: leaking.started(here), timeout_s=SECONDS)
        os.kill(pids.pid_of(handle), signal.SIGKILL)
        ended = until(lambda: runner.poll(handle), timeout_s=SECONDS)
        assert ended == Exit(-signal.SIGKILL)
        assert_all_ended(here)
        # Besides those that the environment noted, the run may have had a child that compiles.
        assert runner.sweep(directory, through=1) >= len(set(leaking.started(here)) - {handle})
        assert runner.sweep(directory, through=1) == 0

    def test_a_sweep_by_another_process_ends_all_of_a_run_that_lives(
        self, runner: LocalRunner, here: Path
    ) -> None:
        directory = run_directory(here, "hangs")
        handle = runner.start(directory, Task(attempt=1))
        until(lambda: leaking.started(here), timeout_s=SECONDS)
        other, subreaper = LocalRunner(), psutil.Process(pids.pid_of(handle)).ppid()
        assert other.sweep(directory, through=0) == 0
        assert other.poll(handle) is None
        assert other.sweep(directory, through=1) >= len(set(leaking.started(here)))
        assert_all_ended(here)
        runner.sweep(directory, through=1)
        assert not psutil.pid_exists(subreaper)  # Nor is it a zombie.
        assert runner.poll(handle) == Exit(-signal.SIGKILL)

    def test_a_run_whose_subreaper_is_killed_ends_with_what_carries_its_cookie(
        self, runner: LocalRunner, here: Path
    ) -> None:
        directory = run_directory(here, "kills its parent")
        handle = runner.start(directory, Task(attempt=1))
        ended = until(lambda: runner.poll(handle), timeout_s=SECONDS)
        assert ended == Exit(-signal.SIGKILL)
        runner.sweep(directory, through=1)
        carriers = leaking.started(here, cleared=False)
        assert len(carriers) == 4
        assert [known for known in carriers if pids.alive(known)] == []


def run_directory(folder: Path, how: str, *overrides: str) -> Path:
    """The directory of a run of the environment that a test can start."""
    made = RunDir(folder / "run")
    small = (*SMALL, "train.total_timesteps=64", "train.engine=torch", "env.backend=sync")
    spec = {"env": {"id": ENV, "kwargs": {"how": how}}}
    made.create(resolve(spec, overrides=[*small, *overrides]), {"run_id": "run"})
    return made.path
