"""How long the head of a request may be: exactly as long as the page says, however it arrives, and
whichever request of its connection it belongs to.
"""

import contextlib
import json
import re
import socket
from collections.abc import Callable, Iterator

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_orch.http.connections import HEAD_BYTES, MOST_HEADERS
from rl_orch.http.framing import END, Framing
from tests.api.conftest import Api, Server
from tests.waiting import PATIENCE_S

CLOSE = b"Connection: close\r\n"
JSON = b"Content-Type: application/json\r\n"
CHUNKED = JSON + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def server(api: Api) -> Iterator[Server]:
    """A server that waits for requests as long as a slow machine needs."""
    with api.served(request_timeout_s=PATIENCE_S) as server:
        yield server


def opening(server: Server, target: bytes = b"GET /health") -> bytes:
    return target + b" HTTP/1.1\r\nHost: localhost:%d\r\n" % server.address[1]


def by_a_header(server: Server, size: int) -> bytes:
    start = opening(server) + CLOSE + b"X-Long: "
    return start + b"a" * (size - len(start + END)) + END


def by_its_target(server: Server, size: int) -> bytes:
    rest = opening(server, b"") + CLOSE + b"\r\n"
    return (b"GET /health?").ljust(size - len(rest), b"a") + rest


def by_blanks(server: Server, size: int) -> bytes:
    start = opening(server) + CLOSE + b"X-Blank:"
    return start.ljust(size - len(END) - 1) + b"a" + END


def by_many_headers(server: Server, size: int) -> bytes:
    start = opening(server) + CLOSE + (b"X-A: " + b"a" * 600 + b"\r\n") * 80 + b"X-Last: "
    return start.ljust(size - len(END), b"a") + END


def by_lines_before_it(server: Server, size: int) -> bytes:
    return (opening(server) + CLOSE + b"\r\n").rjust(size, b"\n")


def answered(server: Server, *pieces: bytes) -> list[tuple[int, bytes]]:
    """The statuses and bodies of all answers to pieces of requests, until the server closes."""
    data = b""
    with socket.create_connection(server.address, timeout=PATIENCE_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            connection.sendall(piece)
        while block := connection.recv(65536):
            data += block
    return list(answers_in(data))


def answers_in(data: bytes) -> Iterator[tuple[int, bytes]]:
    while data:
        head, _, rest = data.partition(END)
        length = re.search(rb"(?i)content-length: *([0-9]+)", head)
        assert length is not None, head
        body, data = rest[: int(length[1])], rest[int(length[1]) :]
        yield int(head.split(b" ")[1]), body


def statuses(server: Server, *pieces: bytes) -> list[int]:
    return [status for status, _ in answered(server, *pieces)]


def in_pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize(
    "head", [by_a_header, by_its_target, by_blanks, by_many_headers, by_lines_before_it]
)
@pytest.mark.parametrize("size", [1 << 20, 40_000, 101], ids=lambda size: f"pieces of {size}")
def test_a_head_of_64_kib_is_answered_and_one_byte_more_is_refused(
    server: Server, head: Callable[[Server, int], bytes], size: int
) -> None:
    assert len(head(server, HEAD_BYTES)) == HEAD_BYTES == 64 << 10
    assert statuses(server, *in_pieces(head(server, HEAD_BYTES), size)) == [200]
    assert statuses(server, *in_pieces(head(server, HEAD_BYTES + 1), size)) == [431]


def before(server: Server) -> dict[str, tuple[bytes, int]]:
    """Requests that come first, and how each is answered."""
    many_lines = b'{"spec": {"name": "' + b"a" * 70_000 + b'"}}' + END * 500
    length = b"Content-Length: %d\r\n\r\n" % len(many_lines)
    chunks = b"%x;a=b\r\n%s\r\n0\r\nX-Trailer: a\r\n\r\n" % (len(many_lines), many_lines)
    return {
        "a head": (opening(server) + b"\r\n", 200),
        "a head of 64 KiB": (by_a_header(server, HEAD_BYTES + len(CLOSE)).replace(CLOSE, b""), 200),
        "a body": (opening(server, b"POST /sessions") + JSON + length + many_lines, 400),
        "chunks": (opening(server, b"POST /sessions") + CHUNKED + chunks, 400),
    }


@pytest.mark.parametrize("first", ["a head", "a head of 64 KiB", "a body", "chunks"])
@pytest.mark.parametrize("size", [1 << 20, 50_000, 997], ids=lambda size: f"pieces of {size}")
@pytest.mark.parametrize(("extra", "last"), [(0, 200), (1, 431)])
def test_the_limit_is_the_same_for_requests_that_are_sent_before_others_are_answered(
    server: Server, first: str, size: int, extra: int, last: int
) -> None:
    request, status = before(server)[first]
    sent = request * 3 + by_a_header(server, HEAD_BYTES + extra)
    assert statuses(server, *in_pieces(sent, size)) == [status] * 3 + [last]


@pytest.mark.parametrize(("extra", "last"), [(0, 200), (1, 431)])
def test_the_limit_is_the_same_for_the_next_request_of_a_connection(
    server: Server, extra: int, last: int
) -> None:
    with socket.create_connection(server.address, timeout=PATIENCE_S) as connection:
        for _ in range(2):
            connection.sendall(by_a_header(server, HEAD_BYTES + len(CLOSE)).replace(CLOSE, b""))
            first = b""
            while not first.endswith(b"}"):
                first += connection.recv(65536)
            assert [status for status, _ in answers_in(first)] == [200]
        connection.sendall(by_a_header(server, HEAD_BYTES + extra))
        rest = b""
        while block := connection.recv(65536):
            rest += block
    assert [status for status, _ in answers_in(rest)] == [last]


def test_a_hundred_headers_are_answered_and_one_more_is_refused(server: Server) -> None:
    def head(count: int) -> bytes:
        lines = opening(server) + CLOSE + b"X-A: b\r\n" * (count - 2)
        assert lines.count(b"\r\n") == count + 1
        return lines + b"\r\n"

    assert MOST_HEADERS == 100
    for size in (1 << 20, 100):
        assert statuses(server, *in_pieces(head(100), size)) == [200]
        assert statuses(server, *in_pieces(head(101), size)) == [431]
    kept = head(100).replace(CLOSE, b"X-A: b\r\n")
    assert statuses(server, kept * 3 + head(100)) == [200] * 4
    assert statuses(server, kept * 3 + head(101)) == [200] * 3 + [431]


def test_what_trails_behind_a_body_counts_for_itself(server: Server) -> None:
    lines = opening(server, b"POST /sessions") + CLOSE + b"X-A: b\r\n" * 96
    request = lines + CHUNKED + b"2\r\n{}\r\n0\r\n"
    assert statuses(server, request + b"X-A: b\r\n" * 100 + b"\r\n") == [400]
    status, body = answered(server, request + b"X-A: b\r\n" * 100 + b"\r\n")[0]
    assert (status, "code" in json.loads(body)["detail"]) == (400, True)


def test_a_refusal_is_a_problem_document_that_names_the_limit(server: Server) -> None:
    (status, body), *others = answered(server, by_a_header(server, HEAD_BYTES + 1))
    assert others == []
    document = json.loads(body)
    assert document["status"] == status == 431
    assert document["code"] == "too_large"
    assert document["detail"] == (
        "the head of the request has more than 65,536 bytes; it may have 65,536 bytes, its first "
        "line included, and 100 headers"
    )
    lines = opening(server) + b"X-A: b\r\n" * 100 + b"\r\n"
    document = json.loads(answered(server, lines)[0][1])
    assert document["detail"].startswith("the head of the request has more than 100 headers")


@pytest.mark.parametrize("size", [HEAD_BYTES + 1, 1 << 20, 6 << 20])
def test_a_head_without_an_end_is_refused_and_the_refusal_arrives(
    server: Server, size: int
) -> None:
    assert statuses(server, (opening(server) + b"X-Long: ").ljust(size, b"a")) == [431]
    assert httpx.get(f"{server.url}/health", timeout=PATIENCE_S).status_code == 200


def test_a_head_that_goes_on_for_ever_ends_its_connection(server: Server) -> None:
    sent, block = 0, b"a" * 65536
    with socket.create_connection(server.address, timeout=PATIENCE_S) as connection:
        connection.sendall(opening(server) + b"X-Long: ")
        with contextlib.suppress(ConnectionError):
            while sent < 100_000_000:
                connection.sendall(block)
                sent += len(block)
    assert sent < 100_000_000


def test_what_is_no_request_is_refused_after_the_answers_to_those_before_it(
    server: Server,
) -> None:
    get = opening(server) + b"\r\n"
    post = opening(server, b"POST /sessions") + CHUNKED
    junk = b"\x00\x01\r\n\r\n"
    assert statuses(server, get * 3 + junk) == [200, 200, 200, 400]
    assert statuses(server, get * 3 + post + b"no size\r\n") == [200, 200, 200, 400]
    assert statuses(server, post + b"no size\r\n") == [400]
    assert statuses(server, get + post.replace(b"chunked", b"gzip")) == [200, 400]


def test_what_follows_a_request_for_another_protocol_is_no_request(server: Server) -> None:
    inner = opening(server) + b"\r\n"
    asks = b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: %d\r\n\r\n" % len(inner)
    for pieces in ([opening(server) + asks + inner], [opening(server) + asks, inner]):
        assert statuses(server, *pieces) == [200]


ALPHABET = st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", END, b"a", b"bc" * 9]), max_size=30)


@given(ALPHABET, st.integers(0, 20), st.lists(st.integers(0, 12), min_size=1, max_size=40))
def test_the_parts_of_a_connection_do_not_depend_on_how_its_bytes_arrive(
    pieces: list[bytes], body: int, sizes: list[int]
) -> None:
    data = b"".join(pieces)

    def ends(arrivals: list[bytes]) -> set[int]:
        """Where parts end; where one merely ran out of bytes is left out."""
        framing, at, found = Framing(), 0, set()
        framing.body_left = body
        for arrival in arrivals:
            for part in framing.parts(arrival):
                at += len(part)
                if at == body or (at > body and data[:at].endswith(END)):
                    found.add(at)
        assert at == len(data)
        return found

    arrivals, rest = [], data
    for size in sizes:
        arrivals.append(rest[:size])
        rest = rest[size:]
    every = {at for at in range(body + 1, len(data) + 1) if data[:at].endswith(END)}
    every |= {body} & set(range(1, len(data) + 1))
    assert ends([data]) == ends([*arrivals, rest]) == ends(in_pieces(data, 1)) == every
