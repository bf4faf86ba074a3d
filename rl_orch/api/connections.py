"""One connection: how long a request may take to arrive, how long an answer may wait to be taken,
and how many connections there may be.

Everything here is about bytes; what they mean is the app's business.
"""

import asyncio
import json
import socket
import struct
from collections import Counter
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from rl_orch.api.addresses import PEER_UID
from rl_orch.api.settings import Settings

HEAD_BYTES = 64 << 10
MOST_HEADERS = 100
DISCARDED_BYTES = 8 << 20
"""What is still read of a request that has been answered, so that the answer is not lost."""

CREDENTIALS = "iII"
"""What Linux says of the other end of a Unix socket: pid, uid, gid."""

FRAMING_BYTES = 1 << 20
"""What a request may have besides its body: its head, the sizes of chunks, what trails behind."""


class Connection(HttpToolsProtocol):
    """A connection that is closed when its client keeps it waiting."""

    settings: Settings
    peers: Counter[str]
    """How many connections there are from each address."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request; one connection too many is told so and closed."""
        super().connection_made(transport)
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._head_bytes = self._discarded = self._framing = self._trailers = 0
        self._in_head = True
        self._peer_uid = _peer_uid(transport)
        self.peers[self._peer] += 1
        if len(self.connections) > self.settings.max_connections:
            self._turn_away(f"there are {self.settings.max_connections} connections already")
        elif self.peers[self._peer] > self.settings.connections_per_peer:
            most = self.settings.connections_per_peer
            self._turn_away(f"there are {most} connections from your address already")
        else:
            self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers, and that it was there."""
        self.peers[self._peer] -= 1
        if not self.peers[self._peer]:
            del self.peers[self._peer]
        self._forget_deadline()
        self._forget_stall()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request, unless its head is too long, or there is more around its body
        than anybody would need."""
        self._framing += len(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._deadline is None:
                self._await_request()
        super().data_received(data)
        if self._in_head and self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The head of the request is too long.")
        if self._framing > FRAMING_BYTES:
            self.transport.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take one header; a request may have a hundred. What trails behind a body is no header:
        by then it has been decided who asks for what."""
        if not self._in_head:
            self._trailers += 1
        if len(self.headers) + self._trailers >= MOST_HEADERS:
            raise ValueError("too many headers")
        if self._in_head:
            super().on_header(name, value)

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self.scope["state"][PEER_UID] = self._peer_uid
        self._discarded = self._trailers = 0

    def on_headers_complete(self) -> None:
        """The head is there; the body must come as soon."""
        self._in_head, self._head_bytes = False, 0
        self._await_request()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take bytes of a body; not for ever, where nobody reads them any more."""
        self._framing -= len(body)
        if self.cycle is not None and self.cycle.response_complete:
            self._discarded += len(body)
            if self._discarded > DISCARDED_BYTES:
                self.transport.abort()
                return
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is all there."""
        self._in_head, self._framing = True, 0
        self._forget_deadline()
        super().on_message_complete()

    def pause_writing(self) -> None:
        """The client does not take what it is sent; it has some time to."""
        super().pause_writing()
        self._forget_stall()
        self._stalled = self.loop.call_later(self.settings.stall_timeout_s, self._give_up)

    def resume_writing(self) -> None:
        """The client has taken enough."""
        self._forget_stall()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request."""
        self._answer(b"400 Bad Request", "bad_input", msg)

    @property
    def _peer(self) -> str:
        return self.client[0] if self.client else f"user {self._peer_uid}"

    def _turn_away(self, why: str) -> None:
        self._answer(b"503 Service Unavailable", "unavailable", f"{why}; try again later")

    def _answer(self, status: bytes, code: str, detail: str) -> None:
        """Send a problem document past the app, and close."""
        number, phrase = status.decode().split(" ", 1)
        problem: dict[str, Any] = {"type": f"urn:rlctl:{code}", "title": phrase}
        problem |= {"status": int(number), "detail": detail, "code": code}
        body = json.dumps(problem).encode()
        head = [
            b"HTTP/1.1 " + status,
            b"content-type: application/problem+json",
            b"content-length: %d" % len(body),
            b"x-content-type-options: nosniff",
            b"connection: close",
        ]
        self.transport.write(b"\r\n".join([*head, b"", body]))
        self.transport.close()

    def _await_request(self) -> None:
        self._forget_deadline()
        self._deadline = self.loop.call_later(self.settings.request_timeout_s, self._give_up)

    def _give_up(self) -> None:
        # Not `close`, which would wait for a client that takes nothing.
        self.transport.abort()

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _forget_stall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None


def _peer_uid(transport: asyncio.Transport) -> int | None:
    """The user whose process is at the other end of a Unix socket; None at any other."""
    end: socket.socket | None = transport.get_extra_info("socket")
    if end is None or end.family != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
        return None
    size = struct.calcsize(CREDENTIALS)
    _, uid, _ = struct.unpack(
        CREDENTIALS, end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    )
    return int(uid)
