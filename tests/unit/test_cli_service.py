"""The commands with a service: queued, followed, looked at over HTTP, and as good as without."""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from rl_orch import orchestrator
from rl_orch.addresses import masked
from rl_orch.api.app import create_app
from rl_orch.cli.commands import logs
from rl_orch.cli.commands.token import seconds
from rl_orch.cli.commands.up import ServiceOptions
from rl_orch.cli.connection import ConnectionOptions
from rl_orch.client import Client
from rl_orch.core.orchestrator import Orchestrator
from rl_orch.core.ports import Task
from rl_orch.core.queue.scheduler import Capacity
from rl_orch.core.service import RunService
from rl_orch.errors import BadInput, NotFound
from rl_orch.http.serving import serve
from rl_orch.http.settings import Settings
from rl_orch.io import service_note
from rl_orch.io.processes import pids
from rl_orch.io.run.directory import RunDir
from rl_orch.io.run.events import EventWriter, read
from rl_orch.io.service_note import ServiceEndpoint
from rl_orch.records import EventKind, Run
from rl_orch.testing import FakeRunner, Script, a_spec, trains_to
from tests.conftest import Ran
from tests.waiting import PATIENCE_S

Rlctl = Callable[..., Ran]
LAUNCH = ("launch", "--env", "x")
EXTERNAL = ("runner.name=external", "runner.command=[python,train.py]")


@contextmanager
def a_service(home: Path, script: Script, *, at_once: bool = True) -> Iterator[Orchestrator]:
    """A service of a home in this process; `at_once` lets it carry out what is queued."""
    verbs = Orchestrator(home, FakeRunner(script), resident=True)
    token, until, urls = "for-tests-only", threading.Event(), Queue[str]()
    service = RunService(verbs, Capacity(cpus=4, memory_mb=4096), url="")
    app = create_app(verbs, settings=Settings(port=0, own_token=token), service=service)
    serving = threading.Thread(
        target=serve, args=(app, "127.0.0.1", 0), kwargs={"until": until, "started": urls.put}
    )
    scheduling = threading.Thread(target=service.run, args=(until,))
    serving.start()
    noted = ServiceEndpoint(
        url=urls.get(timeout=PATIENCE_S),
        identity=pids.identity(os.getpid()) or "",
        host=pids.host(),
        token=token,
        database=str(verbs.location),
    )
    home.mkdir(exist_ok=True)
    service_note.write(home, noted)
    if at_once:
        scheduling.start()
    try:
        yield verbs
    finally:
        until.set()
        serving.join()
        if at_once:
            scheduling.join()
        service_note.forget(home, noted)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "rlruns"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def only_http(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be done past the service."""

    def refuse(*_: object, **__: object) -> Orchestrator:
        raise AssertionError("the store was opened past the service")

    monkeypatch.setattr(orchestrator, "connect", refuse)


def document(ran: Ran) -> dict[str, Any]:
    found = json.loads(ran.out)
    assert isinstance(found, dict)
    return found


def trained(home: Path) -> None:
    """A home with a group and two runs by themselves, all ended."""
    made = Orchestrator(home, FakeRunner(_noisy(trains_to([4.0, 5.0] * 6))))
    made.launch_group(a_spec("name=good", "seeds=2", "gates.min_return=1"))
    made.launch(a_spec("name=one"))
    made.launch(a_spec("name=two", "train.lr=1e-3"))
    superseding(made)


def superseding(made: Orchestrator) -> Run:
    """A run whose third attempt began anew, after a second that had gone on from the first."""
    run = made.launch(a_spec("name=again")).run
    for attempt, after in ((2, {"attempt": 1, "seq": 2}), (3, None)):
        with EventWriter(RunDir.of(run).events, run=run.id, attempt=attempt) as writer:
            writer.emit(EventKind.STATE, "started", step=0, tags={"after": after})
            writer.emit(EventKind.METRIC, "losses/value_loss", 0.5, step=attempt)
    made.store.take_lease(run.id, held_by=None, lease="mine")
    made.store.save(run.model_copy(update={"attempt": 3}), lease="mine")
    made.store.release(run.id, lease="mine")
    return run


def _noisy(script: Script) -> Script:
    def noisy(directory: RunDir, task: Task) -> int:
        with directory.log.open("a") as log:
            log.write("hello\n")
        return script(directory, task)

    return noisy


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceEndpoint]:
    """Where the service is of a home that is looked at and not changed."""
    home = tmp_path_factory.mktemp("looked_at") / "a [b]home"
    trained(home)
    with a_service(home, trains_to([1.0]), at_once=False):
        noted = service_note.living(home)
        assert noted is not None
        yield noted


@pytest.mark.parametrize(
    "words",
    [
        ["ls"],
        ["ls", "--runs"],
        ["ls", "--json"],
        ["ls", "--state", "lost"],
        ["show", "one"],
        ["show", "one", "--json"],
        ["show", "good"],
        ["show", "good", "--json"],
        ["logs", "one"],
        ["logs", "-f", "one", "--events"],
        ["logs", "again", "--events"],
        ["logs", "again", "--json", "--all"],
        ["logs", "again", "--all"],
        ["logs", "again", "--events", "-n", "2"],
        ["compare", "one", "two"],
        ["compare", "good", "two", "--json"],
        ["wait", "good", "--json"],
        ["show", "nobody"],
        ["stop", "one"],
        ["rm", "one", "--json"],
        ["resume", "one"],
        ["ls", "--after", "nowhere"],
    ],
    ids=" ".join,
)
def test_a_command_says_the_same_with_and_without_a_service(
    rlctl: Rlctl, looked_at: ServiceEndpoint, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path(looked_at.database or "").parent
    monkeypatch.setenv("RLCTL_HOME", str(home))
    monkeypatch.setattr("rl_orch.cli.views.text.time.time", lambda: 2e9)
    service_note.forget(home, looked_at)
    without = rlctl(*words)
    service_note.write(home, looked_at)
    monkeypatch.setattr(orchestrator, "connect", lambda *_args, **_kw: pytest.fail("past it"))
    assert rlctl(*words) == without


@pytest.mark.usefixtures("only_http")
def test_a_detached_launch_is_queued_and_says_what_can_be_done_next(
    rlctl: Rlctl, home: Path, stack: ExitStack
) -> None:
    stack.enter_context(a_service(home, trains_to([1.0]), at_once=False))
    ran = rlctl(*LAUNCH, "--detach", "--name", "mine")
    run_id = ran.out.split()[0]
    assert (ran.code, ran.err) == (0, "")
    for words in ("queued", f"rlctl logs -f {run_id}", f"rlctl wait {run_id}"):
        assert words in ran.out
    found = document(rlctl(*LAUNCH, "-d", "--seeds", "2", "--json"))
    assert [run["state"] for run in found["runs"]] == ["queued"] * 2
    assert found["group"] == found["runs"][0]["group"]
    assert document(rlctl("show", run_id, "--json"))["state"] == "queued"


@pytest.mark.usefixtures("only_http")
def test_what_is_queued_is_carried_out_waited_for_and_removed(
    rlctl: Rlctl, home: Path, stack: ExitStack
) -> None:
    stack.enter_context(a_service(home, trains_to([4.0, 5.0] * 6)))
    run_id = document(rlctl(*LAUNCH, "--detach", "--json"))["id"]
    ended = rlctl("wait", run_id, "--json")
    assert (ended.code, document(ended)["state"]) == (0, "succeeded")
    assert document(rlctl("rm", run_id, "--yes", "--json")) == {"removed": [run_id]}


def test_without_a_service_a_detached_launch_waits_for_one(rlctl: Rlctl, home: Path) -> None:
    stopped(home, "name=late")
    ran = rlctl("resume", "late", "--detach")
    assert ran.code == 0
    assert "no service is up: `rlctl up` starts it" in ran.err
    assert "no service is up" in document(rlctl("show", "late", "--json"))["reason"]
    with a_service(home, trains_to([1.0])):
        assert rlctl("wait", "late").code == 0


@pytest.mark.usefixtures("only_http")
def test_a_resumed_run_is_followed_to_its_end(rlctl: Rlctl, home: Path, stack: ExitStack) -> None:
    (run,) = stopped(home, "name=again")
    stack.enter_context(a_service(home, trains_to([4.0, 5.0] * 6)))
    ran = rlctl("resume", "again")
    assert ran.code == 0
    assert f"{run.id}  100/100,000  evaluated 4.50" in ran.err
    assert f"{run.id}  succeeded" in ran.out
    assert document(rlctl("show", "again", "--json"))["state"] == "succeeded"


@pytest.mark.usefixtures("only_http")
def test_a_resumed_group_is_followed_to_its_end(rlctl: Rlctl, home: Path, stack: ExitStack) -> None:
    stopped(home, "name=both", "seeds=2")
    stack.enter_context(a_service(home, trains_to([4.0, 5.0] * 6)))
    ran = rlctl("resume", "both", "--json")
    assert (ran.code, document(ran)["counts"]) == (0, {"succeeded": 2})
    assert "2/2 ended: 2 succeeded" in ran.err


def stopped(home: Path, *overrides: str) -> tuple[Run, ...]:
    """Runs that were queued, and stopped before they began."""
    made = Orchestrator(home, FakeRunner(trains_to([1.0])))
    return tuple(made.stop(run.id) for run in made.submit(a_spec(*overrides)).runs)


def test_an_interrupt_while_following_asks_the_run_to_stop(
    rlctl: Rlctl, home: Path, stack: ExitStack
) -> None:
    stopped(home, "name=endless")
    stack.enter_context(a_service(home, interrupted))
    ran = rlctl("resume", "endless")
    assert ran.code == 4
    assert "stopping after a last checkpoint" in ran.err


def interrupted(directory: RunDir, _task: Task) -> int:
    """A root in whose midst the user presses Ctrl-C, and that ends when it is asked to."""
    os.kill(os.getpid(), signal.SIGINT)
    pause = threading.Event()
    while not directory.stop_requested:
        pause.wait(0.01)
    return 0


def test_launch_with_a_server_is_queued_there_and_followed(
    rlctl: Rlctl, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_service(tmp_path / "theirs", trains_to([4.0, 5.0] * 6)):
        found = service_note.living(tmp_path / "theirs")
        assert found is not None
        monkeypatch.setenv("RLCTL_TOKEN", found.token)
        ran = rlctl(*LAUNCH, "--server", found.url)
        assert ran.code == 0
        assert f"--server {found.url}" in ran.out
        monkeypatch.setenv("RLCTL_SERVER", found.url)
        assert len(document(rlctl("ls", "--json"))["runs"]) == 1
        assert "--server" not in rlctl("show", "last").out
        monkeypatch.setenv("RLCTL_TOKEN", "wrong")
        ran = rlctl("ls", "--json")
        assert (ran.code, document(ran)["error"]["code"]) == (2, "unauthorized")
    assert not home.exists()


def test_a_server_that_is_not_there_is_told_with_exit_code_one(rlctl: Rlctl) -> None:
    ran = rlctl("ls", "--server", "http://127.0.0.1:1")
    assert ran.code == 1
    assert "no service answers at http://127.0.0.1:1" in ran.err


def test_another_database_than_the_services_is_opened_past_it(home: Path, stack: ExitStack) -> None:
    stack.enter_context(a_service(home, trains_to([1.0]), at_once=False))
    assert ConnectionOptions(home, str(home / "rlctl.db")).find_service() is not None
    assert isinstance(ConnectionOptions(home).connect(), Client)
    assert isinstance(ConnectionOptions(home, str(home / "other.db")).connect(), Orchestrator)


def test_the_note_of_a_dead_service_is_not_believed(home: Path) -> None:
    home.mkdir()
    service_note.write(home, ServiceEndpoint("http://127.0.0.1:1", "999999999:1", pids.host(), "t"))
    assert ConnectionOptions(home).find_service() is None
    assert isinstance(ConnectionOptions(home).connect(), Orchestrator)


def test_a_log_is_followed_as_it_grows_until_the_run_has_ended(
    rlctl: Rlctl, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LOOK_EVERY_S", 0.01)
    made = Orchestrator(home, FakeRunner(trains_to([1.0])))
    (run,) = made.submit(a_spec("name=talks")).runs
    directory, lines = RunDir(Path(run.path)), iter(["one\n", "two\nthr", "ee\n", "rest"])

    def next_line(_seconds: float) -> None:
        line = next(lines, None)
        if line is None:
            made.stop(run.id)
            return
        with directory.log.open("a") as log:
            log.write(line)

    monkeypatch.setattr("rl_orch.cli.commands.logs.time.sleep", next_line)
    assert rlctl("logs", "-f", "talks").out == "one\ntwo\nthree\nrest"
    assert rlctl("logs", "talks", "--tail", "2").out == "three\nrest"
    assert rlctl("logs", "-f", "talks", "-n", "0").out == ""


def test_events_that_a_later_attempt_has_superseded_are_left_out_unless_all_are_asked_for(
    rlctl: Rlctl, home: Path
) -> None:
    run = superseding(Orchestrator(home, FakeRunner(trains_to([1.0]))))
    written = list(read(RunDir.of(run).events))
    kept = [(3, 1), (3, 2)]
    for words in (["--events"], ["--json"], ["--events", "-f"]):
        assert positions(rlctl("logs", "again", *words)) == kept
    every = positions(rlctl("logs", "again", "--events", "--all"))
    assert every == positions(rlctl("logs", "again", "--json", "--all", "-f"))
    assert every == [(event.attempt, event.seq) for event in written]
    assert len(every) > len(kept)
    refused = rlctl("logs", "again", "--all")
    assert (refused.code, refused.out, "--all is about events" in refused.err) == (2, "", True)


def test_who_follows_events_hears_no_late_word_of_an_earlier_attempt(
    rlctl: Rlctl, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Orchestrator(home, FakeRunner(trains_to([1.0])))
    (run,) = made.submit(a_spec("name=talks")).runs
    first, second = (EventWriter(RunDir.of(run).events, run=run.id, attempt=n) for n in (1, 2))

    def told(_seconds: float) -> None:
        if first.seq == 0:
            first.emit(EventKind.STATE, "started", step=0, tags={"after": None})
            first.emit(EventKind.METRIC, "k", 1.0, step=1)
        elif second.seq == 0:
            second.emit(EventKind.STATE, "started", step=0, tags={"after": None})
            second.flush()
            first.emit(EventKind.METRIC, "k", 2.0, step=2)
        else:
            second.emit(EventKind.METRIC, "k", 3.0, step=1)
            made.stop(run.id)
        first.flush()
        second.flush()

    monkeypatch.setattr("rl_orch.cli.commands.logs.time.sleep", told)
    followed = positions(rlctl("logs", "-f", "talks", "--events"))
    assert followed == [(1, 1), (1, 2), (2, 1), (2, 2)]


def positions(ran: Ran) -> list[tuple[int, int]]:
    """Attempt and number of each event that was printed."""
    assert ran.code == 0, ran.err
    events = map(json.loads, ran.out.splitlines())
    return [(event["attempt"], event["seq"]) for event in events]


def test_a_program_of_somebodys_own_needs_a_yes(
    rlctl: Rlctl, home: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.enter_context(a_service(home, trains_to([1.0]), at_once=False))
    ran = rlctl(*LAUNCH, *EXTERNAL, "--detach")
    assert ran.code == 2
    assert 'runs ["python", "train.py"]' in ran.err
    assert "add --yes" in ran.err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("rl_orch.cli.consent.typer.confirm", lambda *_args, **_kw: True)
    assert rlctl(*LAUNCH, *EXTERNAL, "--detach").code == 0
    monkeypatch.undo()
    assert rlctl(*LAUNCH, *EXTERNAL, "--detach", "--yes", "--home", str(home)).code == 0


def test_a_password_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RL_REGISTRY_DB", "RL_REGISTRY_DB_PATH"):
        monkeypatch.delenv(name, raising=False)
    secret = "postgresql://me:s3cr:t@db:5432/rl?sslpassword=s3cr&x=1"
    assert masked(secret) == "postgresql://me:***@db:5432/rl?sslpassword=***&x=1"
    assert masked("postgresql://me@db/rl") == "postgresql://me@db/rl"
    assert masked("/a path/x@y:z.db") == "/a path/x@y:z.db"
    assert "s3cr" not in ConnectionOptions(None, secret).flags
    for name in ("RL_REGISTRY_DB", "RL_REGISTRY_DB_PATH"):
        with monkeypatch.context() as patch:
            patch.setenv(name, secret)
            assert ConnectionOptions(None, secret).flags == ""


def test_the_address_of_a_database_is_not_written_into_the_run(
    rlctl: Rlctl, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Orchestrator(home, FakeRunner(trains_to([1.0])))
    monkeypatch.setattr(orchestrator, "connect", lambda *_args, **_kw: made)
    assert rlctl(*LAUNCH, "--registry-db", "postgresql://me:s3cret@db/rl").code == 0
    directory = Path(made.get("last").path)
    assert not [f for f in directory.rglob("*") if f.is_file() and b"s3cret" in f.read_bytes()]


def test_tokens_are_made_listed_and_revoked(rlctl: Rlctl) -> None:
    assert "no tokens" in rlctl("token", "ls").out
    assert not Path("rlruns").exists()
    made = rlctl("token", "create", "notebook", "--scope", "operate", "--expires", "30d")
    assert made.out.startswith("rlctl_")
    assert made.out.strip() not in made.err
    second = document(rlctl("token", "create", "ci", "--json"))
    assert (second["scope"], second["expires_at"]) == ("read", None)
    assert second["secret"].startswith("rlctl_")
    listed = document(rlctl("token", "ls", "--json"))["tokens"]
    assert [token["name"] for token in listed] == ["notebook", "ci"]
    assert "secret" not in listed[0]
    assert document(rlctl("token", "revoke", "ci", "--json"))["revoked_at"] is not None
    assert "revoked" in rlctl("token", "ls").out
    assert rlctl("token", "revoke", "nobody", "--json").code == NotFound.exit_code


def test_spans_of_time_are_read_as_people_write_them() -> None:
    assert [seconds(text) for text in ("90s", "2h", "30d")] == [90.0, 7200.0, 2_592_000.0]
    for text in ("", "30", "0d", "-1d", "1.5h", "d"):
        with pytest.raises(BadInput, match="--expires is"):
            seconds(text)


def test_down_without_a_service_says_so_and_is_content(rlctl: Rlctl, home: Path) -> None:
    ran = rlctl("down")
    assert (ran.code, ran.out) == (0, f"no service of {home} is up\n")
    assert document(rlctl("down", "--json")) == {"ended": None, "going_on": []}
    assert not home.exists()


def test_up_is_refused_where_a_service_is_up_or_its_parts_are_missing(
    rlctl: Rlctl, home: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.enter_context(a_service(home, trains_to([1.0]), at_once=False))
    ran = rlctl("up")
    assert ran.code == 2
    assert "is up already: http://127.0.0.1:" in ran.err
    monkeypatch.setattr("rl_orch.cli.commands.up.NEEDED", ("fastapi", "nosuchmodule"))
    ran = rlctl("up", "--json")
    assert (ran.code, document(ran)["error"]["code"]) == (2, "missing_extra")
    assert "pip install 'rl-orch[server]'" in document(ran)["error"]["hint"]


def test_the_command_line_of_a_detached_service_has_no_password(home: Path) -> None:
    wanted = ServiceOptions(
        host="::1", port=0, database="postgresql://me:s3cret@db/rl", cpus=3,
        allow_host=["a", "b"], allow_origin=["https://c"], insecure_loopback=True,
    )  # fmt: skip
    assert list(wanted.words(home)) == [
        "up", "--json", "--home", str(home), "--host", "::1", "--port", "0", "--cpus", "3",
        "--allow-host", "a", "--allow-host", "b", "--allow-origin", "https://c",
        "--insecure-loopback",
    ]  # fmt: skip


@pytest.mark.usefixtures("only_http")
def test_watch_shows_what_is_under_way_until_it_has_ended(
    rlctl: Rlctl, home: Path, stack: ExitStack
) -> None:
    """By name, and all of it; the exit code is that of `wait`."""
    stack.enter_context(a_service(home, trains_to([4.0, 5.0] * 6)))
    for words in (["mine"], ["mine", "many"], []):
        run_id = document(rlctl(*LAUNCH, "--detach", "--name", "mine", "--json"))["id"]
        group = document(rlctl(*LAUNCH, "-d", "--seeds", "2", "--name", "many", "--json"))["group"]
        ran = rlctl("watch", *words)
        assert ran.code == 0
        shown = [run_id] if len(words) == 1 else [run_id, group]
        # Without a name, what has ended before the first look is not under way.
        assert words == [] or [line.split()[0] for line in ran.out.splitlines()] == shown
        assert rlctl("wait", group).code == 0
        assert rlctl("wait", run_id).code == 0
    several = rlctl("wait", run_id, group, run_id)
    assert (several.code, len(several.out.splitlines())) == (0, 2)
    waited = document(rlctl("wait", run_id, group, "--json"))["runs"]
    assert waited == [document(rlctl("wait", word, "--json")) for word in (run_id, group)]
    assert f"{run_id}  " in rlctl("watch", run_id).err
    seen = document(rlctl("watch", run_id, group, "--json"))["runs"]
    assert [run["state"] for run in seen] == ["succeeded"] * 3
    assert rlctl("watch").code == 0


def test_wait_shows_progress_and_gives_up_in_time(rlctl: Rlctl, home: Path) -> None:
    run = Orchestrator(home, FakeRunner(trains_to([1.0]))).submit(a_spec("name=late")).runs[0]
    ran = rlctl("wait", "late", "--timeout", "0")
    assert ran.code == 124
    assert f"{run.id}  0/{run.total_timesteps:,}  queued: no service is up" in ran.err
    quiet = rlctl("wait", "late", "--timeout", "0", "--quiet").err.splitlines()
    assert quiet == [f"error: run {run.id} is still queued after 0 s"]
