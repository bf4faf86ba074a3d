"""`launch`: requests to stop, and what it suggests afterwards."""

import os
import shlex
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from rl_orch import orchestrator
from rl_orch.cli.connection import ConnectionOptions
from rl_orch.cli.live.interrupts import Requests, handled
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.errors import BadInput
from rl_orch.records import Run, State
from rl_orch.runners.local import LocalRunner, Standby
from rl_orch.spec.model import Spec
from tests.conftest import Ran

Rlctl = Callable[..., Ran]

RUN = Run(
    id="r-1", name="r", env="CartPole-v1", algo="ppo", config_hash="h", path="/p", seed=1,
    total_timesteps=10, created_at=0.0, updated_at=0.0, state=State.RUNNING,
)  # fmt: skip


EXPECT = LocalRunner.prestart


def send(*numbers: signal.Signals) -> None:
    for number in numbers:
        os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_counts_and_says_nothing_by_itself(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(number)
    requests = Requests()
    with handled(requests.add):
        send(number)
        assert requests.count() == 1
        assert capsys.readouterr().err == ""
    assert signal.getsignal(number) is before


def test_each_request_is_answered_once_with_what_it_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = []
    requests = Requests()
    with handled(requests.add):
        for number in ((), (signal.SIGINT,), (), (signal.SIGINT,), (signal.SIGINT,)):
            send(*number)
            requests.answer(RUN)
            said.append(capsys.readouterr().err)
    first = "stopping after a last checkpoint; Ctrl-C again ends it at once\n"
    assert said == ["", first, "", "ending it at once\n", ""]


def test_a_run_that_has_ended_is_not_said_to_be_stopping(
    capsys: pytest.CaptureFixture[str],
) -> None:
    requests = Requests()
    with handled(requests.add):
        send(signal.SIGINT)
        requests.answer(RUN.model_copy(update={"state": State.STOPPED}))
    assert capsys.readouterr().err == ""


def test_a_hangup_that_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        requests = Requests()
        with handled(requests.add):
            send(signal.SIGHUP)
            assert requests.count() == 0
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.fixture
def stopped_during_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(_runner: LocalRunner, spec: Spec, *_: object) -> Spec:
        send(signal.SIGINT)
        return spec

    monkeypatch.setattr(LocalRunner, "check", check)


def test_a_check_makes_no_home(
    rlctl: Rlctl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(LocalRunner, "check", lambda _runner, spec, *_: spec)
    assert rlctl("check", "--env", "CartPole-v1").code == 0
    assert not (tmp_path / "rlruns").exists()


@pytest.mark.usefixtures("stopped_during_the_check")
def test_a_stop_during_the_check_ends_with_exit_code_four(rlctl: Rlctl) -> None:
    ran = rlctl("launch", "--env", "CartPole-v1")
    assert ran.code == 4
    assert "stopped before it started" in ran.out


@pytest.mark.usefixtures("stopped_during_the_check")
def test_the_suggested_commands_work_from_where_one_is(rlctl: Rlctl) -> None:
    ran = rlctl(
        "launch", "--env", "CartPole-v1", "--home", "my [b]home", "--registry-db", "a db.sqlite"
    )
    resume, show, tensorboard = (shlex.split(line) for line in next_lines(ran.out))
    assert resume[:2] == ["rlctl", "resume"]
    assert resume[2:] == show[2:]
    assert rlctl(*show[1:]).code == 0
    assert show[:2] == ["rlctl", "show"]
    assert show[3:] == ["--home", "my [b]home", "--registry-db", "a db.sqlite"]
    assert Path(tensorboard[2]).parent.is_dir()
    assert next_lines(rlctl(*show[1:]).out) == next_lines(ran.out)


@pytest.mark.usefixtures("stopped_during_the_check")
def test_a_resume_is_not_suggested_where_it_would_fail_again(
    rlctl: Rlctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    rlctl("launch", "--env", "CartPole-v1")
    show = Orchestrator.show
    monkeypatch.setattr(
        Orchestrator,
        "show",
        lambda *words, **names: show(*words, **names).model_copy(update={"fails_again": True}),
    )
    launch = shlex.split(next_lines(rlctl("show", "last").out)[0])
    assert launch[:3] == ["rlctl", "launch", "-f"]
    assert Path(launch[3]).is_file()
    assert launch[4:] == []  # Nothing to be filled in.


def test_a_launch_loads_first_and_ends_that_if_it_is_refused(
    rlctl: Rlctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = []

    class Loading:
        """Stands for a spare."""

        def end(self) -> None:
            """Note that it has ended."""
            done.append("end")

    def start(_variables: Mapping[str, str]) -> Loading:
        done.append("load")
        return Loading()

    def connect(*_words: object, **_names: object) -> None:
        done.append("connect")
        refuse()

    monkeypatch.setattr(LocalRunner, "prestart", EXPECT)
    monkeypatch.setattr(Standby, "start", start)
    monkeypatch.setattr(orchestrator, "connect", connect)
    assert rlctl("launch", "--env", "CartPole-v1").code == 2
    assert done == ["load", "connect", "end"]


def test_a_launch_of_another_program_loads_nothing_of_ours(
    rlctl: Rlctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalRunner, "prestart", lambda *_: pytest.fail("something was loaded"))
    monkeypatch.setattr(orchestrator, "connect", lambda *_, **__: refuse())
    ran = rlctl("launch", "--env", "x", "--yes", "runner=external", "runner.command=[echo]")
    assert "no such home" in ran.err


def refuse() -> None:
    raise BadInput("no such home")


def test_what_was_not_given_is_not_repeated() -> None:
    assert ConnectionOptions().flags == ""


def next_lines(text: str) -> list[str]:
    """The commands of a summary."""
    lines = [line.strip() for line in text.splitlines()]
    at = next(i for i, line in enumerate(lines) if line.startswith("next "))
    return [line.removeprefix("next").strip() for line in lines[at : at + 3]]
