"""The command socket of a run: how early stop, live views and people reach it while it runs.

One line of JSON asks, one line answers. What a command does is up to the run.
"""

import json
import logging
import math
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from rl_orch.errors import BadInput, NotFound, RlctlError, RunLocked, Unavailable
from rl_orch.io.files.socket_path import SocketPath, location

SOCKET = "control.sock"
COMMANDS = ("stop", "checkpoint", "pause", "unpause", "set", "load")
REQUEST_BYTES = 64 << 10
REPLY_BYTES = 1 << 20

_CLIENT_S = 5.0
_PROBE_S = 2.0
_RETRY_S = 0.1
_CLIENTS = 64

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """A command that a run is asked to carry out."""

    command: str
    arguments: dict[str, Any]


Handler = Callable[[Request], dict[str, Any]]


def serve(run_dir: Path, handle: Handler) -> "CommandServer":
    """A server that answers the commands of a run until it is closed.

    `handle` is called by a thread for each client, so that none waits for another's command, and
    returns what the reply says besides `ok`; an error it raises becomes the reply. The caller holds
    the lock of the run directory: a socket on which nobody answers is taken over.
    """
    return CommandServer(run_dir, handle)


def send(
    run_dir: Path,
    command: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    timeout_s: float = 5.0,
) -> dict[str, Any]:
    """The reply of a run to a command: `{"ok": true, ...}`, or `{"ok": false, "error": ...}` with
    the code, path and hint of the error."""
    try:
        request = _encoded({**(arguments or {}), "command": command})
    except (ValueError, TypeError) as error:
        raise BadInput(f"the arguments of {command!r} are not JSON: {error}") from error
    if len(request) > REQUEST_BYTES:
        raise BadInput(f"command {command!r} takes {len(request)} bytes; at most {REQUEST_BYTES}")
    try:
        return _decoded(_exchange(run_dir, request, timeout_s))
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        raise NotFound(
            f"run {run_dir.name} does not listen for commands: no process of it runs",
            path=str(run_dir),
            hint="Commands reach a run only while it runs.",
        ) from None
    except (OSError, ValueError) as error:
        raise Unavailable(
            f"run {run_dir.name} did not answer the command {command!r}: {error}",
            path=str(run_dir),
            hint="It may be in a long step, or stopped by a signal; try again.",
        ) from error


def address(run_dir: Path) -> Path:
    """Where the socket of a run is."""
    return location(run_dir, SOCKET)


class CommandServer:
    """A thread that waits for clients, and one thread for each client; so that none blocks another.

    All of them are daemons: they never keep a run alive.
    """

    def __init__(self, run_dir: Path, handle: Handler) -> None:
        self._handle = handle
        self._vacancies = threading.Semaphore(_CLIENTS)
        self._place = SocketPath.open(run_dir, SOCKET)
        try:
            self._socket = _bound(self._place, run_dir)
        except BaseException:
            self._place.close()
            raise
        self._inode = self._place.inode()
        self._closed = False
        self._closing, self._close_signal = socket.socketpair()
        self._thread = threading.Thread(target=self._accept, name="commands", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening and remove the socket, unless another server has taken it over."""
        if self._closed:
            return
        self._closed = True
        self._close_signal.sendall(b".")
        self._thread.join()
        for used in (self._socket, self._closing, self._close_signal):
            used.close()
        if self._inode == self._place.inode():
            self._place.unlink()
        self._place.close()

    def _accept(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(self._closing, selectors.EVENT_READ)
            while not any(key.fileobj is self._closing for key, _ in selector.select()):
                try:
                    self._admit(self._socket.accept()[0])
                except OSError:
                    time.sleep(_RETRY_S)  # Out of file descriptors: clients wait in the backlog.

    def _admit(self, client: socket.socket) -> None:
        if self._vacancies.acquire(blocking=False):
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()
            return
        with client, suppress(OSError):
            client.settimeout(0.0)
            client.sendall(_encoded(_refusal(f"{_CLIENTS} clients are connected already")))

    def _serve(self, client: socket.socket) -> None:
        try:
            with client, suppress(OSError):
                reply = self._reply(client)
                client.settimeout(_CLIENT_S)
                client.sendall(reply)
        finally:
            self._vacancies.release()

    def _reply(self, client: socket.socket) -> bytes:
        try:
            line = _read_line(client, REQUEST_BYTES, _CLIENT_S)
            request = _requested(line)
        except ValueError as error:
            return _encoded(_refusal(str(error)))
        try:
            return _encoded({"ok": True, **self._handle(request)})
        except RlctlError as error:
            more = {"code": error.code, "path": error.path, "hint": error.hint}
            return _encoded(_refusal(error.message, **more))
        except Exception as error:
            _log.exception("a command failed", extra={"command": request.command})
            return _encoded(_refusal(f"{request.command} failed: {type(error).__name__}: {error}"))


def _bound(place: SocketPath, run_dir: Path) -> socket.socket:
    """A listening socket that only its owner can reach."""
    if _is_answered(place):
        raise RunLocked(f"another process answers the commands of run {run_dir.name}")
    try:
        return place.listener(_CLIENTS)
    except OSError as error:
        raise RlctlError(
            f"cannot listen for commands in {run_dir}: {error.strerror}",
            path=str(run_dir),
            hint="The folder must be on a file system that has sockets.",
        ) from error


def _is_answered(place: SocketPath) -> bool:
    """Whether a living server has the socket. To accept is not enough: the kernel does that for
    a process that is stopped, or that forked and died."""
    with suppress(OSError, ValueError), _connected(place, _PROBE_S) as probe:
        probe.sendall(b"{}\n")
        return bool(_read_line(probe, REPLY_BYTES, _PROBE_S))
    return False


def _exchange(run_dir: Path, request: bytes, timeout_s: float) -> bytes:
    place = SocketPath.open(run_dir, SOCKET)
    try:
        with _connected(place, timeout_s) as connection:
            with suppress(ConnectionError):  # A refusal may have come before the request went.
                connection.sendall(request)
            return _read_line(connection, REPLY_BYTES, timeout_s)
    finally:
        place.close()


def _connected(place: SocketPath, timeout_s: float) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        connection.connect(place.path)
    except BaseException:
        connection.close()
        raise
    return connection


def _read_line(connection: socket.socket, most: int, timeout_s: float) -> bytes:
    """The first line, or a ValueError that says why there is none. The time is for all of it, so
    that a client cannot stay by sending a byte now and then."""
    deadline = time.monotonic() + timeout_s
    data = b""
    while b"\n" not in data and len(data) <= most:
        try:
            connection.settimeout(max(deadline - time.monotonic(), 0.0))
            chunk = connection.recv(REQUEST_BYTES)
        except (TimeoutError, BlockingIOError):
            raise ValueError(f"no complete line within {timeout_s:g} s") from None
        if not chunk:
            raise ValueError("the connection ended before the line did")
        data += chunk
    line = data.partition(b"\n")[0]
    if len(line) > most:
        raise ValueError(f"the line is longer than {most} bytes")
    return line


def _requested(line: bytes) -> Request:
    match _decoded(line):
        case {"command": str(command), **arguments} if command in COMMANDS:
            return Request(command, arguments)
        case {"command": command}:
            raise ValueError(f"unknown command {command!r}; allowed: {', '.join(COMMANDS)}")
    raise ValueError(f"the request names no command; allowed: {', '.join(COMMANDS)}")


def _decoded(line: bytes) -> dict[str, Any]:
    try:
        document = json.loads(line, parse_constant=_refuse_number, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the line is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f"the line is a JSON {type(document).__name__}, not an object")
    return document


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse_number(text)


def _refuse_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a finite number")


def _refusal(error: str, **more: str | None) -> dict[str, Any]:
    known = {name: text for name, text in more.items() if text is not None}
    return {"ok": False, "error": error, **known}


def _encoded(reply: dict[str, Any]) -> bytes:
    return json.dumps(reply, allow_nan=False).encode() + b"\n"
