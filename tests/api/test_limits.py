"""How much may be sent: bodies, JSON, heads, and connections that keep others waiting."""

import contextlib
import json
import re
import select
import socket
import threading
from collections.abc import Callable, Iterator

import httpx
import pytest

from rl_orch.http.limits import Buckets
from rl_orch.testing import FakeClock
from tests.api.conftest import OWNER, OWNER_LINE, Api, Server
from tests.counting import calls
from tests.waiting import PATIENCE_S

JSON = {"Content-Type": "application/json"}
ODD_JSON = [
    pytest.param("[" * 100_000 + "]" * 100_000, id="100,000 deep list"),
    pytest.param('{"a":' * 100_000 + "1" + "}" * 100_000, id="100,000 deep map"),
    pytest.param('{"spec": {}, "spec": {}}', id="duplicate key"),
    pytest.param('{"spec": {"env": {"id": "a", "id": "b"}}}', id="duplicate key inside"),
    pytest.param('{"spec": {"train": {"lr": NaN}}}', id="NaN"),
    pytest.param('{"spec": {"train": {"lr": Infinity}}}', id="Infinity"),
    pytest.param('{"spec": {"train": {"lr": -Infinity}}}', id="-Infinity"),
    pytest.param('{"spec": {"train": {"lr": 1e400}}}', id="1e400"),
    pytest.param('{"spec": {"a": ' + "9" * 10_000 + "}}", id="10,000 digits"),
    pytest.param('{"spec": {"name": "\\ud800"}}', id="half a surrogate pair"),
    pytest.param(f'{{"name": "{"ä" * 500_000}\\ud800"}}', id="half a pair after much text"),
    pytest.param('{"spec": {"\\udfff": 1}}', id="half a surrogate pair as a key"),
    pytest.param("[" + "{}," * 300_000 + "{}]", id="300,000 maps"),
    pytest.param("[" + "[]," * 300_000 + "[]]", id="300,000 lists"),
    pytest.param("[" + "1," * 500_000 + "1]", id="500,000 numbers"),
    pytest.param("", id="nothing"),
    pytest.param("{", id="half of it"),
    pytest.param("[]", id="a list"),
    pytest.param("null", id="null"),
    pytest.param('{"spec": []}', id="a spec that is no map"),
    pytest.param('{"spec": {}, "force": true}', id="an unknown key"),
    pytest.param('{"spec": {}, "consent": "yes"}', id="a word for a switch"),
    pytest.param('{"spec": {}, "overrides": [1]}', id="a number for an override"),
]
HEAD = b"POST /experiments HTTP/1.1\r\nHost: localhost:%d\r\nContent-Type: application/json\r\n"


def connected(server: Server, source: str = "127.0.0.1") -> socket.socket:
    """A connection from an address; all that begin with 127 are this machine."""
    return socket.create_connection(server.address, timeout=PATIENCE_S, source_address=(source, 0))


def head(server: Server, *, owner: bool = True) -> bytes:
    return HEAD % server.address[1] + (OWNER_LINE.encode() if owner else b"")


def opening(server: Server) -> bytes:
    return b"GET /health HTTP/1.1\r\nHost: localhost:%d\r\n" % server.address[1]


def answer(connection: socket.socket) -> bytes:
    """One whole answer, or what comes until the other side closes or pauses."""
    data = b""
    with contextlib.suppress(TimeoutError, ConnectionError):
        while chunk := connection.recv(65536):
            data += chunk
            head, ended, body = data.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: *([0-9]+)", head)
            if ended and len(body) >= int(length[1] if length else 0):
                break
    return data


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_a_body_that_is_too_large_is_refused(api: Api) -> None:
    client = api.client(max_body_bytes=1000)
    for size, status in ((1000, 400), (1001, 413)):
        refused = client.post("/experiments", content=b"x" * size, headers=JSON)
        assert refused.status_code == status
    assert refused.json()["detail"] == (
        "the request body is too large; at most 1,000 bytes are read"
    )


def test_a_chunked_body_that_is_too_large_is_refused_before_all_of_it_is_sent(api: Api) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(100_000):
            sent += 10_000
            yield b"x" * 10_000

    with api.served(max_body_bytes=1000) as server:
        with contextlib.suppress(httpx.TransportError):
            refused = httpx.post(
                f"{server.url}/experiments",
                content=endless(),
                headers=JSON | OWNER,
                timeout=PATIENCE_S,
            )
            assert refused.status_code == 413
        assert sent < 100_000_000
        assert httpx.get(f"{server.url}/health", timeout=PATIENCE_S).status_code == 200


def test_a_length_of_ten_gigabytes_is_refused_at_once(api: Api) -> None:
    with api.served() as server, connected(server) as connection:
        connection.sendall(head(server) + b"Content-Length: 10000000000\r\n\r\n")
        assert b" 413 " in answer(connection)


def test_a_body_that_is_longer_than_it_says_is_no_body(api: Api) -> None:
    with api.served() as server, connected(server) as connection:
        connection.sendall(head(server) + b"Content-Length: 2\r\n\r\n{}" + b"x" * 5000)
        assert b" 400 " in answer(connection)
        assert httpx.get(f"{server.url}/health", timeout=PATIENCE_S).status_code == 200


def test_two_lengths_are_refused(api: Api) -> None:
    with api.served() as server, connected(server) as connection:
        both = b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        connection.sendall(head(server) + both)
        refused = answer(connection)
        assert b" 400 " in refused
        assert b"application/problem+json" in refused


@pytest.mark.parametrize("body", ODD_JSON)
def test_odd_json_is_refused_and_is_no_more_work_than_any(api: Api, body: str) -> None:
    client, answers = api.client(), list[httpx.Response]()

    def post(content: str) -> None:
        answers.append(client.post("/experiments", content=content, headers=JSON))

    post(body)
    assert calls(lambda: post(body)) < 2 * calls(lambda: post("{}"))
    assert [answer.status_code for answer in answers] == [400] * 3
    assert {answer.json()["code"] for answer in answers[:2]} == {"bad_input"}


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "a/b/c"])
def test_what_does_not_say_that_it_is_json_is_refused(api: Api, kind: str) -> None:
    body = json.dumps({"spec": {"env": {"id": "CartPole-v1"}}})
    refused = api.client().post("/experiments", content=body, headers={"Content-Type": kind})
    assert refused.status_code == 400
    assert refused.json()["path"] == "Content-Type"


def test_text_that_is_not_utf_8_is_refused(api: Api) -> None:
    refused = api.client().post("/experiments", content=b'{"a": "\xff"}', headers=JSON)
    assert refused.json()["detail"] == "the request body is not UTF-8 text"


@pytest.mark.parametrize("sent", [b"", b"GET /he", b"GET /health HTTP/1.1\r\nHost: localhost\r\n"])
def test_a_head_that_does_not_arrive_in_time_ends_the_connection(api: Api, sent: bytes) -> None:
    with api.served(request_timeout_s=0.2) as server, connected(server) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(sent)
        assert is_closed(connection)


def test_a_head_that_trickles_in_does_not_buy_time(api: Api) -> None:
    """If it did, it could go on for the better part of an hour."""
    pause = threading.Event()
    with api.served(request_timeout_s=0.4) as server, connected(server) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(opening(server) + b"X-Slow: ")
            while not select.select([connection], [], [], 0)[0]:
                connection.sendall(b"a")
                pause.wait(0.05)
        assert is_closed(connection)


def test_a_body_that_does_not_arrive_in_time_ends_the_connection(api: Api) -> None:
    with api.served(request_timeout_s=0.2) as server, connected(server) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(head(server) + b"Content-Length: 100\r\n\r\n{")
        assert is_closed(connection)


def test_a_connection_stays_open_between_requests(
    api: Api, wait_for: Callable[[Callable[[], bool]], None]
) -> None:
    """For longer than a request may take to arrive."""
    timeout_s = 0.2
    with api.served(request_timeout_s=timeout_s, idle_timeout_s=3600) as server:
        request = opening(server) + b"\r\n"

        def is_kept() -> bool:
            with connected(server) as connection:
                connection.sendall(request)
                if b" 200 " not in answer(connection):
                    return False  # Here it took longer to ask than there is time for.
                for _ in range(2):
                    assert select.select([connection], [], [], 3 * timeout_s)[0] == []
                    connection.sendall(request)
                    assert b" 200 " in answer(connection)
            return True

        wait_for(is_kept)


@pytest.mark.parametrize(
    "header", [b"X-Long: " + b"a" * 200_000, b"X-A: b\r\n" * 200, b"X-Never-Ends: " + b"a" * 70_000]
)
def test_a_head_that_is_too_long_is_refused(api: Api, header: bytes) -> None:
    ended = b"" if b"Never" in header else b"\r\n\r\n"
    with api.served() as server, connected(server) as connection:
        connection.sendall(opening(server) + header + ended)
        assert b" 431 " in answer(connection)
        assert httpx.get(f"{server.url}/health", timeout=PATIENCE_S).status_code == 200


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        pytest.param(b"0\r\nX-Never-Ends: ", b"a" * 65536, id="a trailer"),
        pytest.param(b"2;x=", b"a" * 65536, id="a chunk extension"),
        pytest.param(b"", b"1;a=aaaaaaaaaa\r\n \r\n" * 3000, id="chunk extensions"),
        pytest.param(b"0\r\n", b"X-A: b\r\n" * 3000, id="trailers"),
    ],
)
def test_what_never_ends_around_a_body_ends_the_connection(
    api: Api, begin: bytes, more: bytes
) -> None:
    sent = 0
    with api.served() as server, connected(server) as connection:
        connection.sendall(head(server) + b"Transfer-Encoding: chunked\r\n\r\n" + begin)
        with contextlib.suppress(ConnectionError):
            while sent < 50_000_000:
                connection.sendall(more)
                sent += len(more)
        assert sent < 50_000_000
        assert httpx.get(f"{server.url}/health", timeout=PATIENCE_S).status_code == 200


def test_a_body_in_small_chunks_and_a_few_trailers_are_taken(api: Api) -> None:
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in b'{"spec": {}}' + b" " * 20_000)
    with api.served() as server, connected(server) as connection:
        connection.sendall(head(server) + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
        connection.sendall(b"0\r\nX-Sum: 1\r\n\r\n")
        assert b"env.id" in answer(connection)


def test_a_trailer_is_no_header(api: Api) -> None:
    token = api.token().encode()
    with api.served() as server, connected(server) as connection:
        begun = head(server, owner=False) + b"Transfer-Encoding: chunked\r\n\r\n"
        connection.sendall(begun)
        connection.sendall(b"0\r\nAuthorization: Bearer %s\r\n\r\n" % token)
        assert b" 401 " in answer(connection)


def test_a_thousand_idle_connections_do_not_hinder_others(api: Api) -> None:
    with api.served() as server, contextlib.ExitStack() as stack:
        near = [f"127.0.0.{2 + number % 2}" for number in range(1000)]
        idle = [stack.enter_context(connected(server, source)) for source in near]
        for connection in idle[::2]:
            connection.sendall(b"GET /health HT")
        for _ in range(20):
            assert (
                httpx.get(f"{server.url}/runs", headers=OWNER, timeout=PATIENCE_S).status_code
                == 200
            )


def test_one_connection_too_many_is_told_so(
    api: Api, wait_for: Callable[[Callable[[], bool]], None]
) -> None:
    with api.served(max_connections=3) as server:
        with contextlib.ExitStack() as stack:
            kept = [stack.enter_context(connected(server)) for _ in range(3)]
            for connection in kept:
                connection.sendall(b"GET /heal")
            with connected(server) as fourth:
                refused = answer(fourth)
            assert b" 503 " in refused
            assert b"there are 3 connections already; try again later" in refused

        def is_free() -> bool:
            return httpx.get(f"{server.url}/health", timeout=PATIENCE_S).status_code == 200

        wait_for(is_free)


def test_one_address_has_only_so_many_connections_and_others_have_theirs(
    api: Api, wait_for: Callable[[Callable[[], bool]], None]
) -> None:
    with api.served(connections_per_peer=3) as server:
        with contextlib.ExitStack() as stack:
            for _ in range(3):
                stack.enter_context(connected(server, "127.0.0.2"))
            with connected(server, "127.0.0.2") as fourth:
                refused = answer(fourth)
            assert b" 503 " in refused
            assert b"there are 3 connections from your address already" in refused
            assert httpx.get(f"{server.url}/health", timeout=PATIENCE_S).status_code == 200

        def is_free() -> bool:
            with connected(server, "127.0.0.2") as again:
                again.sendall(opening(server) + b"\r\n")
                return b" 200 " in answer(again)

        wait_for(is_free)


def test_a_caller_gets_burst_requests_at_once_and_then_so_many_a_second() -> None:
    clock = FakeClock()
    buckets = Buckets(per_s=2.0, burst=3, timer=clock)
    assert [buckets.take("a") for _ in range(3)] == [0.0, 0.0, 0.0]
    assert buckets.take("a") == pytest.approx(0.5)
    assert buckets.take("b") == 0.0
    clock.advance(0.5)
    assert buckets.take("a") == 0.0
    assert buckets.take("a") > 0.0
    clock.advance(1000.0)
    assert [buckets.take("a") > 0.0 for _ in range(4)] == [False, False, False, True]


def test_of_many_callers_the_quietest_are_forgotten() -> None:
    buckets = Buckets(per_s=1.0, burst=1, timer=FakeClock())
    for number in range(20_000):
        buckets.take(str(number))
    assert len(buckets._levels) == 10_000
