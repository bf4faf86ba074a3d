"""One connection: how long a request may take to arrive, how long its head may be, how long an
answer may wait to be taken, and how many connections there may be.

Everything here is about bytes; what they mean is the app's business.
"""

import asyncio
import socket
import struct
from collections import Counter
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from rl_orch.errors import BadInput, TooLarge, Unavailable
from rl_orch.http.addresses import PEER_UID
from rl_orch.http.framing import Framing, length_of_body
from rl_orch.http.problems import MEDIA_TYPE, SAFE_HEADERS, HttpProblem, document_of
from rl_orch.http.settings import Settings

HEAD_BYTES = 64 << 10
MOST_HEADERS = 100
DISCARDED_BYTES = 8 << 20
"""What is still read of a request that has been answered, so that the answer is not lost."""

CREDENTIALS = "iII"
"""What Linux says of the other end of a Unix socket: pid, uid, gid."""

UPLOADS = "/uploads"
FRAMING_BYTES = 1 << 20
"""What may come around a body: the sizes of chunks, what trails behind."""


class Connection(HttpToolsProtocol):
    """A connection that is closed when its client keeps it waiting."""

    settings: Settings
    peers: Counter[str]
    """How many connections there are from each address."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request; one connection too many is told so and closed."""
        super().connection_made(transport)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._framing = Framing()
        self._head_bytes = self._discarded = self._around_body = self._trailers = 0
        self._unanswered = 0
        self._in_head = True
        self._peer_uid = _peer_uid(transport)
        self._is_over = False
        self._fault: HttpProblem | None = None
        self._refusal: HttpProblem | None = None
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
        self._cancel("request")
        self._cancel("stall")
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes of requests, each part as what it is. After the last request they are only
        read: a connection that is closed before would take the answer with it."""
        for part in self._framing.parts(data):
            if self._is_over:
                self._discard(len(part))
            elif self._in_head:
                self._take_head(part)
            else:
                self._take_body(part)
            if self.transport.is_closing():
                return

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take one header; a request may have a hundred. What trails behind a body is no header:
        by then it has been decided who asks for what."""
        if not self._in_head:
            self._trailers += 1
            if self._trailers > MOST_HEADERS:
                raise ValueError("too many trailers")
            return
        if len(self.headers) >= MOST_HEADERS:
            self._fault = _too_large(f"more than {MOST_HEADERS} headers")
            raise ValueError("too many headers")
        super().on_header(name, value)

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self.scope["state"][PEER_UID] = self._peer_uid
        self._discarded = self._trailers = 0

    def on_headers_complete(self) -> None:
        """The head is there; the body must come as soon."""
        self._await_request()
        super().on_headers_complete()
        self._in_head, self._head_bytes = False, 0
        self._framing.body_left = length_of_body(self.headers)
        self._unanswered += 1
        if self.parser.should_upgrade():
            # It goes on as HTTP/1.1, and the parser no longer tells its body from a request.
            self.cycle.keep_alive, self._is_over = False, True

    def on_body(self, body: bytes) -> None:
        """Take bytes of a body; not for ever, where nobody reads them any more."""
        self._around_body -= len(body)
        if self.cycle is not None and self.cycle.response_complete:
            self._discard(len(body))
            return
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is all there."""
        self._in_head, self._around_body = True, 0
        self._cancel("request")
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer is on its way; the next one may be a refusal."""
        super().on_response_complete()
        self._unanswered -= 1
        self._tell_refusal()

    def pause_writing(self) -> None:
        """The client does not take what it is sent; it has some time to."""
        super().pause_writing()
        self._start("stall", self.settings.stall_timeout_s)

    def resume_writing(self) -> None:
        """The client has taken enough."""
        self._cancel("stall")
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request."""
        self._refuse(self._fault or HttpProblem(BadInput(msg)))

    @property
    def _peer(self) -> str:
        return self.client[0] if self.client else f"user {self._peer_uid}"

    def _take_head(self, part: bytes) -> None:
        self._head_bytes += len(part)
        if self._head_bytes > HEAD_BYTES:
            self._refuse(_too_large(f"more than {HEAD_BYTES:,} bytes"))
            return
        if "request" not in self._timers:
            self._await_request()
        super().data_received(part)

    def _take_body(self, part: bytes) -> None:
        self._around_body += len(part)
        if self.scope["path"] == UPLOADS and not self.cycle.response_complete:
            self._await_request()  # It may take long, as long as something comes.
        super().data_received(part)
        if self._around_body > FRAMING_BYTES:
            self.transport.abort()

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > DISCARDED_BYTES:
            self.transport.abort()

    def _turn_away(self, why: str) -> None:
        self.transport.write(_response(HttpProblem(Unavailable(f"{why}; try again later"))))
        self.transport.close()

    def _refuse(self, answer: HttpProblem) -> None:
        """Take no more requests: what came is refused, after the answers to all before it."""
        self._is_over = True
        self._cancel("request")
        if self._in_head or self._withdraw():
            self._refusal = answer
            self._tell_refusal()
        else:
            self.transport.close()

    def _withdraw(self) -> bool:
        """Take the newest request, of which no more can be read, from the app; False if its answer
        has begun."""
        if self.cycle.response_started:
            return False
        if self.pipeline and self.pipeline[0][0] is self.cycle:
            self.pipeline.popleft()
        else:
            self.cycle.disconnected = self.cycle.response_complete = True
            self.cycle.message_event.set()
        self._unanswered -= 1
        return True

    def _tell_refusal(self) -> None:
        """Send the refusal when it is its turn, and wait a while for the client to close."""
        if self._refusal is None or self._unanswered or self.transport.is_closing():
            return
        self.transport.write(_response(self._refusal))
        self.transport.write_eof()
        self._refusal = None
        self._await_request()

    def _await_request(self) -> None:
        self._start("request", self.settings.request_timeout_s)

    def _start(self, timer: str, seconds: float) -> None:
        self._cancel(timer)
        self._timers[timer] = self.loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        # Not `close`, which would wait for a client that takes nothing.
        self.transport.abort()

    def _cancel(self, timer: str) -> None:
        if timer in self._timers:
            self._timers.pop(timer).cancel()


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


def _too_large(why: str) -> HttpProblem:
    error = TooLarge(
        f"the head of the request has {why}; it may have {HEAD_BYTES:,} bytes, its first line "
        f"included, and {MOST_HEADERS} headers",
        hint="Send fewer or shorter headers, or a shorter path.",
    )
    return HttpProblem(error, status=HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)


def _response(answer: HttpProblem) -> bytes:
    """A problem document as it goes past the app: the last answer of its connection."""
    document = document_of(answer)
    body = document.model_dump_json(exclude_none=True).encode()
    status = f"HTTP/1.1 {document.status} {HTTPStatus(document.status).phrase}"
    headers = {
        b"content-type": MEDIA_TYPE.encode(),
        b"content-length": b"%d" % len(body),
        **SAFE_HEADERS,
        b"connection": b"close",
    }
    lines = [status.encode(), *(b": ".join(pair) for pair in headers.items())]
    return b"\r\n".join([*lines, b"", body])
