"""Runs that begin in a process which the service has prepared: they are what cold ones are."""

import importlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from rl_orch import orchestrator
from rl_orch.cli.commands import launch
from rl_orch.client import Client
from rl_orch.core.ports import Runner, Task
from rl_orch.errors import SpecInvalid
from rl_orch.io.checkpoints import hash_chain
from rl_orch.io.processes import pids
from rl_orch.io.run.directory import RunDir
from rl_orch.records import Run
from rl_orch.records.tasks import CheckTask
from rl_orch.runners import local
from rl_orch.runners.local import LocalRunner, Standby, variables
from rl_orch.spec.model import Spec
from rl_orch.spec.resolve import resolve
from rl_orch.testing import BackgroundRunnerContract
from rl_orch.worker.checks import environment as check
from rl_orch.worker.warm.loaded import OUTDATED
from rl_orch.worker.warm.standby import NAME
from tests.integration.conftest import SMALL, Shell, until
from tests.waiting import PATIENCE_S

SHORT = ("launch", "--detach", "--env", "CartPole-v1", *SMALL, "train.total_timesteps=2048")
LONG = ("launch", "--detach", "--env", "CartPole-v1", *SMALL, "train.total_timesteps=1e9")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runners of this process wait for a standby as long as a busy machine needs to load it."""
    monkeypatch.setattr(local, "LOADS_WITHIN_S", PATIENCE_S)


class Warm(LocalRunner):
    """A runner that starts a standby for each attempt that it is then asked for."""

    def start(self, directory: Path, task: Task) -> str:
        """Start it warm where that can be."""
        if task.checkpoint is not None:
            return super().start(directory, task)
        self.prestart(RunDir(directory).spec())
        (loading,) = self.standbys._standbys
        handle = super().start(directory, task)
        assert pids.pid_of(handle) == loading.pid
        return handle


@pytest.mark.soak
class TestWarmContract(BackgroundRunnerContract):
    """A warm run process keeps the contract of every run process."""

    def make_runner(self) -> Runner:
        """A runner whose attempts are warm."""
        return Warm()


class TestWarmRunner:
    """A warm run process, and when there is none."""

    @pytest.fixture
    def contract(self) -> TestWarmContract:
        """It knows a run directory whose training takes seconds."""
        return TestWarmContract()

    def test_a_run_process_is_seen_as_a_cold_one_is(
        self, contract: TestWarmContract, tmp_path: Path
    ) -> None:
        """Environment, session, files, limits: all but its pid, its command line and its cookie."""
        folders = [tmp_path / name for name in ("warm", "cold")]
        runners: list[Runner] = [Warm(), LocalRunner()]
        seen = []
        for folder, runner in zip(folders, runners, strict=True):
            with living(
                runner, contract.make_directory(folder, "train.total_timesteps=1e9")
            ) as pid:
                seen.append(about(pid, folder))
        assert seen[0] == seen[1]
        assert seen[0]["leads"] == (True, True)
        assert seen[0]["files"] == {"0": "/dev/null", "1": "X/run/log.txt", "2": "X/run/log.txt"}

    def test_what_needs_another_environment_starts_cold(
        self, contract: TestWarmContract, tmp_path: Path
    ) -> None:
        """The next standby is prepared for it."""
        runner = LocalRunner(standbys=1)
        try:
            (standby,) = until(lambda: runner.standbys.ready)
            directory = contract.make_directory(tmp_path, "resources.threads=2")
            handle = runner.start(directory, Task(attempt=1))
            assert pids.pid_of(handle) != standby
            until(lambda: runner.poll(handle))
            (other,) = until(lambda: runner.standbys.ready)
            assert psutil.Process(other).environ()["OMP_NUM_THREADS"] == "2"
            assert not psutil.pid_exists(standby)
        finally:
            runner.standbys.close()

    def test_what_inherits_other_limits_starts_cold(
        self, contract: TestWarmContract, tmp_path: Path
    ) -> None:
        """Limits that the service has raised are those of its runs, but not of its standbys."""
        runner, directory = LocalRunner(standbys=1), contract.make_directory(tmp_path)
        try:
            (standby,) = until(lambda: runner.standbys.ready)
            soft, hard = psutil.Process(standby).rlimit(psutil.RLIMIT_NOFILE)
            psutil.Process(standby).rlimit(psutil.RLIMIT_NOFILE, (soft - 1, hard))
            handle = runner.start(directory, Task(attempt=1))
            assert pids.pid_of(handle) != standby
            until(lambda: runner.poll(handle))
        finally:
            runner.standbys.close()

    def test_a_standby_that_does_not_answer_is_replaced_by_a_cold_start(
        self, contract: TestWarmContract, tmp_path: Path
    ) -> None:
        """It is killed first, so that there are never two run processes."""
        runner, directory = LocalRunner(standbys=1), contract.make_directory(tmp_path)
        try:
            (standby,) = until(lambda: runner.standbys.ready)
            os.kill(standby, signal.SIGSTOP)
            handle = runner.start(directory, Task(attempt=1))
            assert not psutil.pid_exists(standby)
            assert until(lambda: runner.poll(handle)).code == 0
        finally:
            runner.standbys.close()


@pytest.fixture
def up(shell: Shell) -> Iterator[int]:
    """The pid of a service that has a standby ready."""
    (shell.folder / "sitecustomize.py").write_text("VALUE = 1\n")
    pid = shell.json("up", "--detach", "--port", "0")["pid"]
    until(lambda: standbys(pid))
    yield pid
    shell.run("down", "--stop-runs")


def test_a_warm_run_is_bit_for_bit_a_cold_one(
    shell: Shell, up: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (standby,) = standbys(up)
    run, process = launched(shell, *SHORT, "env.seed=5")
    assert process == standby
    assert shell.run("wait", run.id).returncode in (0, 3)
    started: list[Mapping[str, str]] = []
    monkeypatch.setattr(Standby, "start", started.append)
    cold = orchestrator.run(RunDir.of(run).spec(), home=shell.home).run
    assert not started
    compared = hash_chain.compare(RunDir.of(run), RunDir.of(cold))
    assert compared.difference is None
    assert compared.checkpoints > 0
    assert compared.events > 0


def test_a_standby_ends_with_its_service_and_a_run_that_was_one_does_not(
    shell: Shell, up: int
) -> None:
    (standby,) = standbys(up)
    run, process = launched(shell, *LONG)
    assert process == standby
    (other,) = until(lambda: standbys(up))
    os.kill(up, signal.SIGKILL)
    until(lambda: not lives(other))
    assert lives(process)
    shell.json("up", "--detach", "--port", "0")
    with Client.of_home(shell.home) as client:
        until(lambda: client.show(run.id).watched)
        assert client.get(run.id).attempt == 1
        assert client.stop(run.id).state == "stopped"
    assert not lives(process)


def test_a_run_whose_standby_was_killed_starts_cold(shell: Shell, up: int) -> None:
    (standby,) = standbys(up)
    os.kill(standby, signal.SIGKILL)
    run, process = launched(shell, *SHORT)
    assert process != standby
    assert shell.run("wait", run.id).returncode in (0, 3)


def test_how_a_warm_run_process_was_killed_is_seen(shell: Shell, up: int) -> None:
    (standby,) = standbys(up)
    run, process = launched(shell, *LONG, "schedule.retries=0")
    assert process == standby
    os.kill(process, signal.SIGKILL)
    shell.run("wait", run.id)
    (attempt,) = shell.json("show", run.id)["attempts"]
    assert attempt["exit_code"] == -signal.SIGKILL


def test_code_that_has_changed_is_not_served_stale(shell: Shell, up: int) -> None:
    (standby,) = standbys(up)
    (shell.folder / "sitecustomize.py").write_text("VALUE = 2\n")
    _, process = launched(shell, *LONG)
    assert process != standby
    until(lambda: not lives(standby))


def test_a_check_is_prepared_too(tmp_path: Path) -> None:
    runner = LocalRunner(standbys=1)

    def prepared() -> int | None:
        check = runner.standbys._check
        return None if check is None else check._child.pid

    try:
        waiting = until(prepared)
        with pytest.raises(SpecInvalid, match="NoSuchEnv-v0"):
            runner.check(resolve({"env": {"id": "NoSuchEnv-v0"}}))
        assert not lives(waiting)
        another = until(prepared)
        os.kill(another, signal.SIGKILL)
        until(lambda: not lives(another))
        assert runner.check(resolve({"env": {"id": "CartPole-v1"}})).env.backend == "native"
        last = until(prepared)
    finally:
        runner.standbys.close()
    assert not lives(last)


def test_a_check_of_code_that_has_changed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asked starts another process then."""
    module = tmp_path / "loaded_before_the_question.py"
    module.write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module(module.stem)

    class Changed:
        """A question that comes after a change."""

        def readline(self) -> str:
            """The question."""
            module.write_text("VALUE = 2, longer\n")
            return CheckTask(spec=resolve({"env": {"id": "CartPole-v1"}})).model_dump_json()

    monkeypatch.setattr("sys.stdin", Changed())
    assert check.main() == OUTDATED
    monkeypatch.delitem(sys.modules, module.stem)


class TestAhead:
    """A launch in the foreground: a standby loads while the spec is checked."""

    SPEC = resolve({"env": {"id": "CartPole-v1"}, "train": {"total_timesteps": 512}})

    def test_the_run_waits_for_what_has_begun_to_load(self, tmp_path: Path) -> None:
        runner = LocalRunner()
        (loading,) = begun(runner, self.SPEC)
        handle = runner.start(directory(tmp_path, self.SPEC), Task(attempt=1))
        assert pids.pid_of(handle) == loading.pid
        until(lambda: runner.poll(handle))
        assert not runner.standbys.enabled

    def test_a_run_that_needs_something_else_starts_cold(self, tmp_path: Path) -> None:
        runner = LocalRunner()
        (loading,) = begun(runner, self.SPEC)
        other = resolve(self.SPEC.model_dump(), overrides=["resources.threads=2"])
        handle = runner.start(directory(tmp_path, other), Task(attempt=1))
        assert pids.pid_of(handle) != loading.pid
        assert not lives(loading.child.pid)
        runner.stop(handle, force=True)

    def test_nothing_is_left_of_it_when_no_run_begins(self) -> None:
        with launch._prestarted(self.SPEC) as runners:
            (loading,) = begun(runners["local"], self.SPEC)
            assert lives(loading.child.pid)
        assert not lives(loading.child.pid)


def begun(runner: Any, spec: Spec) -> list[Standby]:
    """The standbys that there are once a spec is checked for which one was started."""
    runner.prestart(spec)
    runner.check(spec)
    return list(runner.standbys._standbys)


def directory(folder: Path, spec: Spec) -> Path:
    """A run directory for a spec."""
    made = RunDir(folder / "run")
    made.create(spec, {"run_id": "run"})
    return made.path


def standbys(service: int) -> list[int]:
    """The pids of a service's standbys that are ready."""
    ready = []
    with suppress(psutil.Error):
        for child in psutil.Process(service).children(recursive=True):
            with suppress(psutil.Error):
                if child.name() == NAME:
                    ready.append(child.pid)
    return ready


def launched(shell: Shell, *words: str) -> tuple[Run, int]:
    """A run that has begun, and the pid of its run process."""
    run_id = shell.json(*words)["id"]
    with Client.of_home(shell.home) as client:
        handle = until(lambda: [a.handle for a in client.show(run_id).attempts if a.handle])[0]
        return client.get(run_id), pids.pid_of(handle)


def lives(pid: int) -> bool:
    return pids.identity(pid) is not None


@contextmanager
def living(runner: Runner, directory: Path) -> Iterator[int]:
    """The pid of a run process that trains."""
    handle = runner.start(directory, Task(attempt=1))
    try:
        events = RunDir(directory).events
        until(lambda: b'"kind":"metric"' in events.read_bytes())
        yield pids.pid_of(handle)
    finally:
        runner.stop(handle, force=True)
        until(lambda: runner.poll(handle) is not None)


def about(pid: int, folder: Path) -> dict[str, Any]:
    """All that can be seen of a process and is not its own alone."""
    process = psutil.Process(pid)
    environment = {k: v for k, v in process.environ().items() if k != pids.COOKIE}
    assert environment == variables(1)
    open_files = {fd: os.readlink(f"/proc/{pid}/fd/{fd}").replace(str(folder), "X") for fd in "012"}
    return {
        "name": process.name(),
        "environment": environment,
        "leads": (os.getsid(pid) == pid, os.getpgid(pid) == pid),
        "files": open_files,
        "descriptors": process.num_fds(),
        "threads": process.num_threads(),
        "parent": psutil.Process(process.ppid()).name(),
        "place": process.cwd(),
        "limits": Path(f"/proc/{pid}/limits").read_text(),
        "signals": [
            line
            for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            if line.startswith(("SigBlk", "SigIgn", "SigCgt", "Umask"))
        ],
    }
