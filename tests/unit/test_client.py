"""The client: errors come back as themselves, what may be repeated is, and tokens stay at home."""

import http.server
import json
import re
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from rl_orch import errors
from rl_orch.client import Client
from rl_orch.client.jobs import _swap
from rl_orch.client.link import checked, is_loopback
from rl_orch.client.models import FILES_TIMEOUT_S
from rl_orch.client.probe import answers
from rl_orch.errors import (
    BadInput,
    Conflict,
    MissingExtra,
    NotFound,
    OptionPending,
    Problem,
    RlctlError,
    SpecInvalid,
    TooMany,
    Unavailable,
)
from rl_orch.http.problems import respond
from rl_orch.io.processes.pids import somebody
from rl_orch.records import Run, RunView, State, Submission
from rl_orch.records.jobs import EvaluateJob, ExportJob, InferJob
from rl_orch.testing import a_spec

URL = "http://127.0.0.1:7311"
RUN = Run(
    id="r-1", name="r", env="CartPole-v1", algo="ppo", config_hash="h", path="/p", seed=1,
    total_timesteps=10, created_at=0.0, updated_at=0.0, state=State.RUNNING,
)  # fmt: skip
KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, RlctlError) and kind is not SpecInvalid
]

Answer = httpx.Response | httpx.RequestError


class Script(httpx.BaseTransport):
    """Gives one answer after the other, the last for ever, and keeps what it was asked."""

    def __init__(self, *answers: Answer) -> None:
        self.asked: list[httpx.Request] = []
        self._answers = list(answers)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.asked.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, httpx.RequestError):
            raise answer
        return answer

    def client(self, patience_s: float = 1.0, token: str | None = None) -> Client:
        return Client(URL, token, patience_s=patience_s, transport=self)


def answer(document: object, status: int = 200) -> httpx.Response:
    return httpx.Response(status, json=document)


def a_run(**changes: object) -> httpx.Response:
    return answer(RUN.model_copy(update=changes).model_dump(mode="json"))


def problem(error: RlctlError) -> httpx.Response:
    """What the API answers to an error."""
    told = respond(error, "/runs/r-1")
    return httpx.Response(told.status_code, headers=dict(told.headers), content=bytes(told.body))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_comes_back_as_itself(kind: type[RlctlError]) -> None:
    sent = kind("what was wrong", path="train.lr", hint="what to do")
    with pytest.raises(kind) as raised:
        Script(problem(sent)).client(patience_s=0.0).get("r-1")
    assert type(raised.value) is kind
    assert raised.value.document() == sent.document()


def test_all_problems_of_a_spec_come_back() -> None:
    problems = (Problem("a", 1, "one", "do this"), Problem("b", None, "two"))
    with pytest.raises(SpecInvalid) as raised:
        Script(problem(SpecInvalid(problems))).client().submit(a_spec())
    assert raised.value.problems == problems
    assert raised.value.message == "one (and 1 more)"


def test_a_code_from_a_newer_service_is_known_by_its_status() -> None:
    for status, kind in ((400, BadInput), (404, NotFound), (409, Conflict), (500, RlctlError)):
        document = {"code": "brand_new", "detail": "a sentence", "status": status}
        with pytest.raises(kind, match="a sentence") as raised:
            Script(answer(document, status)).client().get("r-1")
        assert type(raised.value) is kind


def test_a_question_is_asked_again_when_the_connection_breaks() -> None:
    broken = httpx.RemoteProtocolError("gone")
    for failure in (broken, httpx.ConnectError("refused"), problem(Unavailable("not yet"))):
        script = Script(failure, failure, a_run())
        assert script.client().get("r-1") == RUN
        assert len(script.asked) == 3


def test_too_many_questions_are_asked_again_later() -> None:
    assert Script(problem(TooMany("later")), a_run()).client().get("r-1") == RUN


def test_what_would_be_done_twice_is_asked_for_once() -> None:
    asked: list[Callable[[Client], object]] = [
        lambda client: client.ask_to_stop("r-1"),
        lambda client: client.requeue("r-1"),
        lambda client: client.remove("r-1"),
        lambda client: client.command("r-1", "pause", {}),
    ]
    for ask in asked:
        script = Script(httpx.ReadError("gone"), a_run())
        with pytest.raises(Unavailable, match=r"the connection to .* broke: gone"):
            ask(script.client())
        assert len(script.asked) == 1


def test_a_submission_has_a_key_of_its_own_and_keeps_it() -> None:
    done = answer(Submission(runs=(RUN,)).model_dump(mode="json"), 201)
    script = Script(httpx.ReadError("gone"), done)
    client = script.client()
    assert client.submit(a_spec()).runs == (RUN,)
    client.submit(a_spec())
    client.submit(a_spec(), key="mine")
    first, again, other, mine = [request.headers["idempotency-key"] for request in script.asked]
    assert first == again != other
    assert mine == "mine"
    assert json.loads(script.asked[0].content)["spec"]["env"]["id"] == "CartPole-v1"


def test_what_takes_too_long_is_not_asked_again() -> None:
    script = Script(httpx.ReadTimeout("slow"))
    with pytest.raises(Unavailable, match="did not answer in time"):
        script.client().get("r-1")
    assert len(script.asked) == 1


def test_a_service_that_is_not_there_is_a_sentence_with_its_address() -> None:
    with pytest.raises(Unavailable, match=r"no service answers at http://127\.0\.0\.1:1: ") as told:
        Client("http://127.0.0.1:1", patience_s=0.0).ls()
    assert told.value.hint is not None
    assert told.value.exit_code == 1
    assert not Client("http://127.0.0.1:1", patience_s=0.0).ready()


@pytest.mark.parametrize(
    ("response", "said"),
    [
        (httpx.Response(200, text="<html>hello</html>"), "no answer of ours: '<html>hello"),
        (httpx.Response(404, text="<html>nothing</html>"), "answered 404"),
        (answer({"error": "else"}, 404), "answered 404"),
        (answer([1], 500), "answered 500"),
    ],
)
def test_an_answer_that_is_not_ours_is_told_of(response: httpx.Response, said: str) -> None:
    with pytest.raises(RlctlError, match=said):
        Script(response).client().get("r-1")


def test_a_gateway_without_a_service_behind_it_is_asked_again() -> None:
    assert Script(httpx.Response(502, text="<html>"), a_run()).client().get("r-1") == RUN


def test_a_redirect_is_not_followed_and_the_token_goes_nowhere_else() -> None:
    script = Script(httpx.Response(307, headers={"location": "http://elsewhere.example/runs"}))
    with pytest.raises(BadInput, match="sends its callers on to http://elsewhere"):
        script.client(token="secret").get("r-1")
    assert [request.url.host for request in script.asked] == ["127.0.0.1"]
    assert script.asked[0].headers["authorization"] == "Bearer secret"
    assert script.asked[0].headers["x-rlctl-user"] == somebody()


@pytest.mark.parametrize(
    "url",
    [
        *("", "127.0.0.1:7311", "ftp://x", "http://", "http://x?y=1", "http://me:secret@x"),
        *("http://[::1", "http://h:abc", "http://h:99999", "http://me:secret@[::1", "http://a b"),
        "http://h\n",
    ],
)
def test_what_is_no_address_of_a_service_is_refused(url: str) -> None:
    with pytest.raises(BadInput) as raised:
        Client(url)
    assert "secret" not in raised.value.message


@pytest.mark.parametrize("token", ["", "secret\n", "sec\r\nX: ret", "secr\u00e9t", "secret "])
def test_a_token_that_no_header_can_hold_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(BadInput, match="characters in it that no token has") as raised:
        Client(URL, token)
    assert "sec" not in f"{raised.value.message}{raised.value.hint}"


def test_whatever_goes_wrong_with_a_request_is_an_error_of_ours() -> None:
    with pytest.raises(Unavailable, match="garbled"):
        Script(httpx.DecodingError("garbled")).client(patience_s=0.0).get("r-1")


def test_nobody_has_agreed_to_a_program_unless_it_is_said() -> None:
    script = Script(answer(Submission(runs=(RUN,)).model_dump(mode="json"), 201))
    script.client().submit(a_spec())
    script.client().submit(a_spec(), consent=True)
    assert [json.loads(asked.content)["consent"] for asked in script.asked] == [False, True]


def test_a_check_raises_what_the_orchestrator_raises() -> None:
    row: dict[str, object] = {"path": "runner.name", "value": None, "message": "needs more"}
    row["hint"] = "pip install"
    told: list[tuple[dict[str, object], type[RlctlError]]] = [
        (row | {"code": "missing_extra"}, MissingExtra),
        (row | {"code": "option_pending"}, OptionPending),
        (row | {"code": "spec_invalid"}, SpecInvalid),
        (row, SpecInvalid),
        (row | {"path": None}, BadInput),
    ]
    for sent, kind in told:
        with pytest.raises(kind, match="needs more") as raised:
            Script(answer({"ok": False, "errors": [sent]})).client().check(a_spec())
        assert type(raised.value) is kind
        assert (raised.value.path, raised.value.hint) == (sent["path"], "pip install")


def test_an_address_may_end_in_a_slash() -> None:
    assert checked("https://trainer.example/rl/") == "https://trainer.example/rl"
    script = Script(a_run())
    Client("http://x/rl/", transport=script).get("r 1")
    assert str(script.asked[0].url) == "http://x/rl/runs/r%201"


def test_which_addresses_are_on_this_machine() -> None:
    near = ["http://localhost", "http://127.0.0.2:1", "http://[::1]:7"]
    assert [is_loopback(url) for url in near] == [True] * 3
    assert not is_loopback("http://localhost.example")


def test_no_proxy_hears_what_stays_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with serving(json.dumps({"ready": True}).encode()) as url, Client(url) as client:
        assert client.ready()


def test_names_that_lead_nowhere_are_not_asked_for() -> None:
    script = Script(answer({"runs": [], "next": None}))
    for reference in ("", ".", "..", "a/../b"):
        with pytest.raises(NotFound, match=re.escape(f"no run {reference!r}")):
            script.client().get(reference)
    assert [request.url.path for request in script.asked] == ["/runs"]


def test_stop_waits_for_the_end_and_forces_it_after_the_grace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rl_orch.client.client.LAST_WORDS_S", 0.0)
    spec = a_spec("runner.stop_grace_s=0.3")
    view = answer(RunView(run=RUN, spec=spec).model_dump(mode="json"))
    running, stopped = a_run(), a_run(state=State.STOPPED, reason="killed")
    script = Script(running, view, running, running, running, running, running, stopped)
    assert script.client().stop("r-1").reason == "killed"
    posted = [json.loads(request.content) for request in script.asked if request.method == "POST"]
    assert posted == [{"force": False}, {"force": True}]


@contextmanager
def serving(body: bytes) -> Iterator[str]:
    """A server that always says the same."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_what_reads_or_removes_many_files_is_waited_for_as_long_as_a_judgement() -> None:
    seen = {}

    def answer(request: httpx.Request) -> httpx.Response:
        seen[request.url.path.rpartition("/")[2]] = request.extensions["timeout"]["read"]
        return httpx.Response(500)

    with Client(URL, transport=httpx.MockTransport(answer)) as client:
        for ask in (client.models.verify, client.models.prune):
            with pytest.raises(RlctlError):
                ask()
    assert seen == dict.fromkeys(("faults", "prune"), FILES_TIMEOUT_S)


def test_who_takes_connections_and_says_nothing_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert not answers(url, within_s=0.05)
    assert not answers(url, within_s=60.0)  # Nobody is there: that is known at once.
    assert not answers("http://[::1", within_s=60.0)


def test_any_word_is_an_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def reply() -> None:
            with listener.accept()[0] as line:
                line.recv(1 << 16)
                line.sendall(b"HTTP/1.1 503 \r\n\r\n")

        speaking = threading.Thread(target=reply)
        speaking.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert answers(url, within_s=60.0)
        speaking.join()


def test_what_is_to_be_replaced_goes_only_once_its_replacement_is_here(tmp_path: Path) -> None:
    before = tmp_path / "it.bundle"
    before.mkdir()
    (before / "kept").touch()
    done = {"id": "job-1", "kind": "export", "arguments": {"out": "out.bundle"}, "created_at": 0.0}
    ended = json.dumps(done | {"state": "succeeded", "answer": {}})
    told = httpx.Response(200, text=f"event: end\ndata: {ended}\n\n")
    made = answer({"artifacts": [{"path": "out.bundle/a"}]})
    jobs = Script(told, made, problem(NotFound("gone"))).client(patience_s=0.0).jobs
    with pytest.raises(NotFound):
        jobs.collect(ExportJob(policy="1", out=str(before), replace=True), "job-1")
    assert [path.name for path in tmp_path.rglob("*")] == ["it.bundle", "kept"]


@pytest.mark.parametrize("fails", [OSError("the disk is full"), KeyboardInterrupt()])
def test_a_folder_whose_replacement_fails_is_there_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: BaseException
) -> None:
    out, made = tmp_path / "policy", tmp_path / "scratch" / "out"
    for folder in (out, made):
        folder.mkdir(parents=True)
    (out / "mine").write_text("kept")

    def refuses(*_: object) -> None:
        raise fails

    monkeypatch.setattr(Path, "replace", refuses)
    with pytest.raises(type(fails)):
        _swap(made, out)
    monkeypatch.undo()
    assert (out / "mine").read_text() == "kept"
    shutil.rmtree(made)
    with pytest.raises(RlctlError, match="made nothing"):
        _swap(made, out)
    assert (out / "mine").read_text() == "kept"
    made.mkdir()
    _swap(made, out)
    assert list(out.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy", "scratch"]


def told(event: str, state: str, **more: object) -> httpx.Response:
    """What a service tells of job-1."""
    job = {"id": "job-1", "kind": "export", "arguments": {"out": "out"}, "created_at": 0.0}
    document = json.dumps(job | {"state": state} | more)
    return httpx.Response(200, text=f"event: {event}\ndata: {document}\n\n")


class Minutes:
    """A clock of which each look takes a minute, and no pause any time."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 61.0
        return self.now

    def sleep(self, _: float) -> None:
        pass


@pytest.mark.parametrize("error", [Unavailable("away"), TooMany("too many")])
def test_a_job_is_followed_though_it_fails_once_after_a_quiet_hour(
    monkeypatch: pytest.MonkeyPatch, error: RlctlError
) -> None:
    monkeypatch.setattr("rl_orch.client.jobs.time", Minutes())
    script = Script(told("progress", "running"), problem(error), told("end", "succeeded"))
    assert script.client(patience_s=0.0).jobs.follow("job-1").state == "succeeded"


@pytest.mark.parametrize("error", [Unavailable("away"), TooMany("too many"), NotFound("gone")])
def test_whatever_goes_wrong_with_following_a_job_says_how_to_find_it_again(
    monkeypatch: pytest.MonkeyPatch, error: RlctlError
) -> None:
    monkeypatch.setattr("rl_orch.client.jobs.time", Minutes())
    with pytest.raises(type(error)) as raised:
        Script(problem(error)).client(patience_s=0.0).jobs.follow("job-1")
    assert "rlctl jobs wait job-1" in str(raised.value.hint)
    assert "rlctl jobs cancel job-1" in str(raised.value.hint)


def test_files_that_cannot_be_brought_can_be_brought_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    asked = InferJob(policy="1", out=str(tmp_path / "file" / "out.npy"))
    with pytest.raises(RlctlError) as raised:
        Script(told("end", "succeeded", answer={})).client().jobs.collect(asked, "job-1")
    assert "rlctl jobs show job-1 --out" in str(raised.value.hint)


def test_what_could_not_be_written_here_is_refused_before_there_is_a_job(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    script = Script(answer({}))
    below, folder = str(tmp_path / "file" / "out.npy"), str(tmp_path)
    for asked in (
        InferJob(policy="1", out=below),
        InferJob(policy="1", out=folder),
        EvaluateJob(policy="1", out=str(tmp_path / "file")),
    ):
        with pytest.raises(RlctlError):
            script.client().jobs.submit(asked)
    assert script.asked == []
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_is_no_spec_is_refused_with_what_makes_one() -> None:
    given: Any = {"env": {"id": "CartPole-v1"}}
    client = Client("http://127.0.0.1:9")
    for asked in (client.submit, client.check):
        with pytest.raises(BadInput) as refused:
            asked(given)
        assert "to_spec" in str(refused.value.hint)
