"""Serving the app until it is told to end: the socket, the limits of the process, and the end."""

import contextlib
import dataclasses
import resource
import socket
import threading
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any, Protocol

import uvicorn
from fastapi import FastAPI

from rl_orch.core.store.tokens import Tokens
from rl_orch.errors import BadInput
from rl_orch.http.addresses import is_loopback, is_loopback_name, is_loopback_origin
from rl_orch.http.connections import Connection
from rl_orch.http.settings import Settings

BACKLOG = 2048
FILES_WANTED = 65_536
FILES_KEPT = 256
"""Open files that are for other things than connections."""


class ServedParts(Protocol):
    """The part of an app's state that serving it takes."""

    @property
    def settings(self) -> Settings:
        """Where it listens, whom it lets in, and its limits."""

    @property
    def tokens(self) -> Tokens:
        """The keys that let callers in."""

    def close(self) -> None:
        """Bring streams to their end."""


def serve(
    app: FastAPI,
    host: str,
    port: int,
    *,
    until: threading.Event,
    started: Callable[[str], None] = lambda _url: None,
    also: socket.socket | None = None,
) -> None:
    """Serve the app until `until` is set, and return soon after, whatever clients do.

    `started` is called with the address that is listened on; port 0 is any that is free. `also` is
    a Unix socket that is listened on besides. Signals are left to the caller.
    """
    parts: ServedParts = app.state.parts
    listener = _bound(host, port, parts.settings, parts.tokens)
    with contextlib.closing(listener):
        settings = _with_room(parts.settings)
        server = _Server(_config(app, settings), until, lambda: started(_url(listener)), parts)
        server.run(sockets=[listener] if also is None else [listener, also])


class _Server(uvicorn.Server):
    """A server that watches an event instead of signals, and ends streams before it ends."""

    def __init__(
        self,
        config: uvicorn.Config,
        until: threading.Event,
        started: Callable[[], None],
        parts: ServedParts,
    ) -> None:
        super().__init__(config)
        self._until = until
        self._on_start = started
        self._parts = parts

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture none."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say so."""
        await super().startup(sockets)
        self._on_start()

    async def on_tick(self, counter: int) -> bool:
        """Whether to end."""
        return await super().on_tick(counter) or self._until.is_set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End: streams come to their end, and who does not take the rest is cut off."""
        self._parts.close()
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            if isinstance(connection, Connection):
                connection.transport.abort()


def _config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    protocol = type("Connection", (Connection,), {"settings": settings, "peers": Counter()})
    options: dict[str, Any] = {
        "http": protocol,
        "ws": "none",
        "lifespan": "off",
        "log_config": None,
        "log_level": "error",  # What strangers send must not fill the log.
        "access_log": False,
        "proxy_headers": False,
        "server_header": False,
        "backlog": BACKLOG,
        "timeout_keep_alive": settings.idle_timeout_s,
        "timeout_graceful_shutdown": settings.shutdown_s,
    }
    return uvicorn.Config(app, **options)


def _bound(host: str, port: int, settings: Settings, tokens: Tokens) -> socket.socket:
    """A bound socket, on loopback and for it unless there is a token to keep others out."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise BadInput(f"--host is {host!r}, which is no address here: {error.strerror}") from None
    opened = None if is_loopback(str(address[0])) else f"--host {host}"
    opened = opened or _opening(settings)
    if opened is not None and settings.insecure_loopback:
        raise BadInput(
            f"{opened} is not loopback, and with --insecure-loopback a proxy on this machine would "
            "let everybody in",
            path="insecure-loopback",
            hint="Leave --insecure-loopback out; callers show a token: rlctl token create.",
        )
    if opened is not None and not tokens.any():
        raise BadInput(
            f"{opened} is not loopback, and no token exists that would keep others out",
            path=opened.split()[0].lstrip("-"),
            hint="Make one first: rlctl token create NAME --scope admin",
        )
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise BadInput(
            f"cannot listen on port {port} of {host}: {error.strerror}",
            path="port",
            hint="Take another: --port NUMBER, or --port 0 for any that is free.",
        ) from None
    return listener


def _opening(settings: Settings) -> str | None:
    """The option that lets in callers who do not know the service by a name of this machine."""
    hosts = [name for name in settings.allowed_hosts if not is_loopback_name(name)]
    origins = [origin for origin in settings.allowed_origins if not is_loopback_origin(origin)]
    named = [f"--allow-host {name}" for name in hosts]
    named += [f"--allow-origin {origin}" for origin in origins]
    return named[0] if named else None


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _with_room(settings: Settings) -> Settings:
    """The settings with no more connections than this process may have files open for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    room = settings.max_connections if soft == resource.RLIM_INFINITY else soft - FILES_KEPT
    return dataclasses.replace(settings, max_connections=min(settings.max_connections, room))
