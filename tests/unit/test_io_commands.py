"""The command socket: one line asks, one answers, and nobody can block or break the run by it."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from rl_orch.errors import BadInput, NotFound, RlctlError, RunLocked
from rl_orch.io.files import socket_path
from rl_orch.io.files.socket_path import SocketPath
from rl_orch.io.run import command_socket
from rl_orch.io.run.command_socket import COMMANDS, Request, send, serve
from tests.integration.conftest import until
from tests.waiting import PATIENCE_S


def echo(request: Request) -> dict[str, Any]:
    return {"did": request.command, "with": request.arguments}


@pytest.fixture(params=["Linux", "elsewhere"])
def run_dir(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A run directory whose path is longer than a socket's may be, and not ASCII."""
    path = tmp_path / ("läuft " * 20) / "r1"
    path.mkdir(parents=True)
    assert len(os.fsencode(path)) > 107
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        if request.param == "elsewhere":
            monkeypatch.setattr(socket_path, "_THROUGH_PROC", False)
            monkeypatch.setattr(socket_path, "_RUNTIME", Path(short))
        yield path


def raw(run_dir: Path, data: bytes) -> dict[str, Any]:
    """The reply to bytes that `send` would never send."""
    place = SocketPath.open(run_dir, command_socket.SOCKET)
    with command_socket._connected(place, 5.0) as connection:
        with suppress(ConnectionError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        reply = json.loads(connection.makefile("rb").readline())
    place.close()
    assert isinstance(reply, dict)
    return reply


def test_a_command_is_carried_out_and_answered(run_dir: Path) -> None:
    with closing(serve(run_dir, echo)):
        assert send(run_dir, "checkpoint", {"name": "agent.lr", "value": [0.5, "ü", None]}) == {
            "ok": True,
            "did": "checkpoint",
            "with": {"name": "agent.lr", "value": [0.5, "ü", None]},
        }
        assert send(run_dir, "stop") == {"ok": True, "did": "stop", "with": {}}


def test_only_the_owner_can_reach_the_socket(run_dir: Path) -> None:
    with closing(serve(run_dir, echo)):
        info = command_socket.address(run_dir).lstat()
        assert stat.S_ISSOCK(info.st_mode)
        assert stat.S_IMODE(info.st_mode) == 0o600


def test_a_closed_server_leaves_no_socket_and_is_not_found(run_dir: Path) -> None:
    server = serve(run_dir, echo)
    server.close()
    server.close()
    assert not command_socket.address(run_dir).exists()
    with pytest.raises(NotFound, match="run r1 does not listen for commands"):
        send(run_dir, "stop")


def test_a_run_that_never_was_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="run r9 does not listen for commands"):
        send(tmp_path / "r9", "stop")


def test_the_socket_of_a_dead_process_is_replaced(run_dir: Path) -> None:
    place = SocketPath.open(run_dir, command_socket.SOCKET)
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(place.path)
    dead.close()
    with pytest.raises(NotFound):
        send(run_dir, "stop")
    with closing(serve(run_dir, echo)):
        assert send(run_dir, "stop")["ok"]
    place.close()


def test_the_socket_of_a_process_that_no_longer_answers_is_taken_over(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_socket, "_PROBE_S", 0.05)
    place = SocketPath.open(run_dir, command_socket.SOCKET)
    with socket.socket(socket.AF_UNIX) as stopped:
        stopped.bind(place.path)
        stopped.listen()
        with closing(serve(run_dir, echo)):
            assert send(run_dir, "stop")["ok"]
    place.close()


def test_a_second_server_of_one_run_is_refused(run_dir: Path) -> None:
    with closing(serve(run_dir, echo)):
        with pytest.raises(RunLocked, match="another process answers the commands of run r1"):
            serve(run_dir, echo)
        assert send(run_dir, "stop")["ok"]


def test_a_server_that_was_taken_over_leaves_the_socket_to_the_new_one(run_dir: Path) -> None:
    old = serve(run_dir, echo)
    command_socket.address(run_dir).unlink()
    with closing(serve(run_dir, echo)):
        old.close()
        assert send(run_dir, "stop")["ok"]


def test_an_unknown_command_is_answered_with_those_allowed(run_dir: Path) -> None:
    with closing(serve(run_dir, echo)):
        assert send(run_dir, "explode") == {
            "ok": False,
            "error": f"unknown command 'explode'; allowed: {', '.join(COMMANDS)}",
        }


@pytest.mark.parametrize(
    ("junk", "sentence"),
    [
        (b"\n", "not JSON"),
        (b"hello\n", "not JSON"),
        (b"\xff\xfe\x00\n", "not JSON"),
        (b"[" * 60_000 + b"\n", "not JSON"),
        (b'{"command":"checkpoint","value":NaN}\n', "NaN is not a finite number"),
        (b'{"command":"checkpoint","value":1e400}\n', "1e400 is not a finite number"),
        (b'["stop"]\n', "not an object"),
        (b"{}\n", "names no command"),
        (b'{"command":["stop"]}\n', "unknown command"),
        (b'{"command":"stop"}', "ended before the line did"),
        (b"", "ended before the line did"),
        (b"x" * 70_000 + b"\n", "longer than 65536 bytes"),
    ],
    ids=range(12),
)
def test_junk_gets_a_clear_error(run_dir: Path, junk: bytes, sentence: str) -> None:
    with closing(serve(run_dir, echo)):
        reply = raw(run_dir, junk)
        assert reply["ok"] is False
        assert sentence in reply["error"]
        assert send(run_dir, "stop")["ok"]


def test_a_request_that_is_too_large_or_not_json_is_not_sent(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="at most 65536"):
        send(tmp_path, "checkpoint", {"value": "x" * 70_000})
    with pytest.raises(BadInput, match="arguments of 'checkpoint' are not JSON"):
        send(tmp_path, "checkpoint", {"value": float("nan")})
    with pytest.raises(BadInput, match="arguments of 'checkpoint' are not JSON"):
        send(tmp_path, "checkpoint", {"value": object()})


@pytest.mark.parametrize(
    ("raised", "sentence"),
    [
        (BadInput("agent.lr is -1; must be positive"), "agent.lr is -1; must be positive"),
        (KeyError("lr"), "checkpoint failed: KeyError: 'lr'"),
    ],
)
def test_an_error_of_the_handler_is_the_reply(
    run_dir: Path, raised: Exception, sentence: str
) -> None:
    def fail(request: Request) -> dict[str, Any]:
        raise raised

    with closing(serve(run_dir, fail)):
        reply = send(run_dir, "checkpoint")
    assert (reply["ok"], reply["error"]) == (False, sentence)
    assert reply.get("code") == (raised.code if isinstance(raised, BadInput) else None)


def test_a_handler_that_returns_no_json_is_an_error_in_the_reply(run_dir: Path) -> None:
    with closing(serve(run_dir, lambda request: {"value": float("nan")})):
        reply = send(run_dir, "checkpoint")
        assert reply["ok"] is False
        assert "checkpoint failed: ValueError" in reply["error"]


def test_silent_clients_block_nobody(run_dir: Path) -> None:
    with closing(serve(run_dir, echo)):
        place = SocketPath.open(run_dir, command_socket.SOCKET)
        silent = [command_socket._connected(place, 5.0) for _ in range(30)]
        assert send(run_dir, "stop")["ok"]
        for client in silent:
            client.close()
        place.close()


def test_more_clients_than_allowed_are_told_so(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_socket, "_CLIENTS", 2)
    with closing(serve(run_dir, echo)):
        place = SocketPath.open(run_dir, command_socket.SOCKET)
        silent = [command_socket._connected(place, 5.0) for _ in range(2)]
        for _ in range(20):
            refusal = {"ok": False, "error": "2 clients are connected already"}
            assert send(run_dir, "stop") == refusal
        for client in silent:
            client.close()
        place.close()


def test_a_slow_client_is_sent_away_when_its_time_is_over(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_socket, "_CLIENT_S", 0.05)
    with closing(serve(run_dir, echo)):
        place = SocketPath.open(run_dir, command_socket.SOCKET)
        with command_socket._connected(place, PATIENCE_S) as slow:
            slow.sendall(b'{"comm')
            reply = json.loads(slow.makefile("rb").readline())
        assert reply == {"ok": False, "error": "no complete line within 0.05 s"}
        place.close()


def test_a_command_that_takes_long_keeps_no_other_waiting(run_dir: Path) -> None:
    release = threading.Event()
    calls: list[str] = []

    def handle(request: Request) -> dict[str, Any]:
        calls.append(request.command)
        if request.command == "load":
            release.wait(PATIENCE_S)
        return {}

    with closing(serve(run_dir, handle)):
        with pytest.raises(
            RlctlError, match="run r1 did not answer the command 'load': no complete line"
        ):
            send(run_dir, "load", timeout_s=0.05)
        until(lambda: calls)
        assert send(run_dir, "unpause", timeout_s=PATIENCE_S / 2) == {"ok": True}
        assert calls == ["load", "unpause"]
        release.set()


def test_a_server_closes_although_a_child_was_forked(run_dir: Path) -> None:
    server = serve(run_dir, echo)
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    server.close()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert not command_socket.address(run_dir).exists()


def test_a_killed_process_is_not_found_and_its_socket_is_taken_over(tmp_path: Path) -> None:
    program = (
        "import signal, sys\n"
        "from pathlib import Path\n"
        "from rl_orch.io.run.command_socket import serve\n"
        "server = serve(Path(sys.argv[1]), lambda request: {'pid': 1})\n"
        "print('ready', flush=True)\n"
        "signal.pause()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert send(tmp_path, "stop") == {"ok": True, "pid": 1}
        process.kill()
        process.wait()
    with pytest.raises(NotFound):
        send(tmp_path, "stop")
    with closing(serve(tmp_path, echo)):
        assert send(tmp_path, "stop")["did"] == "stop"


def test_a_runtime_folder_that_others_can_enter_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_path, "_THROUGH_PROC", False)
    monkeypatch.setattr(socket_path, "_RUNTIME", tmp_path)
    folder = command_socket.address(tmp_path).parent
    folder.mkdir(mode=0o755)
    with pytest.raises(RlctlError, match="only you can enter"):
        serve(tmp_path, echo)
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(RlctlError, match="only you can enter"):
        send(tmp_path, "stop")
