"""Whom the commands talk to: the database that a home keeps in mind, a service that comes and goes,
and what is told beside the result.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rl_orch import orchestrator
from rl_orch.cli import connection
from rl_orch.cli.commands import down, logs, ls, stop
from rl_orch.cli.connection import ConnectionOptions, RetryingConnection
from rl_orch.cli.live.follow import announce
from rl_orch.client import Client
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.preflight.findings import Finding
from rl_orch.core.queue.scheduler import Capacity
from rl_orch.core.runs.groups import RunOrGroup
from rl_orch.errors import Conflict, RlctlError, Unauthorized, Unavailable
from rl_orch.io import service_note
from rl_orch.io.run.logs import LogPart
from rl_orch.records import Run, State
from rl_orch.testing import FakeRunner, a_spec, trains_to
from tests.conftest import Ran

Rlctl = Callable[..., Ran]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "rlruns"


def document(ran: Ran) -> dict[str, Any]:
    found = json.loads(ran.out)
    assert isinstance(found, dict)
    return found


def test_a_home_keeps_the_database_of_its_service_in_mind(
    rlctl: Rlctl, home: Path, tmp_path: Path
) -> None:
    home.mkdir()
    database = tmp_path / "elsewhere" / "other.db"
    database.parent.mkdir()
    service_note.note_database(home, database)
    assert (home / "database").stat().st_mode & 0o777 == 0o600
    assert rlctl("token", "create", "ci").code == 0
    made = Orchestrator(home, FakeRunner(trains_to([1.0])), database=database)
    made.launch(a_spec("name=there"))
    assert [run["name"] for run in document(rlctl("ls", "--json"))["runs"]] == ["there"]
    assert rlctl("wait", "there").code == rlctl("down").code == 0
    assert orchestrator.connect(home).location == database
    assert not (home / "rlctl.db").exists()
    own = str(home / "rlctl.db")
    assert document(rlctl("ls", "--json", "--registry-db", own))["runs"] == []


def test_the_noted_database_moves_with_its_home(home: Path, tmp_path: Path) -> None:
    home.mkdir()
    assert service_note.database_of(home, None) is None
    service_note.note_database(home, home / "rlctl.db")
    home.rename(tmp_path / "moved")
    assert service_note.database_of(tmp_path / "moved", None) == str(
        tmp_path / "moved" / "rlctl.db"
    )
    service_note.note_database(tmp_path / "moved", "postgresql://me:s3cret@db/rl")
    assert service_note.database_of(tmp_path / "moved", None) == "postgresql://me:s3cret@db/rl"
    assert service_note.database_of(tmp_path / "moved", "named.db") == "named.db"
    (tmp_path / "moved" / "database").write_bytes(b"\xff")
    with pytest.raises(RlctlError, match="cannot be read"):
        service_note.database_of(tmp_path / "moved", None)


def test_the_doctor_looks_at_the_database_of_the_home(
    rlctl: Rlctl, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir()
    service_note.note_database(home, "postgresql://me@db/rl")
    looked_at: list[str | None] = []

    def examine(_home: Path, _spec: object, *, database: str | None, port: int) -> list[Finding]:
        looked_at.append(database)
        return [Finding("port", "ok", str(port))]

    monkeypatch.setattr("rl_orch.core.jobs.kinds.examine", examine)
    assert rlctl("doctor").code == rlctl("doctor", "--registry-db", "mine.db").code == 0
    assert looked_at == ["postgresql://me@db/rl", "mine.db"]


def test_whoever_waits_goes_on_with_the_next_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "TRY_EVERY_S", 0.0)
    first, second = Client("http://127.0.0.1:1"), Client("http://127.0.0.1:2")
    answers: list[Exception | Client] = [first, Unavailable(""), Unauthorized(""), second]

    def question(asked: connection.Connected) -> connection.Connected:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        assert asked is answer
        return asked

    line = RetryingConnection(lambda: second, first)
    assert [line.ask(question), line.ask(question)] == [first, second]
    answers.append(Unauthorized("wrong from the beginning"))
    with pytest.raises(Unauthorized):
        RetryingConnection(lambda: second, first).ask(question)


@pytest.mark.parametrize("reading", [True, False])
def test_a_service_that_dies_before_its_first_answer_is_read_again_and_told_nothing_twice(
    reading: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "TRY_EVERY_S", 0.0)
    asked: list[int] = []

    def question(_connected: connection.Connected) -> str:
        asked.append(len(asked))
        if asked == [0]:
            raise Unavailable("")
        return "an answer"

    client = Client("http://127.0.0.1:1", patience_s=0.0)
    monkeypatch.setattr(ConnectionOptions, "connect", lambda *_, **__: client)
    line = ConnectionOptions().retrying(reading=reading)
    if reading:
        assert line.ask(question) == "an answer"
    else:
        with pytest.raises(Unavailable):
            line.ask(question)
    assert len(asked) == 1 + reading


def test_a_database_that_has_yet_to_answer_is_asked_once(home: Path) -> None:
    asked: list[connection.Connected] = []

    def question(connected: connection.Connected) -> None:
        asked.append(connected)
        raise Unavailable("not there")

    with pytest.raises(Unavailable):
        ConnectionOptions(home).retrying(reading=True).ask(question)
    assert len(asked) == 1


def test_a_token_of_ones_own_that_is_refused_is_not_tried_again(rlctl: Rlctl) -> None:
    asked: list[connection.Connected] = []

    def question(connected: connection.Connected) -> None:
        asked.append(connected)
        raise Unauthorized("revoked")

    line = ConnectionOptions(server="http://127.0.0.1:1").retrying()
    line.answered = True
    with pytest.raises(Unauthorized):
        line.ask(question)
    assert len(asked) == 1


def test_stop_goes_on_with_whoever_is_there_when_the_service_has_gone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "TRY_EVERY_S", 0.0)
    made = Orchestrator(home, FakeRunner(trains_to([1.0])))
    gone = Client("http://127.0.0.1:1", patience_s=0.0)
    for overrides in (("name=one",), ("name=many", "seeds=2")):
        submission = made.submit(a_spec(*overrides))
        meant = RunOrGroup(submission.runs, submission.group)
        ended = stop._ended(
            RetryingConnection(lambda: made, gone, answered=True), meant, force=False
        )
        assert {run.state for run in ended.runs} == {State.STOPPED}
        again = stop._told(RetryingConnection(lambda: made, made), submission.runs[0], refuse)
        assert again.state is State.STOPPED


def refuse(_run_id: str) -> Run:
    """What asking a run to stop gets that has ended in the meantime."""
    raise Conflict("it has ended already")


@pytest.mark.parametrize("words", [["token", "ls"], ["token", "create", "x"], ["down"]])
def test_what_is_done_where_the_service_is_is_refused_from_afar(
    rlctl: Rlctl, home: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    ran = rlctl(*words, "--server", "http://127.0.0.1:1")
    assert (ran.code, "Run it where the service is" in ran.err) == (2, True)
    monkeypatch.setenv("RLCTL_SERVER", "http://127.0.0.1:1")
    assert rlctl(*words) == ran
    assert not home.exists()


def test_down_counts_what_its_runs_have_come_to(home: Path) -> None:
    made = Orchestrator(home, FakeRunner(trains_to([1.0])))
    (run,) = made.submit(a_spec()).runs
    states = (State.STOPPED, State.FAILED, State.STOPPED)
    runs = [run.model_copy(update={"state": state}) for state in states]
    assert down._runs_line(runs, stopped=True) == "3 runs: 2 stopped, 1 failed"
    assert down._document(runs, stopped=True) == {"stopped": [run.id] * 2, "failed": [run.id]}
    assert down._document(runs[1:2], stopped=True) == {"stopped": [], "failed": [run.id]}


def test_what_is_worth_knowing_of_a_submission_is_told_beside_the_document(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Orchestrator(home, FakeRunner(trains_to([1.0])))
    submission = made.submit(a_spec()).model_copy(update={"warnings": ("little room is left",)})
    assert announce(submission, flags="", json=True, served=True) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["id"] == submission.runs[0].id
    assert printed.err == "warning: little room is left\n"


def test_what_others_wrote_is_shown_as_text(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Orchestrator(home, FakeRunner(trains_to([1.0])))
    (run,) = made.submit(a_spec()).runs
    odd = run.model_copy(update={"algo": "[red]x\x1b[2J"})
    assert ls.CELLS["algo"](odd) == r"\[red]x"
    monkeypatch.setattr(made, "log", lambda *_: LogPart(text="a\x1b]0;b\x07c\n", offset=9))
    assert logs._log(made, run.id, 0) == ("ac\n", 9)


def test_show_says_which_place_a_queued_run_has(rlctl: Rlctl, home: Path) -> None:
    made = Orchestrator(home, FakeRunner(trains_to([1.0])))
    made.capacity = Capacity(cpus=1, memory_mb=4096)
    (first,) = made.submit(a_spec("name=first")).runs
    made.submit(a_spec("name=second"))
    made.submit(a_spec("name=after", f"schedule.after=[{first.id}]"))
    forecasts = [made.show(name).forecast for name in ("first", "second", "after")]
    assert forecasts == [
        "first in the queue; there is a place for it",
        "second in the queue; when it will start cannot be told yet",
        None,
    ]
    assert "first in the queue" in rlctl("show", "first").out
    assert document(rlctl("show", "after", "--json"))["forecast"] is None
    assert made.show(made.stop("first").id).forecast is None


def test_whoever_waits_gives_up_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "TRY_EVERY_S", 0.0)
    monkeypatch.setattr(connection, "GONE_FOR_S", 0.05)

    def question(_asked: connection.Connected) -> None:
        raise Unavailable("gone")

    client = Client("http://127.0.0.1:1")
    with pytest.raises(Unavailable, match="gone"):
        RetryingConnection(lambda: client, client, answered=True).ask(question)
